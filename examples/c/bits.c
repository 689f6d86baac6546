/* Counting bits, rotating, swapping bytes: no library but printf. */
#include <stdint.h>
#include <stdio.h>

static int count(uint64_t x)
{
    int n = 0;
    for (; x; x &= x - 1) {
        n++;
    }
    return n;
}

static uint32_t rotate(uint32_t x, int by)
{
    return x << by | x >> (32 - by);
}

static uint32_t swap(uint32_t x)
{
    return x >> 24 | (x >> 8 & 0xff00) | (x << 8 & 0xff0000) | x << 24;
}

int main(void)
{
    printf("%d %d %d\n", count(0), count(UINT64_MAX), count(0x123456789abcdefu));
    printf("%08x %08x\n", rotate(0x80000001u, 4), swap(0x01020304u));
    for (uint32_t x = 1, i = 0; i < 5; i++) {
        x ^= x << 13;
        x ^= x >> 17;
        x ^= x << 5;
        printf("%u%c", x, i < 4 ? ' ' : '\n');
    }
    return 0;
}
