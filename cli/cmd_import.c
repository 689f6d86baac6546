/* brood import: a known test suite becomes a batch file for brood submit. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <jansson.h>
#include <sodium.h>

#include "cli/cli.h"
#include "cli/humaneval.h"
#include "cli/lines.h"
#include "common/base/cleanup.h"
#include "common/model/job.h"

#define TASKS_MAX 100000

enum { OPT_SAMPLES = 0x2001, OPT_REPLACE, OPT_EXPECT, OPT_TEMPLATE };

struct opts {
    struct cli_opts base;
    const char *suite, *file, *samples, *out;
    struct humaneval_opts conversion;
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct opts *o = state->input;
    switch (key) {
    case OPT_SAMPLES:
        o->samples = arg;
        return 0;
    case OPT_REPLACE:
        o->conversion.replace_body = arg;
        return 0;
    case OPT_EXPECT:
        for (char *p = arg, *end; p; p = end ? end + 1 : NULL) {
            char word[32];
            end = strchr(p, '|');
            (void)snprintf(word, sizeof word, "%.*s", (int)(end ? end - p : (long)strlen(p)), p);
            if (verdict_parse(word) < 0) {
                argp_error(state, "--expect %s: \"%s\" is not a verdict", arg, word);
            }
        }
        o->conversion.expect = arg;
        return 0;
    case OPT_TEMPLATE:
        o->conversion.template_name = arg;
        return 0;
    case 'o':
        o->out = arg;
        return 0;
    case ARGP_KEY_ARG:
        if (!o->suite) {
            o->suite = arg;
        } else if (!o->file) {
            o->file = arg;
        } else {
            argp_error(state, "too many arguments");
        }
        return 0;
    case ARGP_KEY_END:
        if (!o->suite || !o->file) {
            argp_error(state, "a suite and its file are needed: brood import humaneval FILE");
        } else if (strcmp(o->suite, "humaneval") != 0) {
            argp_error(state, "unknown suite \"%s\"; known: humaneval", o->suite);
        } else if (o->samples && o->conversion.replace_body) {
            argp_error(state, "--samples and --replace-body exclude each other");
        }
        return 0;
    default:
        return cli_parse_key(key, arg, state);
    }
}

static const struct argp_option options[] = {
    { .name = "samples",
      .key = OPT_SAMPLES,
      .arg = "FILE",
      .doc =
          "JSONL of {task_id, completion}: one job for each (default: the canonical solutions)" },
    { .name = "replace-body",
      .key = OPT_REPLACE,
      .arg = "STATEMENT",
      .doc = "every function's body is this instead" },
    { .name = "expect",
      .key = OPT_EXPECT,
      .arg = "VERDICT",
      .doc = "add the label expected_verdict (alternatives divided by |)" },
    { .name = "template",
      .key = OPT_TEMPLATE,
      .arg = "NAME",
      .doc = "template of the jobs (default: python)" },
    { .name = "output",
      .key = 'o',
      .arg = "FILE",
      .doc = "batch file to write (default: standard output)" },
    { 0 },
};

static const struct argp argp = {
    .options = options,
    .parser = parse,
    .args_doc = "humaneval FILE[.gz]",
    .doc =
        "Turn a test suite into a batch file for brood submit.\v"
        "A job is accepted only when its program comes to its end: it then prints a random token "
        "that is the "
        "expected output. docs/cli.md says what this does and does not prevent.\n\n"
        "Examples:\n"
        "  brood import humaneval HumanEval.jsonl.gz --expect accepted -o batch.jsonl\n"
        "  brood import humaneval HumanEval.jsonl.gz --samples samples.jsonl | brood submit - "
        "--wait\n"
        "  brood import humaneval HumanEval.jsonl.gz --replace-body 'return None' -o none.jsonl\n",
    .children = cli_globals,
};

struct import {
    const struct opts *o;
    FILE *out;
    json_t *tasks;   /* id -> task */
    json_t *samples; /* id -> how many completions so far */
    int written;
};

static int write_job(struct import *im, const json_t *task, const char *completion, int sample,
                     struct err *err)
{
    uint8_t random[16];
    char token[2 * sizeof random + 1];
    randombytes_buf(random, sizeof random);
    (void)sodium_bin2hex(token, sizeof token, random, sizeof random);
    json_t *job;
    int rc = humaneval_job(task, completion, sample, token, &im->o->conversion, &job, err);
    if (rc < 0) {
        return rc;
    }
    rc = json_dumpf(job, im->out, JSON_COMPACT);
    json_decref(job);
    if (rc != 0 || fputc('\n', im->out) == EOF) {
        return errno == EPIPE ? err_set(err, ERR_CLOSED, "the reader has gone")
                              : err_sys(err, "write");
    }
    im->written++;
    return 0;
}

