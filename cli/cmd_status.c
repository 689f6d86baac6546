/* brood status: processes, queue, workers, pool, the latest batch. Answers as far as it can when
 * parts are down. */
#include <stdlib.h>
#include <string.h>
#include <jansson.h>

#include "cli/cli.h"
#include "cli/money.h"
#include "cli/poolclient.h"
#include "cli/proc.h"
#include "cli/progress.h"
#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/store/jobs.h"
#include "common/store/leader.h"
#include "common/store/ledger.h"
#include "common/store/sweep.h"
#include "common/store/tenants.h"

#define WORKERS_MAX 256
#define TENANTS_MAX 200
#define TENANTS_SHOWN 12
#define UNSEALED_SHOWN 100000
#define LAG_SHOWN_MS 10000 /* a lag that is worth a line */
#define POOL_TIMEOUT_MS 2000

static const struct argp argp = {
    .parser = cli_parse_key,
    .doc = "What runs, what waits, what the pool holds. Exit status 3 when Redis, Postgres or "
           "vmpool does not answer.\v"
           "Examples:\n"
           "  brood status\n"
           "  brood status --json | jq .queue\n",
    .children = cli_globals,
};

/* One pass fills the JSON object; the text is printed from it. */
struct report {
    const struct cli *cli;
    json_t *root;
    bool down;
};

static void fault(struct report *r, const char *part, const struct err *err)
{
    r->down = true;
    (void)json_object_set_new(r->root, part, json_pack("{s:s}", "error", err->text));
}

static void add_processes(struct report *r)
{
    static struct proc_record rows[PROC_RECORDS_MAX];
    int n = proc_records(r->cli->config.run_dir, rows, PROC_RECORDS_MAX);
    json_t *list = json_array();
    for (int i = 0; i < n; i++) {
        (void)json_array_append_new(
            list, json_pack("{s:s, s:i}", "name", rows[i].name, "pid", (int)rows[i].pid));
    }
    (void)json_object_set_new(r->root, "processes", list);
}

static void add_tenants(struct report *r, struct pg *pg)
{
    static struct activity_row rows[TENANTS_MAX];
    struct err err;
    int n = store_activity(pg, TENANTS_MAX, rows, &err);
    if (n < 0) {
        fault(r, "tenants", &err);
        return;
    }
    json_t *list = json_array();
    for (int i = 0; i < n; i++) {
        const struct activity_row *t = &rows[i];
        (void)json_array_append_new(
            list, json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:b}", "tenant",
                            t->tenant, "weight", (json_int_t)t->weight, "high",
                            (json_int_t)t->waiting[PRIORITY_HIGH], "normal",
                            (json_int_t)t->waiting[PRIORITY_NORMAL], "bulk",
                            (json_int_t)t->waiting[PRIORITY_BULK], "in_flight",
                            (json_int_t)t->in_flight, "jobs_per_minute",
                            (json_int_t)t->jobs_per_minute, "slot_ms", (json_int_t)t->slot_ms,
                            "share", t->share_milli / 1000.0, "stopped", t->stopped));
    }
    (void)json_object_set_new(r->root, "tenants", list);
}

static json_t *age(int64_t ms)
{
    return ms < 0 ? json_null() : json_integer(ms);
}

/* Who has the say among the schedulers; what lags behind: intake that is not in Postgres yet
 * (add_redis), usage lines that no seal covers. */
static void add_leader(struct report *r, struct pg *pg)
{
    struct err err;
    struct leader_view v;
    int64_t lines, oldest_ms;
    if (store_leader(pg, &v, &err) < 0) {
        fault(r, "leader", &err);
        return;
    }
    (void)json_object_set_new(r->root, "leader",
                              json_pack("{s:s, s:o, s:i}", "scheduler", v.who, "since_ms",
                                        age(v.since_ms), "standing_by", v.waiting));
    json_t *lag = json_object_get(r->root, "lag");
    if (store_unsealed(pg, UNSEALED_SHOWN, &lines, &oldest_ms, &err) < 0) {
        fault(r, "leader", &err);
        return;
    }
    (void)json_object_set_new(lag, "unsealed_lines", json_integer(lines));
    (void)json_object_set_new(lag, "unsealed_ms", age(oldest_ms));
}

