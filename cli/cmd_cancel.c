/* brood cancel: take back a job, or what has not ended of a batch. */
#include <assert.h>
#include <string.h>
#include <jansson.h>

#include "cli/cli.h"
#include "common/store/cancel.h"
#include "common/store/jobs.h"

#define CANCEL_STEP 500 /* jobs of one transaction */
#define BATCHES_MAX 1000

enum { OPT_NAME = 0x2101, OPT_JOB };

struct opts {
    struct cli_opts base;
    const char *name, *job;
};

struct counts {
    int cancelled, ending; /* at once; told to its worker */
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct opts *o = state->input;
    switch (key) {
    case OPT_NAME:
        o->name = arg;
        return 0;
    case OPT_JOB:
        if (!id_valid(arg)) {
            argp_error(state, "--job: must be the id of a job");
        }
        o->job = arg;
        return 0;
    case ARGP_KEY_END:
        if (!!o->base.arg + !!o->name + !!o->job != 1) {
            argp_error(state, "what? (a batch's id as printed by brood submit, latest, --name, or "
                              "--job)");
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
    { .name = "job", .key = OPT_JOB, .arg = "ID", .doc = "one job" },
    { 0 }
};

static const struct argp argp = {
    .options = options,
    .parser = parse,
    .args_doc = "[BATCH|latest]",
    .doc = "Take back the jobs of a batch that have not ended, or one job. Those that wait end at "
           "once and cost nothing; those that run end within a second, with the verdict cancelled, "
           "and are billed up to that moment. Verdicts that are there stay.\v"
           "Examples:\n"
           "  brood cancel latest\n"
           "  brood cancel --name nightly --json\n"
           "  brood cancel --job 01939d3a-7c3e-7000-8000-0123456789ab\n",
    .children = cli_globals,
};

static void not_told(const struct err *err)
{
    (void)fprintf(stderr, "brood: Redis was not told, so what runs ends only when it is back: %s\n",
                  err->text);
}

/* Tell Redis; that is for speed only: the scheduler says it again. */
static int tell(struct pg *pg, struct queue *q, const struct cancelled *rows, int n,
                struct counts *c, struct err *err)
{
    struct id flying[CANCEL_STEP];
    struct finished_event events[CANCEL_STEP];
    int n_flying = 0, n_events = 0;
    for (int i = 0; i < n; i++) {
        if (rows[i].ended) {
            events[n_events++] =
                (struct finished_event){ rows[i].id.text, verdict_word(VERDICT_CANCELLED) };
        } else {
            flying[n_flying++] = rows[i].id;
        }
    }
    int rc = n_events > 0 ? queue_events_finished(q, events, n_events, err) : 0;
    int here = rc < 0 || n_flying == 0 ? rc : cancel_tell(pg, q, flying, n_flying, err);
    if (here > 0) {
        c->cancelled += here;
        c->ending -= here;
    }
    return here < 0 ? here : 0;
}

static int cancel_all(struct pg *pg, struct queue *q, const char *batch, const char *job,
                      bool *redis_ok, struct counts *c, struct err *err)
{
    static struct cancelled rows[CANCEL_STEP];
    static_assert(CANCEL_STEP <= QUEUE_DROP_MAX, "told at once");
    int n;
    while ((n = store_cancel(pg, batch, job, CANCEL_STEP, rows, err)) > 0) {
        for (int i = 0; i < n; i++) {
            c->cancelled += rows[i].ended;
            c->ending += !rows[i].ended;
        }
        struct err redis_err;
        if (*redis_ok && tell(pg, q, rows, n, c, &redis_err) < 0) {
            *redis_ok = false;
            not_told(&redis_err);
        }
    }
    return n;
}

/* Its state, for the error: there is no such job. */
static int job_there(struct pg *pg, const char *job, struct err *err)
{
    struct result_row row;
    int rc = store_job(pg, job, &row, err);
    if (rc == 0) {
        result_row_done(&row);
    }
    return rc;
}

static void say(const struct cli *cli, const char *what, const char *id, const struct counts *c)
{
    if (!cli->json) {
        (void)printf("%s %s: %d job%s cancelled", what, id, c->cancelled,
                     c->cancelled == 1 ? "" : "s");
        (void)(c->ending > 0 ? printf(", %d running told to end\n", c->ending) : printf("\n"));
    }
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
    if (o.job) {
        rc = job_there(&pg, o.job, &err);
        memcpy(batches[0].text, o.job, ID_TEXT_BYTES);
    } else if (o.base.arg) {
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
    bool redis_ok = queue_open(&q, cli->config.redis_url, &err) == 0 && queue_setup(&q, &err) == 0;
    if (!redis_ok) {
        not_told(&err);
    }
    long long total = 0, ending = 0;
    const char *what = o.job ? "job" : "batch";
    json_t *list = json_array();
    for (int i = 0; i < n; i++) {
        struct counts c = { 0 };
        const char *id = batches[i].text;
        if ((rc = cancel_all(&pg, &q, o.job ? NULL : id, o.job, &redis_ok, &c, &err)) < 0) {
            json_decref(list);
            return cli_fail(cli, &err);
        }
        total += c.cancelled;
        ending += c.ending;
        (void)json_array_append_new(list, json_pack("{s:s, s:i, s:i}", what, id, "cancelled",
                                                    c.cancelled, "ending", c.ending));
        say(cli, what, id, &c);
    }
    json_t *root = json_pack("{s:o, s:I, s:I}", o.job ? "jobs" : "batches", list, "cancelled",
                             (json_int_t)total, "ending", (json_int_t)ending);
    if (cli->json && root) {
        (void)json_dumpf(root, stdout, JSON_COMPACT);
        (void)putchar('\n');
    }
    json_decref(root);
    return CLI_OK;
}
