/* brood submit: a JSONL file becomes a batch.
 *
 * Two passes over the same bytes: the first validates every line and says what is wrong with each,
 * the second submits in chunks under one batch id. So nothing runs of a batch with a bad line, and
 * memory does not grow with the file. Standard input is copied to an unlinked file first. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <jansson.h>

#include "cli/batch.h"
#include "cli/lines.h"
#include "cli/submit.h"
#include "common/base/cleanup.h"
#include "common/store/snapshots.h"

#define BAD_LINES_SHOWN_MAX 20
#define CHUNK_BYTES_MAX                                                                            \
    (64u << 20) /* canonical JSON held at once, before the last job of a chunk */
#define STDIN_BYTES_MAX ((int64_t)8 << 30)
#define TEMPLATES_MAX 64
#define BATCH_JOBS_MAX 10000000

enum { OPT_WAIT = 0x2001, OPT_NAME, OPT_SKIP };

static const struct cli_argument takes_file = {
    .one_only = "one file at a time (or - for standard input)",
    .missing = "which file? (JSONL, one job a line; - for standard input)",
};

struct opts {
    struct cli_opts base; /* arg: the file */
    const char *name;
    bool wait, skip_invalid;
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct opts *o = state->input;
    switch (key) {
    case OPT_WAIT:
        o->wait = true;
        return 0;
    case OPT_NAME:
        o->name = arg;
        return 0;
    case OPT_SKIP:
        o->skip_invalid = true;
        return 0;
    case ARGP_KEY_END:
        if (o->name && (!*o->name || strlen(o->name) > JOB_NAME_MAX)) {
            argp_error(state, "--name: must have 1 to %d bytes", JOB_NAME_MAX);
        }
        return 0;
    default:
        return cli_parse_key(key, arg, state);
    }
}

static const struct argp_option options[] = {
    { .name = "wait",
      .key = OPT_WAIT,
      .doc = "follow the batch to its end and sum it up, as brood watch does" },
    { .name = "name", .key = OPT_NAME, .arg = "TEXT", .doc = "name of the batch" },
    { .name = "skip-invalid",
      .key = OPT_SKIP,
      .doc = "submit the good lines although others are bad (exit status 0, the bad ones are "
             "listed)" },
    { 0 },
};

static const struct argp argp = {
    .options = options,
    .parser = parse,
    .args_doc = "FILE.jsonl|-",
    .doc = "Submit a batch: one job a line (docs/jobs.md). Prints the id of the batch.\v"
           "Every line is checked before anything is submitted; a bad one is named as FILE:LINE: "
           "field: rule, and "
           "nothing of the file runs unless --skip-invalid is given. Gzip files are read as they "
           "are.\n\n"
           "Examples:\n"
           "  brood submit jobs.jsonl --wait\n"
           "  brood import humaneval HumanEval.jsonl.gz | brood submit - --name humaneval\n"
           "  brood watch \"$(brood submit jobs.jsonl)\"\n",
    .children = cli_globals,
};

struct submission {
    const struct cli *cli;
    const struct opts *o;
    struct pg *pg;
    int fd;
    struct template_info templates[TEMPLATES_MAX];
    char template_names[TEMPLATES_MAX][JOB_TEMPLATE_MAX + 1];
    int n_templates;
    int good, bad, conflicts, duplicates, submitted, refused;
    struct err why; /* of the last that a cap of the tenant's refused */
    struct id batch;
    bool report; /* print what is wrong with lines: in the first pass */
    /* the chunk */
    struct submit_item *items;
    int *line_numbers;
    int n_items;
    size_t bytes;
};

static const char *shown_file(const struct submission *s)
{
    return strcmp(s->o->base.arg, "-") == 0 ? "stdin" : s->o->base.arg;
}

static void bad_line(struct submission *s, int line, const char *text)
{
    s->bad++;
    if (!s->report) {
        return;
    }
    if (s->bad <= BAD_LINES_SHOWN_MAX) {
        (void)fprintf(stderr, "%s:%d: %s\n", shown_file(s), line, text);
    }
}

