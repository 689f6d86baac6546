/* Commands: what the job gives becomes one argv; a shell line becomes the argv of /bin/sh. */
#include "common/model/job_part.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define SHELL_WORDS 4 /* /bin/sh -c LINE sh */

/* argv[c->argc] = text (taken over); make_room has made room, for at most JOB_ARGS_MAX strings and
 * the NULL. */
static int push(struct job_command *c, char *text, size_t *bytes, const char *path, struct err *err)
{
    if (c->argc == JOB_ARGS_MAX) {
        free(text);
        return err_set(err, ERR_TOO_LARGE, "%s: more than %d arguments", path, JOB_ARGS_MAX);
    }
    *bytes += strlen(text) + 1;
    c->argv[c->argc++] = text;
    if (*bytes > JOB_ARGV_BYTES_MAX) {
        return err_set(err, ERR_TOO_LARGE,
                       "%s: more than %d bytes of arguments; put long data into a file or stdin",
                       path, JOB_ARGV_BYTES_MAX);
    }
    return 0;
}

/* min: bytes that the first string has at least. A program has a name; arguments may be empty. */
static int push_list(struct job_command *c, const json_t *list, size_t min, size_t *bytes,
                     const char *path, struct err *err)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        char sub[JR_PATH_MAX];
        (void)snprintf(sub, sizeof sub, "%s[%zu]", path, i);
        char *text = NULL;
        int rc = jr_string(json_array_get(list, i), sub, i == 0 ? min : 0, JOB_ARGV_BYTES_MAX,
                           JR_NO_NUL, &text, err);
        if (rc < 0 || (rc = push(c, text, bytes, path, err)) < 0) {
            return rc;
        }
    }
    return 0;
}

static int push_shell(struct job_command *c, const json_t *line, size_t *bytes, const char *path,
                      struct err *err)
{
    char *text = NULL;
    int rc = jr_string(line, path, 1, JOB_ARGV_BYTES_MAX, JR_NO_NUL, &text, err);
    if (rc < 0) {
        return rc;
    }
    if ((rc = push(c, jr_dup("/bin/sh", 7), bytes, path, err)) < 0 ||
        (rc = push(c, jr_dup("-c", 2), bytes, path, err)) < 0) {
        free(text);
        return rc;
    }
    rc = push(c, text, bytes, path, err);
    return rc < 0 ? rc : push(c, jr_dup("sh", 2), bytes, path, err); /* $0: what follows is $1.. */
}

static void make_room(struct job_command *c, size_t n)
{
    assert(!c->argv && c->argc == 0);
    c->argv = job_new_array((n < JOB_ARGS_MAX ? n : JOB_ARGS_MAX) + 1, sizeof *c->argv);
}

int job_read_command(const json_t *v, const char *at, const json_t *args, const char *args_at,
                     struct job_command *c, struct err *err)
{
    bool shell = json_is_string(v);
    if (!shell && (!json_is_array(v) || json_array_size(v) == 0)) {
        return err_set(err, ERR_INVALID,
                       "%s: must be a list of strings (at least one) or a shell line", at);
    }
    if (args && !json_is_array(args)) {
        return err_set(err, ERR_INVALID, "%s: must be a list of strings", args_at);
    }
    make_room(c, (shell ? SHELL_WORDS : json_array_size(v)) + json_array_size(args));
    size_t bytes = 0;
    int rc = shell ? push_shell(c, v, &bytes, at, err) : push_list(c, v, 1, &bytes, at, err);
    if (rc < 0 || !args) {
        return rc;
    }
    return push_list(c, args, 0, &bytes, args_at, err);
}

int job_read_args(const json_t *v, const char *at, struct job_command *c, struct err *err)
{
    if (!json_is_array(v)) {
        return err_set(err, ERR_INVALID, "%s: must be a list of strings", at);
    }
    make_room(c, json_array_size(v));
    size_t bytes = 0;
    return push_list(c, v, 0, &bytes, at, err);
}