static void add_sweep(struct report *r, struct pg *pg)
{
    struct err err;
    struct sweep_view v;
    if (store_sweep_view(pg, &v, &err) < 0) {
        fault(r, "objects", &err);
        return;
    }
    (void)json_object_set_new(
        r->root, "objects",
        json_pack("{s:I, s:I, s:I, s:I, s:I, s:o}", "sweep_passes", (json_int_t)v.passes,
                  "sweep_rounds", (json_int_t)v.rounds, "looked_at", (json_int_t)v.looked,
                  "removed", (json_int_t)v.removed, "removed_bytes", (json_int_t)v.removed_bytes,
                  "last_sweep_ms",
                  v.last_ms < 0 ? json_null() : json_integer(wall_ms() - v.last_ms)));
}

static void add_postgres(struct report *r)
{
    struct err err;
    struct queue_counts q;
    struct id batch;
    struct batch_counts b;
    cleanup_pg struct pg pg = { 0 };
    if (cli_open_pg(r->cli, &pg, &err) < 0 || store_queue_counts(&pg, &q, &err) < 0) {
        fault(r, "queue", &err);
        return;
    }
    json_t *queue = json_object();
    for (int i = 0; i < STATE_COUNT; i++) {
        (void)json_object_set_new(queue, job_state_word((enum job_state)i),
                                  json_integer(q.by_state[i]));
    }
    (void)json_object_set_new(queue, "oldest_waiting_ms",
                              q.oldest_queued_ms < 0 ? json_null()
                                                     : json_integer(q.oldest_queued_ms));
    (void)json_object_set_new(r->root, "queue", queue);
    add_tenants(r, &pg);
    add_leader(r, &pg);
    add_sweep(r, &pg);
    json_t *latest = json_null();
    if (store_latest_batch(&pg, r->cli->config.tenant_default, &batch, &err) == 0 &&
        store_batch_counts(&pg, batch.text, &b, &err) == 0) {
        char verdicts[300];
        progress_verdicts(b.by_verdict, verdicts, sizeof verdicts);
        latest = json_pack("{s:s, s:i, s:i, s:s}", "batch", batch.text, "jobs", b.total, "done",
                           b.done, "verdicts", verdicts);
    }
    (void)json_object_set_new(r->root, "latest_batch", latest);
}

static void add_redis(struct report *r)
{
    struct err err;
    int64_t unclaimed, claimed, entries, oldest_ms;
    cleanup_queue struct queue q = { 0 };
    cleanup_free struct worker_info *rows = calloc(WORKERS_MAX, sizeof *rows);
    int n = -1;
    if (!rows) {
        abort();
    }
    if (queue_open(&q, r->cli->config.redis_url, &err) < 0 || queue_setup(&q, &err) < 0 ||
        queue_ready_depth(&q, &unclaimed, &claimed, &err) < 0 ||
        queue_intake_lag(&q, &entries, &oldest_ms, &err) < 0 ||
        (n = queue_workers(&q, rows, WORKERS_MAX, &err)) < 0) {
        fault(r, "ready", &err);
        return;
    }
    json_t *workers = json_array();
    for (int i = 0; i < n; i++) {
        (void)json_array_append_new(workers, json_pack("{s:s, s:i, s:i, s:I, s:i, s:I}", "name",
                                                       rows[i].name, "slots", rows[i].slots, "busy",
                                                       rows[i].busy, "pid", (json_int_t)rows[i].pid,
                                                       "spooled", rows[i].spooled, "spool_bytes",
                                                       (json_int_t)rows[i].spool_bytes));
    }
    (void)json_object_set_new(r->root, "ready",
                              json_pack("{s:I, s:I}", "unclaimed", (json_int_t)unclaimed, "claimed",
                                        (json_int_t)claimed));
    (void)json_object_set_new(r->root, "workers", workers);
    json_t *lag = json_object_get(r->root, "lag");
    (void)json_object_set_new(lag, "intake_entries", json_integer(entries));
    (void)json_object_set_new(lag, "intake_ms", age(oldest_ms));
}