/* The template's facts, asked for once a name. */
static int check_template(struct submission *s, const struct job_spec *spec, struct err *err)
{
    for (int i = 0; i < s->n_templates; i++) {
        if (strcmp(s->template_names[i], spec->template_name) == 0) {
            int known = job_check_template(spec, &s->templates[i], err);
            return known < 0 ? known
                             : store_job_check(s->pg, s->cli->config.tenant_default, spec, err);
        }
    }
    struct template_info t;
    int rc = store_base_get(s->pg, s->cli->config.tenant_default, spec->template_name, &t, err);
    if (rc < 0) {
        return rc == -ERR_NOT_FOUND && strncmp(err->text, "template", 8) != 0
                   ? err_prefix(err, "template")
                   : rc;
    }
    if (s->n_templates < TEMPLATES_MAX) {
        (void)snprintf(s->template_names[s->n_templates], sizeof s->template_names[0], "%s",
                       spec->template_name);
        s->templates[s->n_templates++] = t;
    }
    rc = job_check_template(spec, &t, err);
    return rc < 0 ? rc : store_job_check(s->pg, s->cli->config.tenant_default, spec, err);
}

/* What is wrong with a line is the line's fault unless the service has gone. */
static bool line_fault(int rc)
{
    return rc == -ERR_INVALID || rc == -ERR_TOO_LARGE || rc == -ERR_NOT_FOUND ||
           rc == -ERR_CONFLICT;
}

typedef int (*spec_fn)(struct submission *s, struct job_spec *spec, int line, struct err *err);

/* Calls fn (which owns the spec from then on) for each good line. */
static int each_job(struct submission *s, spec_fn fn, struct err *err)
{
    cleanup_lines struct lines lines = { 0 };
    if (lseek(s->fd, 0, SEEK_SET) < 0) {
        return err_sys(err, "%s", shown_file(s));
    }
    int rc = lines_open_fd(&lines, s->fd, JOB_JSON_MAX, err);
    if (rc < 0) {
        return rc;
    }
    while ((rc = lines_next(&lines, err)) != 0) {
        if (rc > 0 && lines_blank(&lines)) {
            continue;
        }
        struct job_spec *spec = NULL;
        if (rc > 0) {
            rc = job_parse(lines.buf.data, lines.buf.len, &spec, err);
        }
        if (rc >= 0) {
            rc = check_template(s, spec, err);
        }
        if (rc < 0) {
            job_spec_free(spec);
            if (!line_fault(rc)) {
                return rc;
            }
            bad_line(s, lines.number, err->text);
            continue;
        }
        if ((rc = fn(s, spec, lines.number, err)) < 0) {
            return rc;
        }
    }
    return 0;
}

static int count_job(struct submission *s, struct job_spec *spec, int line, struct err *err)
{
    (void)line;
    job_spec_free(spec);
    if (++s->good > BATCH_JOBS_MAX) {
        return err_set(err, ERR_TOO_LARGE, "%s: more than %d jobs; divide it", shown_file(s),
                       BATCH_JOBS_MAX);
    }
    return 0;
}

static void clear_chunk(struct submission *s)
{
    for (int i = 0; i < s->n_items; i++) {
        job_spec_free((struct job_spec *)(uintptr_t)s->items[i].spec);
    }
    s->n_items = 0;
    s->bytes = 0;
}

