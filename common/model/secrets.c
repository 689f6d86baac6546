#include "common/model/secrets.h"

#include <assert.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/model/job_part.h"

#define NONCE_BYTES crypto_aead_xchacha20poly1305_ietf_NPUBBYTES
#define TAG_BYTES crypto_aead_xchacha20poly1305_ietf_ABYTES
#define SEALED_BYTES_MAX (NONCE_BYTES + JOB_SECRETS_BYTES_MAX + TAG_BYTES)
#define SEALED_TEXT_MAX                                                                            \
    sodium_base64_ENCODED_LEN(SEALED_BYTES_MAX, sodium_base64_VARIANT_ORIGINAL) /* NUL included */
#define DATA_BYTES_MAX (32 + JOB_TENANT_MAX + JOB_SECRETS_BYTES_MAX)

static const char *const sealed_fields[] = { "sealed", NULL };

/* ---- reading ---- */

static bool taken(const struct job_pair *env, int n, const char *key)
{
    for (int i = 0; i < n; i++) {
        if (strcmp(env[i].key, key) == 0) {
            return true;
        }
    }
    return false;
}

static bool taken_below(const struct job_branch *branches, int n, const char *key)
{
    for (int i = 0; i < n; i++) {
        if (taken(branches[i].env, branches[i].n_env, key) ||
            taken_below(branches[i].branches, branches[i].n_branches, key)) {
            return true;
        }
    }
    return false;
}

static int read_value(const json_t *value, const char *at, struct job_spec *spec,
                      struct job_pair *p, struct err *err)
{
    bool sealed = json_is_object(value);
    if (spec->n_secrets > 1 && sealed != spec->secrets_sealed) {
        return err_set(err, ERR_INVALID, "secrets: either all are sealed or none is");
    }
    spec->secrets_sealed = sealed;
    if (!sealed) {
        return jr_string(value, at, 0, JOB_SECRETS_BYTES_MAX, JR_NO_NUL, &p->value, err);
    }
    char sub[JR_PATH_MAX];
    job_field(sub, at, "sealed");
    int rc = jr_object(value, at, sealed_fields, err);
    return rc < 0 ? rc
                  : jr_string(json_object_get(value, "sealed"), sub, 1, SEALED_TEXT_MAX,
                              JR_PRINTABLE, &p->value, err);
}

static bool keeps(const struct job_branch *branches, int n)
{
    for (int i = 0; i < n; i++) {
        if (branches[i].keep.name || keeps(branches[i].branches, branches[i].n_branches)) {
            return true;
        }
    }
    return false;
}

int job_read_secrets(const json_t *v, struct job_spec *spec, struct err *err)
{
    if (!v) {
        return 0;
    }
    if (!json_is_object(v)) {
        return err_set(err, ERR_INVALID, "secrets: must be an object of strings");
    }
    size_t n = json_object_size(v), bytes = 0;
    if (n > JOB_SECRETS_MAX) {
        return err_set(err, ERR_TOO_LARGE, "secrets: %zu variables; at most %d", n,
                       JOB_SECRETS_MAX);
    }
    spec->secrets = job_new_array(n, sizeof *spec->secrets);
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)v, key, value)
    {
        char shown[JR_PATH_MAX], sub[JR_PATH_MAX];
        jr_printable(shown, key);
        job_field(sub, "secrets", shown);
        if (!*key || (key[0] >= '0' && key[0] <= '9') || !job_word_chars(key, "")) {
            return err_set(err, ERR_INVALID,
                           "%s: a variable's name is letters, digits and _, no digit first", sub);
        }
        if (taken(spec->env, spec->n_env, key) ||
            taken_below(spec->branches, spec->n_branches, key)) {
            return err_set(err, ERR_INVALID, "%s: env has a variable of that name", sub);
        }
        struct job_pair *p = &spec->secrets[spec->n_secrets++];
        p->key = jr_dup(key, strlen(key));
        int rc = read_value(value, sub, spec, p, err);
        if (rc < 0) {
            return rc;
        }
        bytes += strlen(key) + 2 + (spec->secrets_sealed ? 0 : strlen(p->value));
        if (bytes > JOB_SECRETS_BYTES_MAX) {
            return err_set(err, ERR_TOO_LARGE, "secrets: more than %d bytes in all",
                           JOB_SECRETS_BYTES_MAX);
        }
    }
    if (spec->n_secrets > 0 && (spec->keep.name || keeps(spec->branches, spec->n_branches))) {
        return err_set(err, ERR_INVALID,
                       "secrets: not together with keep: a state that is kept would hold them");
    }
    if (spec->n_secrets > 0 && spec->isolation == ISOLATION_SHARED) {
        return err_set(err, ERR_INVALID,
                       "secrets: not together with isolation shared: other runs follow in the same "
                       "machine");
    }
    return 0;
}

void job_free_secrets(struct job_spec *spec)
{
    for (int i = 0; i < spec->n_secrets; i++) {
        if (spec->secrets[i].value) {
            sodium_memzero(spec->secrets[i].value, strlen(spec->secrets[i].value));
        }
        free(spec->secrets[i].key);
        free(spec->secrets[i].value);
    }
    free(spec->secrets);
}

/* ---- sealing ---- */

struct keys {
    uint8_t nonce[32], cipher[crypto_aead_xchacha20poly1305_ietf_KEYBYTES];
};