static void add_pool(struct report *r)
{
    static pool_StatusReply p;
    struct err err;
    if (poolclient_status(r->cli->config.vmpool_socket, POOL_TIMEOUT_MS, &p, &err) < 0) {
        fault(r, "pool", &err);
        return;
    }
    json_t *snapshots = json_array();
    for (pb_size_t i = 0; i < p.snapshots_count; i++) {
        const pool_SnapshotStatus *s = &p.snapshots[i];
        (void)json_array_append_new(
            snapshots,
            json_pack("{s:s, s:s, s:s, s:s, s:i, s:i, s:i, s:i, s:i, s:I, s:I}", "template",
                      s->template, "digest", s->digest, "state", s->state, "reason", s->reason,
                      "warm", (int)s->warm, "starting", (int)s->starting, "leased", (int)s->leased,
                      "target", (int)s->target, "memory_mib", (int)s->memory_mib, "clones",
                      (json_int_t)s->clones_total, "warm_hits", (json_int_t)s->hits_total));
    }
    (void)json_object_set_new(
        r->root, "pool",
        json_pack("{s:s, s:s, s:i, s:i, s:I, s:I, s:o}", "engine", p.engine, "engine_reason",
                  p.engine_reason, "memory_used_mib", (int)p.memory_used_mib, "memory_budget_mib",
                  (int)p.memory_budget_mib, "leases", (json_int_t)p.leases_total, "failures",
                  (json_int_t)p.failures_total, "snapshots", snapshots));
}

static long long num(const json_t *obj, const char *key)
{
    return (long long)json_integer_value(json_object_get(obj, key));
}

static const char *str(const json_t *obj, const char *key)
{
    const char *s = json_string_value(json_object_get(obj, key));
    return s ? s : "";
}

static bool print_error(const json_t *part, const char *title)
{
    const char *error = str(part, "error");
    if (*error) {
        (void)printf("%-10s not reachable: %s\n", title, error);
    }
    return *error != 0;
}

static void print_pool(const json_t *pool)
{
    size_t i;
    json_t *s;
    if (print_error(pool, "pool")) {
        return;
    }
    (void)printf("pool       %s (%s), %lld of %lld MiB, %lld leases, %lld failures\n",
                 str(pool, "engine"), str(pool, "engine_reason"), num(pool, "memory_used_mib"),
                 num(pool, "memory_budget_mib"), num(pool, "leases"), num(pool, "failures"));
    json_array_foreach(json_object_get(pool, "snapshots"), i, s)
    {
        (void)printf("  %-12s %s%s%s: %lld warm of %lld, %lld starting, %lld leased, %lld clones\n",
                     str(s, "template"), str(s, "state"), *str(s, "reason") ? ", " : "",
                     str(s, "reason"), num(s, "warm"), num(s, "target"), num(s, "starting"),
                     num(s, "leased"), num(s, "clones"));
    }
}

static void print_queue(const json_t *q)
{
    if (print_error(q, "queue")) {
        return;
    }
    char age[MONEY_TEXT_MAX] = "";
    const json_t *oldest = json_object_get(q, "oldest_waiting_ms");
    if (json_is_integer(oldest)) {
        duration_format(json_integer_value(oldest), age);
    }
    (void)printf("queue      %lld queued, %lld retrying, %lld scheduled, %lld running, %lld "
                 "completed, %lld dead%s%s\n",
                 num(q, "queued"), num(q, "retrying"), num(q, "scheduled"), num(q, "running"),
                 num(q, "completed"), num(q, "dead"), *age ? "; oldest waits " : "", age);
}

static void print_tenants(const json_t *list)
{
    size_t i, n = json_array_size(list);
    json_t *t;
    if (print_error(list, "tenants") || n == 0) {
        return;
    }
    (void)printf("tenants    %-20s %6s %8s %8s %8s %9s %8s %6s\n", "", "weight", "high", "normal",
                 "bulk", "in flight", "jobs/min", "share");
    json_array_foreach(list, i, t)
    {
        if (i == TENANTS_SHOWN) {
            (void)printf("  and %zu more%s: brood status --json, brood tenant list\n", n - i,
                         n == TENANTS_MAX ? " or more" : "");
            break;
        }
        (void)printf("  %-29s %6lld %8lld %8lld %8lld %9lld %8lld %5.1f%%%s\n", str(t, "tenant"),
                     num(t, "weight"), num(t, "high"), num(t, "normal"), num(t, "bulk"),
                     num(t, "in_flight"), num(t, "jobs_per_minute"),
                     100 * json_real_value(json_object_get(t, "share")),
                     json_is_true(json_object_get(t, "stopped")) ? "  stopped" : "");
    }
}

