/* brood run: one job, its output shown as it comes, its exit status ours.
 *
 * Live output comes through Redis, best effort and capped; the result in Postgres is the truth. So
 * what was shown is counted, and what the result has beyond it is printed at the end. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <jansson.h>

#include "cli/cli.h"
#include "cli/jobargs.h"
#include "cli/money.h"
#include "cli/result_json.h"
#include "cli/submit.h"
#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/store/jobs.h"
#include "common/store/snapshots.h"

#define RUN_PIECE_BYTES_MAX (4u << 20)
#define RUN_BLOCK_MS 500
#define RUN_POLL_MS 20
#define RUN_LOST_MS_MAX 30000

/* Exit status beyond the program's own. */
enum { RUN_LIMIT = 123, RUN_TIME_LIMIT = 124, RUN_FAILED = 125 };

enum {
    OPT_TEMPLATE = 't',
    OPT_FILE = 'f',
    OPT_LIMIT = 'l',
    OPT_ENV = 'e',
    OPT_STDIN = 0x2001,
    OPT_SETUP,
    OPT_QUIET = 'q'
};

struct opts {
    struct cli_opts base;
    json_t *job, *files, *limits, *env, *command;
    const char *stdin_file;
    bool quiet;
};

static void usage_if(struct argp_state *state, int rc, const struct err *err)
{
    if (rc < 0) {
        argp_error(state, "%s", err->text);
    }
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct opts *o = state->input;
    struct err err;
    switch (key) {
    case OPT_TEMPLATE:
        (void)json_object_set_new(o->job, "template", json_string(arg));
        return 0;
    case OPT_FILE:
        usage_if(state, jobargs_file(o->files, arg, &err), &err);
        return 0;
    case OPT_LIMIT:
        usage_if(state, jobargs_limit(o->limits, arg, &err), &err);
        return 0;
    case OPT_ENV:
        usage_if(state, jobargs_env(o->env, arg, &err), &err);
        return 0;
    case OPT_STDIN:
        o->stdin_file = arg;
        return 0;
    case OPT_SETUP:
        (void)json_object_set_new(o->job, "setup", json_string(arg));
        return 0;
    case OPT_QUIET:
        o->quiet = true;
        return 0;
    case ARGP_KEY_ARG:
        /* From the first word on everything is the command's, options too. */
        for (int i = state->next - 1; i < state->argc; i++) {
            if (json_array_append_new(o->command, json_string(state->argv[i])) != 0) {
                argp_error(state, "the command must be UTF-8");
            }
        }
        state->next = state->argc;
        return 0;
    case ARGP_KEY_NO_ARGS:
        argp_error(state, "which command? (brood run -- python3 -c 'print(1)')");
        return 0;
    default:
        return cli_parse_key(key, arg, state);
    }
}

static const struct argp_option options[] = {
    { .name = "template", .key = OPT_TEMPLATE, .arg = "NAME", .doc = "default: python" },
    { .name = "file",
      .key = OPT_FILE,
      .arg = "FILE[:PATH]",
      .doc = "put FILE into the work folder, as PATH" },
    { .name = "stdin", .key = OPT_STDIN, .arg = "FILE|-", .doc = "standard input (default: none)" },
    { .name = "limit",
      .key = OPT_LIMIT,
      .arg = "NAME=N",
      .doc = "cpu_ms, wall_ms, memory_mib, processes, disk_mib, disk_files, output_bytes, "
             "open_files" },
    { .name = "env", .key = OPT_ENV, .arg = "NAME=VALUE", .doc = "an environment variable" },
    { .name = "setup",
      .key = OPT_SETUP,
      .arg = "SHELL-LINE",
      .doc = "runs first, e.g. to compile" },
    { .name = "quiet", .key = OPT_QUIET, .doc = "do not print the verdict" },
    { 0 },
};

static const struct argp argp = {
    .options = options,
    .parser = parse,
    .args_doc = "[--] COMMAND [ARGUMENT...]",
    .doc =
        "Run one command in a fresh microVM. Its output is shown as it comes; the verdict goes to "
        "standard error.\v"
        "Exit status: the program's; 128+N when signal N ended it; 124 after a time limit; 123 "
        "when another limit ended it and "
        "it has no status of its own, or setup failed; 125 when brood could not run it (usage, "
        "service, fault of ours).\n"
        "With --json the result is printed as one JSON object instead of the output.\n\n"
        "Examples:\n"
        "  brood run -- python3 -c 'print(6 * 7)'\n"
        "  brood run --template c --file a.c --setup 'gcc -O2 -o a a.c' -- ./a\n"
        "  echo 5 | brood run --stdin - --limit cpu_ms=500 --file solve.py -- python3 solve.py\n",
    .children = cli_globals,
};

