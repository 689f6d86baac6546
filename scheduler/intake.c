/* Intake: entries of the stream become rows, or are refused with the field and the rule.
 *
 * Whose fault a failure is decides what happens. The entry's (malformed, unknown template, a value
 * the database cannot hold): it alone is refused. A server's: the whole turn is given up, the
 * entries stay pending and are taken again. */
#include <assert.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/secret_key.h"
#include "common/model/secrets.h"
#include "scheduler/pick.h"
#include "common/store/snapshots.h"
#include "scheduler/scheduler.h"

#define INTAKE_BYTES_MAX (64 << 20) /* taken at once, about */

/* A valid entry on its way into the database. */
struct candidate {
    const struct intake_entry *entry;
    struct job_spec *spec;
    char tenant[JOB_TENANT_MAX + 1];
    struct id id;
};

struct id scheduler_job_id(const char *stream_id, const uint8_t spec_hash[32])
{
    static const char hex[] = "0123456789abcdef";
    char hash[65];
    for (int i = 0; i < 32; i++) {
        hash[2 * i] = hex[spec_hash[i] >> 4];
        hash[2 * i + 1] = hex[spec_hash[i] & 15];
    }
    hash[64] = 0;
    const char *parts[] = { "intake", stream_id, hash };
    struct id rest = id_derive(parts, 3), id;
    char *end;
    unsigned long long ms = strtoull(stream_id, &end, 10);
    unsigned long long seq = *end == '-' ? strtoull(end + 1, NULL, 10) : 0;
    seq = seq > 0xfff ? 0xfff : seq;
    /* version 7: 48 bits of time, 12 of order, variant and 62 bits of the hash; the tail is 5
     * groups' last two */
    (void)snprintf(id.text, sizeof id.text, "%08llx-%04llx-7%03llx-%.17s", (ms >> 16) & 0xffffffff,
                   ms & 0xffff, seq, rest.text + 19);
    assert(id_valid(id.text));
    return id;
}

static int seal(const struct scheduler *s, struct job_spec *spec, const char *tenant,
                struct err *err)
{
    uint8_t key[SECRET_KEY_BYTES];
    int rc = secret_key_load(s->config, true, key, err);
    if (rc < 0) {
        err->code = ERR_UNAVAILABLE; /* not the entry's fault, whatever it is */
        return -ERR_UNAVAILABLE;
    }
    rc = secrets_seal(spec, key, tenant, err);
    sodium_memzero(key, sizeof key);
    return rc;
}

static int check(struct scheduler *s, const struct intake_entry *e, struct candidate *c,
                 struct err *err)
{
    if (!e->job) {
        return err_set(err, ERR_INVALID, "job: the entry has no field of that name");
    }
    const char *tenant = e->tenant[0] ? e->tenant : s->config->tenant_default;
    if (!job_tenant_ok(tenant)) {
        return err_set(err, ERR_INVALID, "tenant: must match [a-z0-9][a-z0-9_-]{0,63}");
    }
    if (e->batch[0] && !id_valid(e->batch)) {
        return err_set(err, ERR_INVALID, "batch: must be a UUID, lower case, 8-4-4-4-12");
    }
    if (e->seq < 0) {
        return err_set(err, ERR_INVALID, "seq: must be a whole number from 0 to %d", INT32_MAX);
    }
    int rc = job_parse(e->job, e->job_len, &c->spec, err);
    if (rc < 0) {
        return rc;
    }
    struct template_info t;
    rc = scheduler_template(s, tenant, c->spec->template_name, &t, err);
    rc = rc < 0 ? rc : job_check_template(c->spec, &t, err);
    rc = rc < 0 ? rc : store_job_check(&s->pg, tenant, c->spec, err);
    if (rc < 0) {
        return rc;
    }
    if (c->spec->n_secrets > 0 && (rc = seal(s, c->spec, tenant, err)) < 0) {
        return rc;
    }
    uint8_t hash[32];
    job_spec_hash(c->spec, hash);
    c->id = scheduler_job_id(e->stream_id, hash);
    c->entry = e;
    memcpy(c->tenant, tenant, strlen(tenant) + 1);
    return 0;
}

/* The entry is at fault, not a server. */
static bool entry_fault(int rc)
{
    return err_fault(-rc) == FAULT_USER;
}

static int reject(struct scheduler *s, const struct intake_entry *e, const struct err *why,
                  struct err *err)
{
    int rc = queue_intake_reject(&s->queue, e, why, err);
    if (rc < 0) {
        return rc;
    }
    log_info("intake refused", "entry", e->stream_id, "tenant", e->tenant, "error",
             err_word(why->code), "reason", why->text);
    s->n_rejected++;
    return 0;
}

static int by_group(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    int d = strcmp(x->tenant, y->tenant);
    d = d ? d : strcmp(x->entry->batch, y->entry->batch);
    return d                     ? d
           : x->entry < y->entry ? -1
                                 : x->entry > y->entry; /* one array: the order of arrival */
}