static int flush_chunk(struct submission *s, struct err *err)
{
    if (s->n_items == 0) {
        return 0;
    }
    const struct submit_to to = { .tenant = s->cli->config.tenant_default,
                                  .batch = s->batch.text,
                                  .name = s->o->name,
                                  .first_seq = s->submitted,
                                  .all_or_nothing = !s->o->skip_invalid };
    int rc = submit_jobs(s->pg, &to, s->items, s->n_items, err);
    int added = 0;
    for (int i = 0; i < s->n_items; i++) {
        if (s->items[i].ret_error.code == ERR_LIMIT) {
            s->refused++;
            s->why = s->items[i].ret_error;
        } else if (s->items[i].ret_error.code) {
            if (s->conflicts++ < BAD_LINES_SHOWN_MAX) {
                (void)fprintf(stderr, "%s:%d: %s\n", shown_file(s), s->line_numbers[i],
                              s->items[i].ret_error.text);
            }
        } else {
            added += !s->items[i].ret_duplicate;
            s->duplicates += s->items[i].ret_duplicate;
        }
    }
    s->submitted += rc < 0 ? 0 : s->n_items;
    s->good += rc < 0 ? 0 : added;
    clear_chunk(s);
    return rc;
}

static int add_job(struct submission *s, struct job_spec *spec, int line, struct err *err)
{
    assert(s->n_items < SUBMIT_MAX);
    int rc = cli_seal(s->cli, spec, err);
    if (rc < 0) {
        job_spec_free(spec);
        return rc;
    }
    s->items[s->n_items] = (struct submit_item){ .spec = spec };
    s->line_numbers[s->n_items++] = line;
    s->bytes += spec->canonical_len;
    return s->n_items == SUBMIT_MAX || s->bytes >= CHUNK_BYTES_MAX ? flush_chunk(s, err) : 0;
}

/* An fd that can be read twice. */
static int open_input(const char *path, int *ret_fd, struct err *err)
{
    bool is_stdin = strcmp(path, "-") == 0;
    cleanup_close int fd =
        is_stdin ? fcntl(0, F_DUPFD_CLOEXEC, 3) : open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return err_set(err, errno == ENOENT ? ERR_NOT_FOUND : ERR_INVALID, "%s: %s", path,
                       strerror(errno));
    }
    struct stat st;
    if (fstat(fd, &st) == 0 && S_ISDIR(st.st_mode)) {
        return err_set(err, ERR_INVALID, "%s: is a folder; a JSONL file is needed", path);
    }
    if (lseek(fd, 0, SEEK_SET) == 0) {
        *ret_fd = TAKE_FD(fd);
        return 0;
    }
    cleanup_fclose FILE *spool = tmpfile();
    int64_t total = 0;
    cleanup_free char *piece = malloc(1 << 16);
    if (!spool || !piece) {
        return err_sys(err, "temporary file");
    }
    for (ssize_t n; (n = read(fd, piece, 1 << 16)) != 0;) {
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return err_sys(err, "%s", path);
        }
        if ((total += n) > STDIN_BYTES_MAX) {
            return err_set(err, ERR_TOO_LARGE, "%s: more than %lld bytes", path,
                           (long long)STDIN_BYTES_MAX);
        }
        if (fwrite(piece, 1, (size_t)n, spool) != (size_t)n) {
            return err_sys(err, "temporary file");
        }
    }
    if (fflush(spool) != 0) {
        return err_sys(err, "temporary file");
    }
    *ret_fd = fcntl(fileno(spool), F_DUPFD_CLOEXEC, 3);
    return *ret_fd < 0 ? err_sys(err, "dup") : 0;
}

static int validate(struct submission *s, struct err *err)
{
    s->report = true;
    int rc = each_job(s, count_job, err);
    if (rc < 0) {
        return rc;
    }
    if (s->bad > BAD_LINES_SHOWN_MAX) {
        (void)fprintf(stderr, "... and %d more bad lines\n", s->bad - BAD_LINES_SHOWN_MAX);
    }
    if (s->bad > 0 && !s->o->skip_invalid) {
        return err_set(
            err, ERR_INVALID,
            "%s: %d of %d lines are bad; nothing was submitted (--skip-invalid submits the others)",
            shown_file(s), s->bad, s->bad + s->good);
    }
    if (s->good == 0) {
        return err_set(err, ERR_INVALID, "%s: no jobs in it", shown_file(s));
    }
    return 0;
}

