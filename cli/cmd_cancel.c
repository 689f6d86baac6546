/* brood cancel: take back what has not ended of a batch. */
#include <string.h>
#include <jansson.h>

#include "cli/cli.h"
#include "common/store/jobs.h"

#define CANCEL_STEP 500 /* jobs of one transaction */
#define BATCHES_MAX 1000

enum { OPT_NAME = 0x2101 };

struct opts {
    struct cli_opts base;
    const char *name;
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct opts *o = state->input;
    switch (key) {
    case OPT_NAME:
        o->name = arg;
        return 0;
    case ARGP_KEY_END:
        if (!o->base.arg == !o->name) {
            argp_error(state, "which batch? (an id as printed by brood submit, latest, or --name)");
        }
        return 0;
    default:
        return cli_parse_key(key, arg, state);
    }
}

static const struct argp_option options[] = {
    { .name = "name",
      .key = OPT_NAME,
      .arg = "TEXT",
      .doc = "every batch of this name (brood submit --name) that has not ended" },
    { 0 }
};

static const struct argp argp = {
    .options = options,
    .parser = parse,
    .args_doc = "[BATCH|latest]",
    .doc = "Take back the jobs of a batch that have not ended: their verdict becomes cancelled, "
           "nothing is billed for them. Verdicts that are there stay.\v"
           "A machine that is running one of them is ended within a heartbeat of its worker.\n\n"
           "Examples:\n"
           "  brood cancel latest\n"
           "  brood cancel --name nightly --json\n",
    .children = cli_globals,
};

/* Tell Redis; that is for speed only: what stays on the ready stream commits nothing. */
static int forget(struct queue *q, const struct id *ids, int n, struct err *err)
{
    const char *texts[CANCEL_STEP];
    struct finished_event events[CANCEL_STEP];
    for (int i = 0; i < n; i++) {
        texts[i] = ids[i].text;
        events[i] = (struct finished_event){ ids[i].text, verdict_word(VERDICT_CANCELLED) };
    }
    int rc = queue_ready_drop(q, texts, n, err);
    return rc < 0 ? rc : queue_events_finished(q, events, n, err);
}

/* Returns how many jobs of the batch were cancelled. */
static int cancel_batch(struct pg *pg, struct queue *q, const char *batch, bool *redis_ok,
                        struct err *err)
{
    static struct id ids[CANCEL_STEP];
    int total = 0, n;
    while ((n = store_cancel(pg, batch, CANCEL_STEP, ids, err)) > 0) {
        total += n;
        struct err redis_err;
        if (*redis_ok && forget(q, ids, n, &redis_err) < 0) {
            *redis_ok = false;
            (void)fprintf(stderr, "brood: cancelled, but Redis was not told: %s\n", redis_err.text);
        }
    }
    return n < 0 ? n : total;
}

int cmd_cancel(struct cli *cli, int argc, char **argv)
{
    static const struct cli_argument takes = { .one_only = "one batch at a time" };
    struct opts o = { .base = { .cli = cli, .takes = &takes } };
    static struct id batches[BATCHES_MAX];
    struct err err;
    cleanup_pg struct pg pg = { 0 };
    cleanup_queue struct queue q = { 0 };
    int n = 1, rc = cli_begin(cli, &argp, argc, argv, &o.base, &pg, NULL);
    if (rc != 0) {
        return rc;
    }
    if (queue_open(&q, cli->config.redis_url, &err) < 0 || queue_setup(&q, &err) < 0) {
        return cli_fail(cli, &err);
    }
    if (o.base.arg) {
        struct batch_counts counts; /* for its error: no such batch */
        rc = cli_batch_id(cli, &pg, o.base.arg, &batches[0], &err);
        rc = rc < 0 ? rc : store_batch_counts(&pg, batches[0].text, &counts, &err);
    } else {
        n = rc =
            store_open_batches(&pg, cli->config.tenant_default, o.name, BATCHES_MAX, batches, &err);
    }
    if (rc < 0) {
        return cli_fail(cli, &err);
    }
    bool redis_ok = true;
    long long total = 0;
    json_t *list = json_array();
    for (int i = 0; i < n; i++) {
        if ((rc = cancel_batch(&pg, &q, batches[i].text, &redis_ok, &err)) < 0) {
            json_decref(list);
            return cli_fail(cli, &err);
        }
        total += rc;
        (void)json_array_append_new(
            list, json_pack("{s:s, s:i}", "batch", batches[i].text, "cancelled", rc));
        if (!cli->json) {
            (void)printf("batch %s: %d job%s cancelled\n", batches[i].text, rc, rc == 1 ? "" : "s");
        }
    }
    json_t *root = json_pack("{s:o, s:I}", "batches", list, "cancelled", (json_int_t)total);
    if (cli->json && root) {
        (void)json_dumpf(root, stdout, JSON_COMPACT);
        (void)putchar('\n');
    }
    json_decref(root);
    return CLI_OK;
}
