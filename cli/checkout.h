/* What `brood ci` takes of a checkout: the files that git would see, or everything where there is
 * no git.
 *
 * With git: `git ls-files --cached --others --exclude-standard` in the folder, so what is tracked
 * and what is new but not ignored, as it lies in the work tree; a tracked file that was deleted is
 * left out; a submodule or a repository inside counts as a folder and is taken whole, without its
 * .git. Git must succeed in a folder that it rules (one with .git in it or above): falling back to
 * everything would upload what was ignored, secrets too. Without git (no .git anywhere, or no
 * program git): everything but folders and files named .git.
 *
 * What is listed is what a job's archive may hold (JOB_ARCHIVE_*, common/archive/tree.h), so that
 * nothing is packed and uploaded that the worker refuses. Symbolic links are listed as links and
 * never followed; those that leave the folder are left out and named. Sockets, FIFOs and devices
 * are left out and counted. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/base/cleanup.h"
#include "common/base/err.h"

#define CHECKOUT_FILES_MAX 200000u    /* looked at; of git's list some are given several times */
#define CHECKOUT_PATH_BYTES_MAX 4095u /* looked at; taken are JOB_ARCHIVE_PATH_BYTES_MAX */
#define CHECKOUT_LIST_BYTES_MAX (64u << 20) /* all paths, each with its NUL */
#define CHECKOUT_DEPTH_MAX 128              /* nested folders that are walked */
#define CHECKOUT_INCLUDES_MAX 64u
#define CHECKOUT_LEFT_OUT_TOLD_MAX 10u

struct checkout_file {
    char *path;  /* clean and relative to the folder; bytes, maybe not UTF-8 */
    mode_t mode; /* S_IFREG | 0644, S_IFREG | 0755 (the owner may execute) or S_IFLNK | 0777 */
    uint64_t size_bytes; /* of a link: of its target's name */
};
struct checkout {
    struct checkout_file *files; /* in path_order, each path once */
    size_t n, room;
    size_t list_bytes;
    uint64_t size_bytes; /* of all files */
    size_t n_special;    /* left out: sockets, FIFOs, devices */
    size_t n_left_out;   /* links; the first of them, each with the rule, as printable text: */
    char *left_out[CHECKOUT_LEFT_OUT_TOLD_MAX];
    bool used_git;
};

/* List the folder. includes: globs (common/model/glob.h) of files to take although git ignores
 * them; .git never is. -ERR_NOT_FOUND: no such folder; -ERR_INVALID: a glob or path that cannot be
 * used, or git's own words; -ERR_TOO_LARGE: a maximum, named; -ERR_SYS. *c is set on success only;
 * checkout_done frees. Not thread-safe with chdir. */
MUST_CHECK int checkout_list(const char *dir, const char *const *includes, size_t n_includes,
                             struct checkout *ret_c, struct err *err);
void checkout_done(struct checkout *c);