static int submit_all(struct submission *s, struct err *err)
{
    s->report = false;
    int bad = s->bad;
    s->good = s->bad = 0;
    int rc = each_job(s, add_job, err);
    if (rc == 0) {
        rc = flush_chunk(s, err);
    }
    clear_chunk(s);
    s->bad = bad;
    if (s->conflicts > BAD_LINES_SHOWN_MAX) {
        (void)fprintf(stderr, "... and %d more\n", s->conflicts - BAD_LINES_SHOWN_MAX);
    }
    if (rc == -ERR_CONFLICT && s->conflicts > 0) { /* the lines were named above */
        rc = err_set(
            err, ERR_CONFLICT,
            "%s: %d idempotency key%s taken by other content (--skip-invalid submits the others)",
            shown_file(s), s->conflicts, s->conflicts == 1 ? " is" : "s are");
        if (s->submitted == 0) {
            return err_prefix(err, "nothing was submitted");
        }
    }
    if (rc == 0 && s->refused > 0) {
        *err = s->why;
        return err_prefix(err, "batch %s: %d jobs were submitted, %d were not", s->batch.text,
                          s->good, s->refused);
    }
    if (rc < 0 && s->submitted > 0) {
        return err_prefix(err, "batch %s: the first %d jobs were submitted, then", s->batch.text,
                          s->submitted);
    }
    return rc;
}

/* Best effort: the scheduler looks into Postgres by itself as well. */
static void wake(const struct cli *cli)
{
    struct err err;
    cleanup_queue struct queue q = { 0 };
    if (queue_open(&q, cli->config.redis_url, &err) < 0 || queue_wake(&q, &err) < 0) {
        submit_not_told(&err);
    }
}

static int run_submission(struct submission *s)
{
    struct err err;
    cleanup_pg struct pg pg = { 0 };
    s->pg = &pg;
    if (open_input(s->o->base.arg, &s->fd, &err) < 0 || cli_open_pg(s->cli, &pg, &err) < 0 ||
        validate(s, &err) < 0 || submit_all(s, &err) < 0) {
        return cli_fail(s->cli, &err);
    }
    wake(s->cli);
    if (s->bad || s->conflicts || s->duplicates) {
        (void)fprintf(stderr,
                      "%d jobs submitted, %d bad lines, %d key conflicts, %d already there (same "
                      "key and content)\n",
                      s->good, s->bad, s->conflicts, s->duplicates);
    }
    if (s->good == 0) {
        (void)fprintf(stderr, "nothing new was added, so there is no new batch\n");
        return s->conflicts ? CLI_USAGE : CLI_OK;
    }
    if (s->cli->json && !s->o->wait) {
        (void)printf("{\"batch\":\"%s\",\"submitted\":%d,\"invalid\":%d,\"conflicts\":%d,"
                     "\"duplicates\":%d}\n",
                     s->batch.text, s->good, s->bad, s->conflicts, s->duplicates);
    } else if (!s->cli->json) {
        (void)printf("%s\n", s->batch.text);
    }
    (void)fflush(stdout);
    return s->o->wait ? batch_follow(s->cli, &pg, s->batch.text) : CLI_OK;
}

int cmd_submit(struct cli *cli, int argc, char **argv)
{
    struct opts o = { .base = { .cli = cli, .takes = &takes_file } };
    int rc = cli_parse(cli, &argp, argc, argv, &o);
    if (rc != 0) {
        return rc;
    }
    struct submission *s = calloc(1, sizeof *s);
    cleanup_free struct submission *owned = s;
    cleanup_free struct submit_item *items = calloc(SUBMIT_MAX, sizeof *items);
    cleanup_free int *numbers = calloc(SUBMIT_MAX, sizeof *numbers);
    if (!s || !items || !numbers) {
        abort();
    }
    *s = (struct submission){
        .cli = cli, .o = &o, .fd = -1, .batch = id_new(), .items = items, .line_numbers = numbers
    };
    rc = run_submission(s);
    if (s->fd >= 0) {
        (void)close(s->fd);
    }
    return rc;
}