static void derive(const uint8_t key[SECRET_KEY_BYTES], struct keys *k)
{
    static const uint8_t nonce[] = "brood secrets 1 nonce", cipher[] = "brood secrets 1 cipher";
    (void)crypto_generichash(k->nonce, sizeof k->nonce, nonce, sizeof nonce, key, SECRET_KEY_BYTES);
    (void)crypto_generichash(k->cipher, sizeof k->cipher, cipher, sizeof cipher, key,
                             SECRET_KEY_BYTES);
}

/* Whose and which it is: tenant and name, each ended by NUL. */
static size_t data_of(char out[DATA_BYTES_MAX], const char *tenant, const char *name)
{
    int n = snprintf(out, DATA_BYTES_MAX, "%s%c%s", tenant, 0, name);
    assert(n > 0 && n < DATA_BYTES_MAX);
    return (size_t)n + 1;
}

static void seal_value(const struct keys *k, const char *tenant, const char *name,
                       const char *value, char out[SEALED_TEXT_MAX])
{
    uint8_t sealed[SEALED_BYTES_MAX];
    char data[DATA_BYTES_MAX];
    size_t data_n = data_of(data, tenant, name), n = strlen(value);
    unsigned long long cipher_n;
    crypto_generichash_state h;
    assert(n <= JOB_SECRETS_BYTES_MAX);
    (void)crypto_generichash_init(&h, k->nonce, sizeof k->nonce, NONCE_BYTES);
    (void)crypto_generichash_update(&h, (const uint8_t *)data, data_n);
    (void)crypto_generichash_update(&h, (const uint8_t *)value, n);
    (void)crypto_generichash_final(&h, sealed, NONCE_BYTES);
    (void)crypto_aead_xchacha20poly1305_ietf_encrypt(
        sealed + NONCE_BYTES, &cipher_n, (const uint8_t *)value, n, (const uint8_t *)data, data_n,
        NULL, sealed, k->cipher);
    (void)sodium_bin2base64(out, SEALED_TEXT_MAX, sealed, NONCE_BYTES + cipher_n,
                            sodium_base64_VARIANT_ORIGINAL);
}

int secrets_seal(struct job_spec *spec, const uint8_t key[SECRET_KEY_BYTES], const char *tenant,
                 struct err *err)
{
    if (spec->n_secrets == 0 || spec->secrets_sealed) {
        return 0;
    }
    cleanup_json json_t *root = NULL;
    int rc = jr_load(spec->canonical, spec->canonical_len, &root, err);
    if (rc < 0) {
        return rc;
    }
    struct keys k;
    derive(key, &k);
    json_t *values = json_object_get(root, "secrets");
    for (int i = 0; i < spec->n_secrets; i++) {
        struct job_pair *p = &spec->secrets[i];
        char text[SEALED_TEXT_MAX];
        seal_value(&k, tenant, p->key, p->value, text);
        (void)json_object_set_new(values, p->key, json_pack("{s:s}", "sealed", text));
        sodium_memzero(p->value, strlen(p->value));
        free(p->value);
        p->value = jr_dup(text, strlen(text));
    }
    sodium_memzero(&k, sizeof k);
    spec->secrets_sealed = true;
    sodium_memzero(spec->canonical, spec->canonical_len);
    free(spec->canonical);
    spec->canonical = NULL;
    return job_set_canonical(root, spec, err);
}

/* The plain value, malloc'ed; NULL when it is not one. */
static char *open_value(const struct keys *k, const char *tenant, const char *name,
                        const char *text)
{
    uint8_t sealed[SEALED_BYTES_MAX];
    char data[DATA_BYTES_MAX];
    size_t n, data_n = data_of(data, tenant, name);
    unsigned long long plain_n;
    if (sodium_base642bin(sealed, sizeof sealed, text, strlen(text), NULL, &n, NULL,
                          sodium_base64_VARIANT_ORIGINAL) < 0 ||
        n < NONCE_BYTES + TAG_BYTES) {
        return NULL;
    }
    char *plain = job_new_array(n, 1);
    if (crypto_aead_xchacha20poly1305_ietf_decrypt(
            (uint8_t *)plain, &plain_n, NULL, sealed + NONCE_BYTES, n - NONCE_BYTES,
            (const uint8_t *)data, data_n, sealed, k->cipher) < 0) {
        free(plain);
        return NULL;
    }
    plain[plain_n] = 0;
    return plain;
}

int secrets_open(struct job_spec *spec, const uint8_t key[SECRET_KEY_BYTES], const char *tenant,
                 struct err *err)
{
    if (spec->n_secrets == 0 || !spec->secrets_sealed) {
        return 0;
    }
    struct keys k;
    derive(key, &k);
    size_t bytes = 0;
    int rc = 0;
    for (int i = 0; i < spec->n_secrets && rc == 0; i++) {
        struct job_pair *p = &spec->secrets[i];
        char *plain = open_value(&k, tenant, p->key, p->value);
        if (!plain) {
            rc = err_set(err, ERR_INVALID,
                         "secrets.%.60s: was not sealed here for this tenant under this name",
                         p->key);
            break;
        }
        free(p->value);
        p->value = plain;
        bytes += strlen(p->key) + 2 + strlen(plain);
        if (bytes > JOB_SECRETS_BYTES_MAX) {
            rc = err_set(err, ERR_TOO_LARGE, "secrets: more than %d bytes in all",
                         JOB_SECRETS_BYTES_MAX);
        }
    }
    sodium_memzero(&k, sizeof k);
    spec->secrets_sealed = rc != 0;
    return rc;
}
