/* What every driver of the object store must do: each function is the body of one Criterion test,
 * on an empty store. Programs that use it link common_object. */
#pragma once
#include "common/store/object.h"

/* n bytes that depend on seed alone (xorshift), in a new unlinked file at position 0; its digest.
 */
int object_file(size_t n, unsigned seed, struct object_id *ret_id);
/* Put them; the id. */
struct object_id object_put_seeded(struct object_store *s, size_t n, unsigned seed);
/* The file (all of it) has this digest and size. */
void object_expect_file(int fd, const struct object_id *id, int64_t size);
/* An empty unlinked file. */
int object_empty_file(void);

void object_check_round_trip(struct object_store *s, size_t n);
void object_check_stream(struct object_store *s);
void object_check_sink_is_a_pipe(struct object_store *s);
void object_check_refusals(struct object_store *s);
void object_check_absent(struct object_store *s);
void object_check_ranges(struct object_store *s);
void object_check_parallel(struct object_store *s);
void object_check_list(struct object_store *s);
/* An object goes only when it was last put before the given time. */
void object_check_sweep(struct object_store *s);
/* s was opened with renew_after_s 1: a put that finds an older object makes it young. Takes 3 s. */
void object_check_renew(struct object_store *s);
