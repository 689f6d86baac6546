/* A semicolon is missing and a name is unknown. */
#include <stdio.h>

int main(void)
{
    int n = 3
    printf("%d\n", m);
    return 0;
}