static void print_leader(const struct report *r)
{
    const json_t *l = json_object_get(r->root, "leader"), *lag = json_object_get(r->root, "lag");
    char text[MONEY_TEXT_MAX];
    if (json_is_object(l) && !print_error(l, "leader")) {
        (void)printf("leader     %s", *str(l, "scheduler") ? str(l, "scheduler") : "none");
        if (json_is_integer(json_object_get(l, "since_ms"))) {
            duration_format(num(l, "since_ms"), text);
            (void)printf(", for %s", text);
        }
        (void)printf(", %lld standing by\n", num(l, "standing_by"));
    }
    if (num(lag, "intake_ms") >= LAG_SHOWN_MS) {
        duration_format(num(lag, "intake_ms"), text);
        (void)printf("lag        %lld entries of intake, the oldest %s\n",
                     num(lag, "intake_entries"), text);
    }
    if (num(lag, "unsealed_ms") >= LAG_SHOWN_MS) {
        duration_format(num(lag, "unsealed_ms"), text);
        (void)printf("lag        %lld usage lines to be sealed, the oldest %s\n",
                     num(lag, "unsealed_lines"), text);
    }
}

static void print_text(const struct report *r)
{
    size_t i;
    json_t *row, *list = json_object_get(r->root, "processes");
    (void)printf("home       %s\nprocesses ", r->cli->config.home);
    json_array_foreach(list, i, row)
    {
        (void)printf(" %s %lld%s", str(row, "name"), num(row, "pid"),
                     i + 1 < json_array_size(list) ? "," : "");
    }
    (void)printf("%s\n", json_array_size(list) ? "" : " none of this home");
    print_queue(json_object_get(r->root, "queue"));
    print_leader(r);
    print_tenants(json_object_get(r->root, "tenants"));
    const json_t *ready = json_object_get(r->root, "ready");
    if (!print_error(ready, "redis")) {
        (void)printf("ready      %lld unclaimed, %lld claimed\n", num(ready, "unclaimed"),
                     num(ready, "claimed"));
        list = json_object_get(r->root, "workers");
        json_array_foreach(list, i, row)
        {
            (void)printf("worker     %s: %lld of %lld slots busy, pid %lld", str(row, "name"),
                         num(row, "busy"), num(row, "slots"), num(row, "pid"));
            if (num(row, "spooled") > 0) {
                (void)printf(", %lld results in its spool (%lld bytes)", num(row, "spooled"),
                             num(row, "spool_bytes"));
            }
            (void)printf("\n");
        }
        if (json_array_size(list) == 0) {
            (void)printf("worker     none alive\n");
        }
    }
    print_pool(json_object_get(r->root, "pool"));
    const json_t *b = json_object_get(r->root, "latest_batch");
    if (json_is_object(b)) {
        (void)printf("batch      %s: %lld of %lld done%s%s\n", str(b, "batch"), num(b, "done"),
                     num(b, "jobs"), *str(b, "verdicts") ? "; " : "", str(b, "verdicts"));
    }
}

int cmd_status(struct cli *cli, int argc, char **argv)
{
    struct cli_opts o = { .cli = cli };
    int rc = cli_parse(cli, &argp, argc, argv, &o);
    if (rc != 0) {
        return rc;
    }
    struct report r = { .cli = cli,
                        .root = json_pack("{s:s, s:{}}", "home", cli->config.home, "lag") };
    add_processes(&r);
    add_postgres(&r);
    add_redis(&r);
    add_pool(&r);
    if (cli->json) {
        (void)json_dumpf(r.root, stdout, JSON_COMPACT);
        (void)putchar('\n');
    } else {
        print_text(&r);
    }
    json_decref(r.root);
    if (r.down && !cli->json) {
        (void)fflush(stdout);
        (void)fprintf(stderr, "brood: not everything answers; start it with: brood up --detach%s\n",
                      cli_home_hint(cli));
        (void)cli_say_full_disk(cli);
    }
    return r.down ? CLI_UNREACHABLE : CLI_OK;
}
