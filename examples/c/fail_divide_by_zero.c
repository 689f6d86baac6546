/* An integer division by zero: SIGFPE. */
#include <stdio.h>

int main(void)
{
    volatile int zero = 0;
    printf("%d\n", 7 / zero);
    return 0;
}