/* n candidates of one tenant and batch. */
static int submit(struct scheduler *s, const struct candidate *c, int n, struct err *err)
{
    cleanup_free struct submit_item *items = calloc((size_t)n, sizeof *items);
    if (!items) {
        abort();
    }
    for (int i = 0; i < n; i++) {
        items[i].spec = c[i].spec;
        items[i].id = c[i].id.text;
        items[i].seq = c[i].entry->seq;
    }
    const char *batch = c->entry->batch[0] ? c->entry->batch : NULL;
    struct err why;
    int rc = store_submit(&s->pg, c->tenant, batch, NULL, -1, items, n, false, &why);
    if (rc < 0 && entry_fault(rc) && n > 1) { /* which one is it? */
        for (int i = 0; i < n; i++) {
            if ((rc = submit(s, c + i, 1, err)) < 0) {
                return rc;
            }
        }
        return 0;
    }
    if (rc < 0 && entry_fault(rc)) {
        return reject(s, c->entry, &why, err);
    }
    if (rc < 0) {
        *err = why;
        return rc;
    }
    for (int i = 0; i < n; i++) {
        if (items[i].ret_error.code) {
            if ((rc = reject(s, c[i].entry, &items[i].ret_error, err)) < 0) {
                return rc;
            }
        } else {
            s->n_submitted++;
            if (!items[i].ret_duplicate) {
                scheduler_announce(s, c[i].tenant, c[i].spec->priority, 1);
            }
        }
    }
    return 0;
}

/* Work came, or was done: both may make something ready. */
static void take_note(struct scheduler *s, const struct intake_entry *e)
{
    const struct intake_note *note = &e->note;
    if (e->done) {
        if (note->tenant[0] && note->jobs > 0) {
            pick_done(s->pick, note->tenant, note->priority, note->jobs, note->slot_us);
        }
    } else if (note->tenant[0] && note->jobs > 0) {
        scheduler_announce(s, note->tenant, note->priority, note->jobs);
    } else {
        s->counts_at_ms = 0; /* whose it is has to be counted */
    }
    s->announced = true;
}

static int process(struct scheduler *s, const struct intake_entry *entries, int n,
                   struct candidate *c, int *n_c, struct err *err)
{
    for (int i = 0; i < n; i++) {
        if (!entries[i].job && (entries[i].wake || entries[i].done)) {
            take_note(s, &entries[i]);
            continue;
        }
        struct err why;
        int rc = check(s, &entries[i], &c[*n_c], &why);
        if (rc == 0) {
            (*n_c)++;
            continue;
        }
        job_spec_free(TAKE_PTR(c[*n_c].spec));
        if (!entry_fault(rc)) {
            *err = why;
            return rc;
        }
        if ((rc = reject(s, &entries[i], &why, err)) < 0) {
            return rc;
        }
    }
    qsort(c, (size_t)*n_c, sizeof *c, by_group);
    for (int i = 0, j; i < *n_c; i = j) {
        for (j = i + 1; j < *n_c && strcmp(c[i].tenant, c[j].tenant) == 0 &&
                        strcmp(c[i].entry->batch, c[j].entry->batch) == 0;
             j++) {
        }
        int rc = submit(s, c + i, j - i, err);
        if (rc < 0) {
            return rc;
        }
        s->announced = true;
    }
    return 0;
}

int scheduler_intake(struct scheduler *s, int64_t block_ms, struct intake_taken *ret_taken,
                     struct err *err)
{
    int max = (int)s->config->sched_intake_batch_max;
    struct intake_entry *entries = calloc((size_t)max, sizeof *entries);
    cleanup_free struct candidate *c = calloc((size_t)max, sizeof *c);
    if (!entries || !c) {
        abort();
    }
    /* One who led and was stopped while it waited for entries was given one more. */
    if (mono_ms() >= s->recover_at_ms) {
        s->recover = true;
        s->recover_at_ms = mono_ms() + SCHED_RECOVER_MS;
    }
    int n = queue_intake_read(&s->queue, SCHED_CONSUMER, s->recover, max, INTAKE_BYTES_MAX,
                              s->recover ? 0 : block_ms, entries, err);
    if (n < 0) {
        free(entries);
        s->recover = true; /* a lost reply may have carried entries */
        return n;
    }
    if (n == 0) {
        s->recover = false;
    }
    int n_c = 0;
    int rc = process(s, entries, n, c, &n_c, err);
    for (int i = 0; i < n_c; i++) {
        job_spec_free(c[i].spec);
    }
    *ret_taken = (struct intake_taken){ .entries = entries, .n = n };
    if (rc < 0) {
        s->recover = true;
        intake_entries_done(entries, n);
        free(entries);
        *ret_taken = (struct intake_taken){ .n = 0 };
    }
    return rc;
}

int scheduler_intake_done(struct scheduler *s, struct intake_taken *taken, struct err *err)
{
    int rc = taken->n > 0 ? queue_intake_ack(&s->queue, taken->entries, taken->n, err) : 0;
    if (rc < 0) {
        s->recover = true; /* taken again, found to be there, acknowledged then */
    }
    intake_entries_done(taken->entries, taken->n);
    free(taken->entries);
    *taken = (struct intake_taken){ .n = 0 };
    return rc;
}
