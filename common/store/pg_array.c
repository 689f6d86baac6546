#include "common/store/pg_array.h"

#include <arpa/inet.h>
#include <assert.h>
#include <endian.h>
#include <string.h>

#define HEAD_WORDS 5

void pg_array_init(struct pg_array *a, enum pg_element type)
{
    static const uint32_t room[HEAD_WORDS];
    *a = (struct pg_array){ .type = type };
    buf_init(&a->b, PG_ARRAY_BYTES_MAX);
    int rc = buf_add(&a->b, room, sizeof room, NULL); /* filled by pg_add_array */
    assert(rc == 0);
    (void)rc;
}

void pg_array_done(struct pg_array *a)
{
    buf_done(&a->b);
}

int pg_array_add(struct pg_array *a, const void *data, size_t len, struct err *err)
{
    bool null = !data && !(a->type == PG_BYTEA && len == 0);
    assert(len <= INT32_MAX);
    uint32_t n = htonl(null ? UINT32_MAX : (uint32_t)len);
    int rc = buf_add(&a->b, &n, sizeof n, err);
    rc = rc < 0 || null || len == 0 ? rc : buf_add(&a->b, data, len, err);
    if (rc < 0) {
        return rc;
    }
    a->has_null = a->has_null || null;
    a->n++;
    return 0;
}

int pg_array_add_text(struct pg_array *a, const char *text, struct err *err)
{
    assert(a->type == PG_TEXT);
    return pg_array_add(a, text, text ? strlen(text) : 0, err);
}

int pg_array_add_int(struct pg_array *a, int64_t value, struct err *err)
{
    if (a->type == PG_INT4) {
        assert(value >= INT32_MIN && value <= INT32_MAX);
        uint32_t v = htonl((uint32_t)(int32_t)value);
        return pg_array_add(a, &v, sizeof v, err);
    }
    assert(a->type == PG_INT8);
    uint64_t v = htobe64((uint64_t)value);
    return pg_array_add(a, &v, sizeof v, err);
}

int pg_array_add_uuid(struct pg_array *a, const char *text, struct err *err)
{
    uint8_t id[ID_BYTES];
    assert(a->type == PG_UUID);
    pg_uuid_bytes(text, id);
    return pg_array_add(a, id, sizeof id, err);
}

void pg_add_array(struct pg_params *p, struct pg_array *a)
{
    const uint32_t head[HEAD_WORDS] = { htonl(a->n > 0 ? 1 : 0), htonl(a->has_null ? 1 : 0),
                                        htonl((uint32_t)a->type), htonl((uint32_t)a->n), htonl(1) };
    memcpy(a->b.data, head, sizeof head);
    /* An array without values has no dimension. */
    pg_add_bytes(p, a->b.data, a->n > 0 ? a->b.len : 3 * sizeof head[0]);
}

void pg_uuid_bytes(const char *text, uint8_t out[ID_BYTES])
{
    int n = 0;
    for (const char *p = text; *p && n < 32; p++) {
        if (*p == '-') {
            continue;
        }
        int d = *p <= '9' ? *p - '0' : *p - 'a' + 10;
        out[n / 2] = (uint8_t)(n % 2 ? out[n / 2] | d : d << 4);
        n++;
    }
    assert(n == 32);
}
