/* expect.checker: a program of the submitter's that judges the output, in a machine of its own. */
#include "common/model/job_part.h"

#include <stdlib.h>
#include <string.h>

static const char *const protocols[] = { "kattis", "testlib" };

const char *checker_protocol_word(enum checker_protocol p)
{
    return protocols[p];
}

static int read_protocol(const json_t *v, const char *at, enum checker_protocol *ret_protocol,
                         struct err *err)
{
    for (int p = CHECKER_KATTIS; json_is_string(v) && p <= CHECKER_TESTLIB; p++) {
        if (strcmp(json_string_value(v), protocols[p]) == 0) {
            *ret_protocol = (enum checker_protocol)p;
            return 0;
        }
    }
    return v ? err_set(err, ERR_INVALID, "%s.protocol: must be kattis or testlib", at) : 0;
}

static int read_template(const json_t *v, const char *at, char **ret_name, struct err *err)
{
    char sub[JR_PATH_MAX];
    job_field(sub, at, "template");
    int rc = v ? jr_string(v, sub, 1, JOB_TEMPLATE_MAX, JR_PRINTABLE, ret_name, err) : 0;
    if (rc == 0 && v && !job_template_ok(*ret_name)) {
        return err_set(err, ERR_INVALID, "%s: must be a name (letters, digits, _ . -)", sub);
    }
    return rc;
}

/* What the protocol appends to the command, then the job's own args. */
static json_t *all_args(enum checker_protocol p, const json_t *own)
{
    json_t *args = p == CHECKER_KATTIS
                       ? json_pack("[s, s, s]", CHECKER_INPUT, CHECKER_ANSWER, CHECKER_FEEDBACK "/")
                       : json_pack("[s, s, s]", CHECKER_INPUT, CHECKER_OUTPUT, CHECKER_ANSWER);
    if (!args || (own && json_array_extend(args, (json_t *)(uintptr_t)own) < 0)) {
        abort();
    }
    return args;
}

static int read_command(const json_t *v, const char *at, struct job_checker *c, struct err *err)
{
    char sub[JR_PATH_MAX], args_at[JR_PATH_MAX];
    const json_t *command = json_object_get(v, "command"), *own = json_object_get(v, "args");
    job_field(sub, at, "command");
    job_field(args_at, at, "args");
    if (!command) {
        return err_set(err, ERR_INVALID, "%s: missing; a list of strings or a shell line", sub);
    }
    if (own && !json_is_array(own)) {
        return err_set(err, ERR_INVALID, "%s: must be a list of strings", args_at);
    }
    cleanup_json json_t *args = all_args(c->protocol, own);
    return job_read_command(command, sub, args, args_at, &c->command, err);
}

static int check_files(const struct job_checker *c, const char *at, struct err *err)
{
    static const char *const taken[] = { CHECKER_INPUT, CHECKER_OUTPUT, CHECKER_ANSWER,
                                         CHECKER_FEEDBACK };
    for (int i = 0; i < c->n_files; i++) {
        for (size_t k = 0; k < sizeof taken / sizeof taken[0]; k++) {
            size_t n = strlen(taken[k]);
            const char *path = c->files[i].path;
            if (strncmp(path, taken[k], n) == 0 && (path[n] == 0 || path[n] == '/')) {
                return err_set(err, ERR_INVALID,
                               "%s.files[%d].path: \"%s\" is what the checker is given", at, i,
                               taken[k]);
            }
        }
    }
    return 0;
}

int job_read_checker(const json_t *v, const char *at, struct job_checker **ret_checker,
                     struct err *err)
{
    static const char *const known[] = { "command", "args",     "files",    "setup",
                                         "limits",  "template", "protocol", NULL };
    char sub[JR_PATH_MAX];
    int rc = v ? jr_object(v, at, known, err) : 0;
    if (!v || rc < 0) {
        return rc;
    }
    struct job_checker *c = *ret_checker = job_new_array(1, sizeof *c);
    size_t bytes = 0;
    rc = read_protocol(json_object_get(v, "protocol"), at, &c->protocol, err);
    rc = rc < 0 ? rc : read_template(json_object_get(v, "template"), at, &c->template_name, err);
    rc = rc < 0 ? rc : read_command(v, at, c, err);
    job_field(sub, at, "files");
    rc = rc < 0 ? rc
                : job_read_files(json_object_get(v, "files"), sub, &c->files, &c->n_files, &bytes,
                                 err);
    rc = rc < 0 ? rc : check_files(c, at, err);
    job_field(sub, at, "setup");
    rc =
        rc < 0 ? rc : job_read_steps(json_object_get(v, "setup"), sub, &c->steps, &c->n_steps, err);
    job_field(sub, at, "limits");
    return rc < 0 ? rc
                  : job_read_limits(json_object_get(v, "limits"), sub, false, &c->command, err);
}
