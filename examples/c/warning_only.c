/* The compiler warns (unused variable, missing return type check); a warning is no compile error. */
#include <stdio.h>

int main(void)
{
    int unused = 3;
    unsigned char small = 300;
    printf("%d\n", small);
    return 0;
}