static int read_stdin(struct opts *o, struct err *err)
{
    if (!o->stdin_file) {
        return 0;
    }
    cleanup_buf struct buf data = { 0 };
    buf_init(&data, JOB_STDIN_BYTES_MAX);
    int rc = strcmp(o->stdin_file, "-") == 0 ? buf_read_fd(&data, 0, err)
                                             : buf_read_file(&data, o->stdin_file, err);
    if (rc < 0) {
        return err_prefix(err, "--stdin");
    }
    json_t *value = json_stringn(data.data, data.len);
    if (!value || memchr(data.data, 0, data.len)) {
        json_decref(value);
        json_t *holder = json_object();
        (void)json_put_bytes(holder, "x", data.data, data.len);
        value = json_pack("{s:O}", "base64", json_object_get(holder, "x_base64"));
        json_decref(holder);
    }
    (void)json_object_set_new(o->job, "stdin", value);
    return 0;
}

static int make_spec(struct opts *o, struct job_spec **ret_spec, struct err *err)
{
    int rc = read_stdin(o, err);
    if (rc < 0) {
        return rc;
    }
    if (!json_object_get(o->job, "template")) {
        (void)json_object_set_new(o->job, "template", json_string("python"));
    }
    (void)json_object_set(o->job, "files", o->files);
    (void)json_object_set(o->job, "limits", o->limits);
    (void)json_object_set(o->job, "env", o->env);
    (void)json_object_set(o->job, "command", o->command);
    (void)json_object_set_new(o->job, "stream", json_true());
    cleanup_free char *text = json_dumps(o->job, JSON_COMPACT);
    if (!text) {
        return err_set(err, ERR_INVALID, "the job is not UTF-8");
    }
    return job_parse(text, strlen(text), ret_spec, err);
}

struct session {
    const struct cli *cli;
    struct pg pg;
    struct queue queue;
    struct id job;
    uint64_t shown[3]; /* bytes written of 1 stdout, 2 stderr */
    bool show;
};

static void cleanup_session(struct session *s)
{
    pg_close(&s->pg);
    queue_close(&s->queue);
}

static void emit(struct session *s, int stream, const char *data, size_t len)
{
    if (len == 0 || !s->show) {
        return;
    }
    FILE *to = stream == 1 ? stdout : stderr;
    (void)fwrite(data, 1, len, to);
    (void)fflush(to);
}

/* Until the job has ended: through the log's end marker, or by asking Postgres when nothing comes.
 */
static int follow(struct session *s, struct result_row *ret_row, struct err *err)
{
    cleanup_buf struct buf piece = { 0 };
    buf_init(&piece, RUN_PIECE_BYTES_MAX);
    char cursor[40] = "0";
    bool log_open = true;
    for (int64_t lost_ms = 0;;) {
        struct log_piece log = { 0 };
        if (log_open) {
            buf_reset(&piece);
            int got =
                queue_log_next(&s->queue, s->job.text, cursor, RUN_BLOCK_MS, &piece, &log, err);
            if (got > 0 && (log.stream == 1 || log.stream == 2)) {
                const char *data = piece.data ? piece.data : "";
                size_t len = piece.len;
                log_open = log_piece_new(&log, s->shown[log.stream], &data, &len);
                len = log_open ? len : 0;
                emit(s, log.stream, data, len);
                s->shown[log.stream] += len;
                if (!cli_out_ok()) {
                    return err_set(err, ERR_CLOSED, "the reader of the output has gone");
                }
                continue;
            }
            log_open = got == 0; /* the end, or Redis has gone: the result has the rest */
        }
        int rc = store_job(&s->pg, s->job.text, ret_row, err);
        if (rc == -ERR_UNAVAILABLE) {
            int64_t now = mono_ms();
            lost_ms = lost_ms ? lost_ms : now;
            if (now - lost_ms < RUN_LOST_MS_MAX) {
                sleep_ms(RUN_BLOCK_MS);
                continue;
            }
        }
        if (rc < 0) {
            return rc;
        }
        lost_ms = 0;
        if (job_state_terminal(ret_row->state)) {
            return 0;
        }
        result_row_done(ret_row);
        if (!log_open) {
            sleep_ms(RUN_POLL_MS);
        }
    }
}

/* What the log did not have. */
static void print_rest(struct session *s, int stream, const struct stream_result *r)
{
    uint64_t shown = s->shown[stream], tail_at = r->total_bytes - r->tail.len;
    if (shown < r->head.len) {
        emit(s, stream, r->head.data + shown, r->head.len - shown);
        shown = r->head.len;
    }
    if (r->tail.len == 0 || shown >= r->total_bytes) {
        return;
    }
    if (shown < tail_at) {
        if (s->show) {
            (void)fprintf(stderr,
                          "\nbrood: %llu bytes of %s are left out here (limit output_bytes)\n",
                          (unsigned long long)(tail_at - shown), stream == 1 ? "stdout" : "stderr");
        }
        shown = tail_at;
    }
    emit(s, stream, r->tail.data + (shown - tail_at), (size_t)(r->total_bytes - shown));
}

