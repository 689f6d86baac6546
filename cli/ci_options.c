#include "cli/ci_options.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cli/jobargs.h"
#include "common/model/glob.h"
#include "common/model/job.h"
#include "common/report/shard.h"

enum {
    OPT_TEMPLATE = 't',
    OPT_SHARDS = 'n',
    OPT_LIMIT = 'l',
    OPT_ENV = 'e',
    OPT_SETUP = 0x2001,
    OPT_JUNIT,
    OPT_CTRF,
    OPT_ARTIFACT,
    OPT_REPORT,
    OPT_INCLUDE,
    OPT_TEST_FILES,
    OPT_TIMINGS
};

void string_list_add(struct string_list *l, const char *text)
{
    char **items = realloc(l->items, ((size_t)l->n + 2) * sizeof *items);
    char *copy = strdup(text);
    if (!items || !copy) {
        abort();
    }
    items[l->n] = copy;
    items[++l->n] = NULL;
    l->items = items;
}

static void add_glob(struct argp_state *state, struct string_list *l, const char *option,
                     const char *text)
{
    struct err err;
    if (l->n == (int)GLOBS_MAX) {
        argp_error(state, "%s: at most %u", option, GLOBS_MAX);
    } else if (glob_check(text, strlen(text), &err) < 0) {
        argp_error(state, "%s %s: %s", option, text, err.text);
    } else {
        string_list_add(l, text);
    }
}

static unsigned shards_of(struct argp_state *state, const char *text)
{
    char *end;
    errno = 0;
    unsigned long n = strtoul(text, &end, 10);
    if (errno || *end || text[0] < '0' || text[0] > '9' || n < 1 || n > SHARDS_MAX) {
        argp_error(state, "--shards %s: must be a whole number from 1 to %u", text, SHARDS_MAX);
    }
    return (unsigned)n;
}

static void usage_if(struct argp_state *state, int rc, const struct err *err)
{
    if (rc < 0) {
        argp_error(state, "%s", err->text);
    }
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct ci_options *o = state->input;
    struct brood_json *p = &o->plan;
    struct err err;
    switch (key) {
    case OPT_TEMPLATE:
        free(p->template_name);
        p->template_name = strdup(arg);
        return 0;
    case OPT_SHARDS:
        p->shards = shards_of(state, arg);
        return 0;
    case OPT_SETUP:
        if (!*arg || strlen(arg) > BROOD_JSON_LINE_BYTES_MAX ||
            p->setup.n == BROOD_JSON_STEPS_MAX) {
            argp_error(state, "--setup: at most %d lines of 1 to %u bytes", BROOD_JSON_STEPS_MAX,
                       BROOD_JSON_LINE_BYTES_MAX);
        }
        string_list_add(&p->setup, arg);
        return 0;
    case OPT_LIMIT:
        p->limits = p->limits ? p->limits : json_object();
        usage_if(state, jobargs_limit(p->limits, arg, &err), &err);
        return 0;
    case OPT_ENV:
        p->env = p->env ? p->env : json_object();
        usage_if(state, jobargs_env(p->env, arg, &err), &err);
        return 0;
    case OPT_JUNIT:
        o->junit = arg;
        return 0;
    case OPT_CTRF:
        o->ctrf = arg;
        return 0;
    case OPT_TIMINGS:
        o->timings = arg;
        return 0;
    case OPT_ARTIFACT:
        add_glob(state, &p->artifacts, "--artifact", arg);
        return 0;
    case OPT_REPORT:
        add_glob(state, &p->reports, "--report", arg);
        return 0;
    case OPT_INCLUDE:
        add_glob(state, &p->include, "--include", arg);
        return 0;
    case OPT_TEST_FILES:
        add_glob(state, &p->test_files, "--test-files", arg);
        return 0;
    case ARGP_KEY_ARG:
        /* From the first word on everything is the command's, options too. */
        if (state->argc - state->next + 1 > BROOD_JSON_ARGS_MAX) {
            argp_error(state, "the command: at most %d words", BROOD_JSON_ARGS_MAX);
        }
        for (int i = state->next - 1; i < state->argc; i++) {
            string_list_add(&p->test, state->argv[i]);
        }
        state->next = state->argc;
        return 0;
    default:
        return cli_parse_key(key, arg, state);
    }
}

