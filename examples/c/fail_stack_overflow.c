/* Recursion without an end, each step with a kilobyte of its own. */
#include <stdio.h>

static int depth(volatile char *above)
{
    volatile char here[1024];
    here[0] = above[0];
    return depth(here) + here[0];
}

int main(void)
{
    volatile char start[1] = { 1 };
    printf("%d\n", depth(start));
    return 0;
}