static int exit_status(const struct result_row *row)
{
    const struct job_result *r = &row->result;
    if (!row->has_result) {
        return RUN_FAILED;
    }
    switch (r->verdict) {
    case VERDICT_TIME_LIMIT:
    case VERDICT_WALL_TIME_LIMIT:
        return RUN_TIME_LIMIT;
    case VERDICT_COMPILE_ERROR:
        return RUN_LIMIT;
    case VERDICT_ACCEPTED:
    case VERDICT_WRONG_ANSWER:
    case VERDICT_RUNTIME_ERROR:
        return r->run.signal           ? 128 + r->run.signal
               : r->run.exit_code >= 0 ? r->run.exit_code
                                       : RUN_FAILED;
    case VERDICT_MEMORY_LIMIT:
    case VERDICT_OUTPUT_LIMIT:
    case VERDICT_DISK_LIMIT:
    case VERDICT_PROCESS_LIMIT:
        return r->run.signal          ? 128 + r->run.signal
               : r->run.exit_code > 0 ? r->run.exit_code
                                      : RUN_LIMIT;
    default:
        return RUN_FAILED;
    }
}

static void print_verdict(const struct result_row *row)
{
    const struct job_result *r = &row->result;
    char cpu[MONEY_TEXT_MAX], wall[MONEY_TEXT_MAX], cost[MONEY_TEXT_MAX];
    if (!row->has_result) {
        (void)fprintf(stderr, "brood: %s%s%s\n", job_state_word(row->state),
                      row->last_error ? ": " : "", row->last_error ? row->last_error : "");
        return;
    }
    duration_us_format(r->run.cpu_us, cpu);
    duration_us_format(r->run.wall_us, wall);
    money_format(row->cost_nanousd, cost);
    (void)fprintf(stderr, "brood: %s%s%s (cpu %s, wall %s, memory %lld MiB, %s, job %s)\n",
                  verdict_word(r->verdict), r->reason[0] ? ": " : "", r->reason, cpu, wall,
                  (long long)((r->run.memory_peak_bytes + (1 << 20) - 1) >> 20), cost, row->job_id);
}

static int finish(struct session *s, const struct opts *o, const struct result_row *row)
{
    if (s->cli->json) {
        json_t *obj = result_to_json(row);
        (void)json_dumpf(obj, stdout, JSON_COMPACT);
        (void)putchar('\n');
        json_decref(obj);
        return exit_status(row);
    }
    if (row->has_result) {
        const struct job_result *r = &row->result;
        /* A setup's output matters when it failed; a run that never started has none of its own. */
        if (r->verdict == VERDICT_COMPILE_ERROR && r->setup.present) {
            emit(s, 1, r->setup.out.head.data, r->setup.out.head.len);
            emit(s, 2, r->setup.err_out.head.data, r->setup.err_out.head.len);
        }
        print_rest(s, 1, &r->run.out);
        print_rest(s, 2, &r->run.err_out);
    }
    if (!o->quiet) {
        (void)fflush(stdout);
        print_verdict(row);
    }
    return exit_status(row);
}

static int submit_one(struct session *s, struct job_spec *spec, struct err *err)
{
    struct template_info t;
    struct submit_item item = { .spec = spec };
    const struct submit_to to = { .tenant = s->cli->config.tenant_default, .all_or_nothing = true };
    int rc;
    if ((rc = cli_open_pg(s->cli, &s->pg, err)) < 0 ||
        (rc = queue_open(&s->queue, s->cli->config.redis_url, err)) < 0 ||
        (rc = store_base_get(&s->pg, s->cli->config.tenant_default, spec->template_name, &t, err)) <
            0 ||
        (rc = job_check_template(spec, &t, err)) < 0 || (rc = cli_seal(s->cli, spec, err)) < 0 ||
        (rc = submit_jobs(&s->pg, &to, &item, 1, err)) < 0) {
        return rc;
    }
    submit_wake(&s->queue, to.tenant, spec->priority, 1);
    s->job = item.ret_id;
    return 0;
}

static int run(struct cli *cli, struct opts *o)
{
    struct err err;
    cleanup_job_spec struct job_spec *spec = NULL;
    CLEANUP(cleanup_session) struct session s = { .cli = cli, .show = !cli->json };
    struct result_row row;
    int rc;
    if ((rc = make_spec(o, &spec, &err)) < 0 || (rc = submit_one(&s, spec, &err)) < 0) {
        (void)cli_fail(cli, &err);
        return RUN_FAILED;
    }
    rc = follow(&s, &row, &err);
    if (rc < 0) {
        if (rc != -ERR_CLOSED) {
            (void)cli_fail(cli, &err);
            (void)fprintf(stderr, "  job %s goes on; its result stays in Postgres\n", s.job.text);
        }
        return RUN_FAILED;
    }
    rc = finish(&s, o, &row);
    result_row_done(&row);
    return rc;
}

int cmd_run(struct cli *cli, int argc, char **argv)
{
    argp_err_exit_status = RUN_FAILED; /* 2 may be the program's own */
    struct opts o = { .base.cli = cli,
                      .job = json_object(),
                      .files = json_array(),
                      .limits = json_object(),
                      .env = json_object(),
                      .command = json_array() };
    int rc = cli_parse_in_order(cli, &argp, argc, argv, &o);
    rc = rc != 0 ? RUN_FAILED : run(cli, &o);
    json_decref(o.job);
    json_decref(o.files);
    json_decref(o.limits);
    json_decref(o.env);
    json_decref(o.command);
    return rc;
}