static const struct argp_option options[] = {
    { .name = "template", .key = OPT_TEMPLATE, .arg = "NAME", .doc = "default: python" },
    { .name = "shards", .key = OPT_SHARDS, .arg = "N", .doc = "how many forks (default: 1)" },
    { .name = "setup",
      .key = OPT_SETUP,
      .arg = "SHELL-LINE",
      .doc = "runs once, before the shards are forked; may be given several times" },
    { .name = "test-files",
      .key = OPT_TEST_FILES,
      .arg = "GLOB",
      .doc = "files of the checkout that are dealt to the shards, as arguments of the command" },
    { .name = "timings",
      .key = OPT_TIMINGS,
      .arg = "FILE",
      .doc = "a past report: deal by how long each file took" },
    { .name = "report",
      .key = OPT_REPORT,
      .arg = "GLOB",
      .doc = "files of each shard that are read as test reports and merged" },
    { .name = "artifact",
      .key = OPT_ARTIFACT,
      .arg = "GLOB",
      .doc = "files of each shard to keep" },
    { .name = "include",
      .key = OPT_INCLUDE,
      .arg = "GLOB",
      .doc = "files to take along although git ignores them" },
    { .name = "junit", .key = OPT_JUNIT, .arg = "OUT.xml", .doc = "write the merged report there" },
    { .name = "ctrf", .key = OPT_CTRF, .arg = "OUT.json", .doc = "the same as CTRF" },
    { .name = "limit",
      .key = OPT_LIMIT,
      .arg = "NAME=N",
      .doc = "of one shard's command: cpu_ms, wall_ms, memory_mib, processes, disk_mib, "
             "disk_files, output_bytes, open_files" },
    { .name = "env", .key = OPT_ENV, .arg = "NAME=VALUE", .doc = "an environment variable" },
    { 0 },
};

static const struct argp argp = {
    .options = options,
    .parser = parse,
    .args_doc = "[--] [COMMAND [ARGUMENT...]]",
    .doc =
        "Run the tests of the checkout in this folder: packed and uploaded once, set up once, and "
        "each shard in a fork of that machine. What is not given is taken from brood.json.\v"
        "Exit status: 0 all passed; 1 tests failed, or none was read although reports were asked "
        "for; 2 usage; 123 setup failed, or a limit other than time ended a shard; 124 a time "
        "limit; 125 brood could not run them (service, fault of ours, cancelled).\n\n"
        "Examples:\n"
        "  brood ci\n"
        "  brood ci --shards 4 --report report.xml --junit out.xml -- python3 run_tests.py\n"
        "  brood ci --shards 8 --test-files 'tests/test_*.py' --timings last.xml --report "
        "report.xml\n",
    .children = cli_globals,
};

int ci_options_parse(struct cli *cli, int argc, char **argv, struct ci_options *o)
{
    *o = (struct ci_options){ .base.cli = cli };
    return cli_parse_in_order(cli, &argp, argc, argv, o);
}

void ci_options_done(struct ci_options *o)
{
    brood_json_done(&o->plan);
}

static void take_list(struct string_list *to, struct string_list *from)
{
    if (to->n == 0) {
        struct string_list empty = *to;
        *to = *from;
        *from = empty;
    }
}

/* What to has stays. */
static void take_object(json_t **to, json_t *from)
{
    if (!from) {
        return;
    }
    if (!*to) {
        *to = json_object();
    }
    (void)json_object_update_missing(*to, from);
}

int ci_plan_merge(struct brood_json *plan, struct brood_json *file, struct err *err)
{
    if (!plan->template_name) {
        plan->template_name =
            file->template_name ? TAKE_PTR(file->template_name) : strdup(CI_TEMPLATE_DEFAULT);
    }
    plan->shards = plan->shards ? plan->shards : file->shards ? file->shards : CI_SHARDS_DEFAULT;
    if (plan->test.n == 0) {
        plan->test_is_shell = file->test_is_shell;
    }
    take_list(&plan->test, &file->test);
    take_list(&plan->setup, &file->setup);
    take_list(&plan->artifacts, &file->artifacts);
    take_list(&plan->reports, &file->reports);
    take_list(&plan->key_files, &file->key_files);
    take_list(&plan->include, &file->include);
    take_list(&plan->test_files, &file->test_files);
    take_object(&plan->env, file->env);
    take_object(&plan->limits, file->limits);
    take_object(&plan->setup_limits, file->setup_limits);
    if (plan->test.n == 0) {
        return err_set(err, ERR_USAGE,
                       "which command runs the tests? (brood ci -- COMMAND, or \"test\" in "
                       "brood.json)");
    }
    return 0;
}
