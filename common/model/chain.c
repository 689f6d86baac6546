#include "common/model/chain.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sodium.h>

static_assert(CHAIN_HASH == crypto_hash_sha256_BYTES, "SHA-256");
static_assert(sizeof(crypto_hash_sha256_state) <= sizeof((struct chain_digest *)0)->opaque,
              "room for libsodium's state");

static int nibble(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

int chain_unhex(const char *text, uint8_t *out, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        int hi = nibble(text[2 * i]), lo = hi < 0 ? -1 : nibble(text[2 * i + 1]);
        if (lo < 0) {
            return -1;
        }
        out[i] = (uint8_t)(hi << 4 | lo);
    }
    return text[2 * n] == 0 ? 0 : -1;
}

void chain_hex(const uint8_t *bytes, size_t n, char *out_text)
{
    (void)sodium_bin2hex(out_text, 2 * n + 1, bytes, n);
}

int chain_entry(const char *id, const char *canonical, size_t len, uint8_t out[CHAIN_ENTRY])
{
    char hex[2 * CHAIN_ID + 1];
    uint8_t bytes[CHAIN_ID];
    size_t n = 0;
    for (const char *p = id; *p && n < sizeof hex - 1; p++) {
        if (*p != '-') {
            hex[n++] = *p;
        }
    }
    hex[n] = 0;
    if (strlen(id) != 36 || n != sizeof hex - 1 || chain_unhex(hex, bytes, CHAIN_ID) < 0) {
        return -1;
    }
    chain_entry_of(bytes, canonical, len, out);
    return 0;
}

void chain_entry_of(const uint8_t id[CHAIN_ID], const char *canonical, size_t len,
                    uint8_t out[CHAIN_ENTRY])
{
    memcpy(out, id, CHAIN_ID);
    (void)crypto_hash_sha256(out + CHAIN_ID, (const uint8_t *)canonical, len);
}

void chain_seal_hash(const struct chain_seal *s, uint8_t out[CHAIN_HASH])
{
    assert(s->lines > 0 && s->seal > 0);
    char head[256];
    int n = snprintf(head, sizeof head,
                     "brood seal 1\n%s\n%" PRId64 "\n%" PRId64 "\n%" PRId64 "\n%d\n%" PRId64 "\n",
                     s->tenant, s->seal, s->first_pos, s->last_pos, s->lines, s->cost_nanousd);
    n = n < (int)sizeof head ? n : (int)sizeof head - 1; /* a tenant from a table may be any text */
    crypto_hash_sha256_state st;
    (void)crypto_hash_sha256_init(&st);
    (void)crypto_hash_sha256_update(&st, (const uint8_t *)head, (size_t)n);
    (void)crypto_hash_sha256_update(&st, s->prev_hash, CHAIN_HASH);
    (void)crypto_hash_sha256_update(&st, s->content, (size_t)s->lines * CHAIN_ENTRY);
    (void)crypto_hash_sha256_final(&st, out);
}

void chain_digest_init(struct chain_digest *d)
{
    memset(d, 0, sizeof *d);
    (void)crypto_hash_sha256_init((crypto_hash_sha256_state *)(void *)d->opaque);
}

void chain_digest_add(struct chain_digest *d, const uint8_t hash[CHAIN_HASH], int64_t cost_nanousd)
{
    (void)crypto_hash_sha256_update((crypto_hash_sha256_state *)(void *)d->opaque, hash,
                                    CHAIN_HASH);
    d->lines++;
    d->cost_nanousd += cost_nanousd;
}

void chain_digest_end(struct chain_digest *d, uint8_t out[CHAIN_HASH])
{
    (void)crypto_hash_sha256_final((crypto_hash_sha256_state *)(void *)d->opaque, out);
}
