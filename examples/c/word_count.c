/* Lines, words and bytes of stdin, like wc; then the longest word. */
#include <stdio.h>
#include <string.h>

int main(void)
{
    char word[256] = "", longest[256] = "";
    size_t lines = 0, words = 0, bytes = 0, n = 0;
    int c;
    while ((c = getchar()) != EOF) {
        bytes++;
        lines += c == '\n';
        if (c == ' ' || c == '\n' || c == '\t') {
            n = 0;
            continue;
        }
        words += n == 0;
        if (n + 1 < sizeof word) {
            word[n++] = (char)c;
            word[n] = '\0';
        }
        if (n > strlen(longest)) {
            memcpy(longest, word, n + 1);
        }
    }
    printf("%zu %zu %zu %s\n", lines, words, bytes, longest);
    return 0;
}
