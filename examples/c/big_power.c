/* 2^n in full, with an array of decimal digits. */
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    unsigned char digit[1000] = { 1 };
    int len = 1, n = argc > 1 ? (int)strtol(argv[1], NULL, 10) : 10;
    for (int i = 0; i < n; i++) {
        int carry = 0;
        for (int k = 0; k < len; k++) {
            int v = digit[k] * 2 + carry;
            digit[k] = (unsigned char)(v % 10);
            carry = v / 10;
        }
        if (carry && len < (int)sizeof digit) {
            digit[len++] = (unsigned char)carry;
        }
    }
    while (len--) {
        putchar('0' + digit[len]);
    }
    putchar('\n');
    return 0;
}
