/* Writes through a null pointer. */
#include <stdio.h>

int main(void)
{
    volatile int *volatile nowhere = NULL;
    *nowhere = 42;
    puts("not reached");
    return 0;
}
