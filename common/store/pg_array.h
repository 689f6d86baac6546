/* Inside common/store only: a column of values as one parameter, in Postgres' binary array format.
 *
 * Many rows then go to the server as one statement with unnest(), which costs a fraction of a
 * statement a row. Life: init with the element type, add n values, hand over by pg_add_array, done
 * after the statement was sent. Source: array_recv() in Postgres' arrayfuncs.c: dimensions, flags,
 * element type, then length and lower bound of the dimension, then each value behind its length. */
#pragma once
#include "common/base/id.h"
#include "common/store/pg_internal.h"

/* Element types: their OIDs are fixed (pg_type.dat). */
enum pg_element {
    PG_BYTEA = 17,
    PG_INT8 = 20,
    PG_INT4 = 23,
    PG_TEXT = 25,
    PG_UUID = 2950,
};

#define PG_ARRAY_BYTES_MAX (512u << 20)

struct pg_array {
    struct buf b;
    enum pg_element type;
    int n;
    bool has_null;
};

void pg_array_init(struct pg_array *a, enum pg_element type);
void pg_array_done(struct pg_array *a);
/* data NULL: SQL NULL, unless len is 0 and the type is bytea (an empty value). -ERR_TOO_LARGE
 * beyond PG_ARRAY_BYTES_MAX. */
MUST_CHECK int pg_array_add(struct pg_array *a, const void *data, size_t len, struct err *err);
MUST_CHECK int pg_array_add_text(struct pg_array *a, const char *text, struct err *err);
/* Of an int4 or int8 array; the value must fit (asserted). */
MUST_CHECK int pg_array_add_int(struct pg_array *a, int64_t value, struct err *err);
MUST_CHECK int pg_array_add_uuid(struct pg_array *a, const char *text, struct err *err);
/* The next parameter; a must live until the statement was sent and gets no more values. */
void pg_add_array(struct pg_params *p, struct pg_array *a);

/* A valid id (id_valid) as Postgres' 16 bytes. */
void pg_uuid_bytes(const char *text, uint8_t out[ID_BYTES]);
