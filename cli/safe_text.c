#include "cli/safe_text.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <jansson.h>

static bool utf8(const char *data, size_t len)
{
    json_t *v = json_stringn(len ? data : "", len);
    json_decref(v);
    return v != NULL;
}

void safe_text(char *out, size_t room, const char *data, size_t len)
{
    bool text = utf8(data, len);
    size_t used = 0;
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)data[i];
        /* U+0080 to U+009F are control characters too: C2 80 to C2 9F */
        bool c1 = (c == 0xc2 && i + 1 < len && (unsigned char)data[i + 1] < 0xa0) ||
                  (c < 0xa0 && i > 0 && (unsigned char)data[i - 1] == 0xc2 && c >= 0x80);
        bool plain = c >= 0x20 && c != 0x7f && !c1 && (c < 0x80 || text);
        char one[8];
        (void)snprintf(one, sizeof one, plain ? "%c" : "\\x%02x", c);
        size_t n = strlen(one);
        if (used + n >= room) {
            break;
        }
        memcpy(out + used, one, n);
        used += n;
    }
    out[used] = 0;
}
