/* An assertion that does not hold: SIGABRT. */
#include <assert.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    (void)argv;
    assert(argc == 7);
    return 0;
}
