#include "common/base/id.h"

#include <assert.h>
#include <ctype.h>
#include <pthread.h>
#include <string.h>
#include <sodium.h>

#include "common/base/clock.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t last; /* milliseconds << 12 | counter */

struct id id_of_bytes(const uint8_t b[ID_BYTES])
{
    static const char digits[] = "0123456789abcdef";
    struct id id;
    char *p = id.text;
    for (int i = 0; i < 16; i++) {
        if (i == 4 || i == 6 || i == 8 || i == 10) {
            *p++ = '-';
        }
        *p++ = digits[b[i] >> 4];
        *p++ = digits[b[i] & 0x0f];
    }
    *p++ = 0;
    assert(p == id.text + sizeof id.text);
    return id;
}

struct id id_new(void)
{
    uint8_t b[16];
    randombytes_buf(b, sizeof b);
    uint64_t stamp = ((uint64_t)wall_ms() << 12) | ((uint64_t)(b[6] & 0x03) << 8) | b[7];
    (void)pthread_mutex_lock(&lock);
    if (stamp <= last) {
        stamp = last + 1;
    }
    last = stamp;
    (void)pthread_mutex_unlock(&lock);
    uint64_t ms = stamp >> 12;
    for (int i = 0; i < 6; i++) {
        b[i] = (uint8_t)(ms >> (40 - 8 * i));
    }
    b[6] = (uint8_t)(0x70 | ((stamp >> 8) & 0x0f));
    b[7] = (uint8_t)stamp;
    b[8] = (uint8_t)(0x80 | (b[8] & 0x3f));
    return id_of_bytes(b);
}

bool id_valid(const char *text)
{
    for (int i = 0; i < 36; i++) {
        char c = text[i];
        bool dash = i == 8 || i == 13 || i == 18 || i == 23;
        if (dash ? c != '-' : !((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'))) {
            return false;
        }
    }
    return text[36] == 0;
}

struct id id_derive(const char *const *parts, int n_parts)
{
    assert(n_parts > 0);
    crypto_generichash_state st;
    uint8_t b[16];
    (void)crypto_generichash_init(&st, NULL, 0, sizeof b);
    for (int i = 0; i < n_parts; i++) {
        (void)crypto_generichash_update(&st, (const uint8_t *)parts[i], strlen(parts[i]) + 1);
    }
    (void)crypto_generichash_final(&st, b, sizeof b);
    b[6] = (uint8_t)(0x80 | (b[6] & 0x0f));
    b[8] = (uint8_t)(0x80 | (b[8] & 0x3f));
    return id_of_bytes(b);
}
