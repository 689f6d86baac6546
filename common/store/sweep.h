/* The books of the sweep of the object store: one row, and the right to sweep. What an object is
 * wanted by is store_objects_wanted (snapshots.h); the rule that makes it safe is in
 * docs/objects.md. */
#pragma once
#include "common/store/object.h"
#include "common/store/pg.h"

struct sweep_view {
    char after[OBJECT_HEX + 1]; /* "": the next pass begins at the first object */
    int64_t passes, rounds, looked, removed, removed_bytes;
    int64_t last_ms; /* UTC; -1: never */
};

/* 1: this connection alone may sweep, until store_sweep_end or its end, and *ret_view is where to
 * go on; 0: another does. */
MUST_CHECK int store_sweep_begin(struct pg *pg, struct sweep_view *ret_view, struct err *err);
struct sweep_pass {
    char after[OBJECT_HEX + 1]; /* "": the end was reached */
    int64_t looked, removed, removed_bytes;
};
/* Add the pass, give the right back. */
MUST_CHECK int store_sweep_end(struct pg *pg, const struct sweep_pass *pass, struct err *err);
/* For whoever looks. */
MUST_CHECK int store_sweep_view(struct pg *pg, struct sweep_view *ret_view, struct err *err);
/* Uploads that have expired, of an object that was deleted. */
MUST_CHECK int store_upload_forget(struct pg *pg, const char *sha256, struct err *err);
