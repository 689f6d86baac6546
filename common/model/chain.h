/* Hashes of the ledger's chain: bytes as docs/billing.md says, so that anybody can compute them.
 * Pure. */
#pragma once
#include <stddef.h>
#include <stdint.h>

#define CHAIN_ID 16
#define CHAIN_HASH 32
#define CHAIN_ENTRY (CHAIN_ID + CHAIN_HASH)

struct chain_seal {
    const char *tenant;
    int64_t seal; /* from 1 */
    int64_t first_pos, last_pos;
    int lines;
    int64_t cost_nanousd;
    const uint8_t *content;        /* lines x CHAIN_ENTRY */
    uint8_t prev_hash[CHAIN_HASH]; /* zero for the first */
};

/* One line's entry: the bytes of its UUID and the SHA-256 of its canonical form. -1: id is none. */
int chain_entry(const char *id, const char *canonical, size_t len, uint8_t out[CHAIN_ENTRY]);
/* The same of an id that is bytes. */
void chain_entry_of(const uint8_t id[CHAIN_ID], const char *canonical, size_t len,
                    uint8_t out[CHAIN_ENTRY]);
/* SHA-256 over "brood seal 1\n" tenant "\n" seal "\n" first_pos "\n" last_pos "\n" lines "\n" cost
 * "\n", then prev_hash, then content. */
void chain_seal_hash(const struct chain_seal *s, uint8_t out[CHAIN_HASH]);
/* hex of exactly n bytes; -1 when it is not. out_text has room for 2 n + 1. */
int chain_unhex(const char *text, uint8_t *out, size_t n);
void chain_hex(const uint8_t *bytes, size_t n, char *out_text);

/* A running SHA-256 over the hashes of entries: a month's digest. */
struct chain_digest {
    uint64_t opaque[16]; /* crypto_hash_sha256_state */
    int64_t lines, cost_nanousd;
};
void chain_digest_init(struct chain_digest *d);
void chain_digest_add(struct chain_digest *d, const uint8_t hash[CHAIN_HASH], int64_t cost_nanousd);
void chain_digest_end(struct chain_digest *d, uint8_t out[CHAIN_HASH]);