/* A line of the suite: a job at once, or kept for the samples. */
static int take_task(struct import *im, json_t *line, struct err *err)
{
    const char *id = json_string_value(json_object_get(line, "task_id"));
    if (!im->o->samples) {
        return write_job(im, line, NULL, -1, err);
    }
    if (!id) {
        return err_set(err, ERR_INVALID, "task_id: missing");
    }
    if (json_object_size(im->tasks) >= TASKS_MAX) {
        return err_set(err, ERR_TOO_LARGE, "more than %d tasks", TASKS_MAX);
    }
    (void)json_object_set(im->tasks, id, line);
    return 0;
}

static int take_sample(struct import *im, json_t *line, struct err *err)
{
    const char *id = json_string_value(json_object_get(line, "task_id"));
    const char *completion = json_string_value(json_object_get(line, "completion"));
    if (!id || !completion) {
        return err_set(err, ERR_INVALID, "%s: must be a string", id ? "completion" : "task_id");
    }
    json_t *task = json_object_get(im->tasks, id);
    if (!task) {
        return err_set(err, ERR_INVALID, "task_id: \"%.80s\" is not in %s", id, im->o->file);
    }
    int n = (int)json_integer_value(json_object_get(im->samples, id));
    (void)json_object_set_new(im->samples, id, json_integer(n + 1));
    return write_job(im, task, completion, n, err);
}

static int each_line(struct import *im, const char *path,
                     int (*take)(struct import *, json_t *, struct err *), struct err *err)
{
    cleanup_lines struct lines lines = { 0 };
    int rc = lines_open(&lines, path, HUMANEVAL_LINE_MAX, err);
    while (rc >= 0) {
        rc = lines_next(&lines, err);
        if (rc == 0) {
            return 0;
        }
        if (rc > 0 && !lines_blank(&lines)) {
            json_error_t bad;
            json_t *line = json_loadb(lines.buf.data, lines.buf.len, 0, &bad);
            rc = line ? take(im, line, err)
                      : err_set(err, ERR_INVALID, "not JSON: %s (column %d)", bad.text, bad.column);
            json_decref(line);
        }
        if (rc < 0 && rc != -ERR_CLOSED) {
            return err_prefix(err, "%s:%d", path, lines.number);
        }
    }
    return rc;
}

int cmd_import(struct cli *cli, int argc, char **argv)
{
    struct opts o = { .base.cli = cli, .conversion.template_name = "python" };
    int rc = cli_parse(cli, &argp, argc, argv, &o);
    if (rc != 0) {
        return rc;
    }
    struct err err;
    cleanup_fclose FILE *file = NULL;
    char tmp[CONFIG_STR_MAX] = "";
    if (o.out && strcmp(o.out, "-") != 0) {
        (void)snprintf(tmp, sizeof tmp, "%s.tmp-%d", o.out, (int)getpid());
        if (!(file = fopen(tmp, "we"))) {
            return cli_fail_text(CLI_USAGE, "--output %s: %s", o.out, strerror(errno));
        }
    }
    struct import im = {
        .o = &o, .out = file ? file : stdout, .tasks = json_object(), .samples = json_object()
    };
    rc = each_line(&im, o.file, take_task, &err);
    if (rc >= 0 && o.samples) {
        rc = each_line(&im, o.samples, take_sample, &err);
    }
    json_decref(im.tasks);
    json_decref(im.samples);
    if (file) {
        FILE *closing = TAKE_PTR(file);
        if (fclose(closing) != 0 && rc >= 0) {
            rc = err_sys(&err, "--output %s", o.out);
        }
        if (rc >= 0 && rename(tmp, o.out) < 0) {
            rc = err_sys(&err, "--output %s", o.out);
        }
        if (rc < 0) {
            (void)unlink(tmp);
        }
    }
    if (rc < 0) {
        return rc == -ERR_CLOSED ? CLI_OTHER : cli_fail(cli, &err);
    }
    (void)fprintf(stderr, "%d jobs%s%s\n", im.written, file || o.out ? " in " : "",
                  o.out ? o.out : "");
    return CLI_OK;
}
