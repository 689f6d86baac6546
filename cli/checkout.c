/* The list of a checkout. Paths are collected from git or from a walk, then looked at with lstat
 * below one folder's fd, so that a path always means the same folder; whatever vanished meanwhile
 * is left out. */
#include "cli/checkout.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/archive/tree.h"
#include "common/base/buf.h"
#include "common/base/path.h"
#include "common/model/glob.h"
#include "common/model/job.h"

extern char **environ;

void checkout_done(struct checkout *c)
{
    for (size_t i = 0; i < c->n; i++) {
        free(c->files[i].path);
    }
    free(c->files);
    for (size_t i = 0; i < CHECKOUT_LEFT_OUT_TOLD_MAX; i++) {
        free(c->left_out[i]);
    }
    *c = (struct checkout){ 0 };
}
DEFINE_CLEANUP(closedir_fn, DIR, (void)closedir)

/* path is bytes: for an error's text. */
static const char *shown(const char *path, char out[128])
{
    size_t n = strnlen(path, 127);
    for (size_t i = 0; i < n; i++) {
        out[i] =
            (char)((unsigned char)path[i] < 0x20 || (unsigned char)path[i] >= 0x7f ? '?' : path[i]);
    }
    out[n] = 0;
    return out;
}

static int add(struct checkout *c, const char *path, const struct stat *st, struct err *err)
{
    char text[128];
    size_t n = strlen(path);
    if (!S_ISREG(st->st_mode) && !S_ISLNK(st->st_mode)) {
        c->n_special++;
        return 0;
    }
    if (n > CHECKOUT_PATH_BYTES_MAX || !path_clean(path, n)) {
        return err_set(err, ERR_INVALID, "%s: not a path that can be packed", shown(path, text));
    }
    if (c->n == CHECKOUT_FILES_MAX) {
        return err_set(err, ERR_TOO_LARGE, "more than %u files", CHECKOUT_FILES_MAX);
    }
    if (n + 1 > CHECKOUT_LIST_BYTES_MAX - c->list_bytes) {
        return err_set(err, ERR_TOO_LARGE, "paths of more than %u bytes", CHECKOUT_LIST_BYTES_MAX);
    }
    if (c->n == c->room) {
        c->room = c->room ? 2 * c->room : 256;
        struct checkout_file *p = realloc(c->files, c->room * sizeof *p);
        if (!p) {
            abort();
        }
        c->files = p;
    }
    mode_t mode =
        S_ISLNK(st->st_mode) ? S_IFLNK | 0777 : S_IFREG | (st->st_mode & S_IXUSR ? 0755 : 0644);
    char *copy = strdup(path);
    if (!copy) {
        abort();
    }
    c->files[c->n++] = (struct checkout_file){ copy, mode, (uint64_t)st->st_size };
    c->list_bytes += n + 1;
    return 0;
}

/* Which paths a walk takes. n_globs 0: all. */
struct filter {
    const char *const *globs;
    size_t n_globs;
};

static bool takes(const struct filter *f, const char *path, bool folder)
{
    size_t n = strlen(path);
    for (size_t i = 0; i < f->n_globs; i++) {
        size_t g = strlen(f->globs[i]);
        if (folder ? glob_may_match_below(f->globs[i], g, path, n)
                   : glob_match(f->globs[i], g, path, n)) {
            return true;
        }
    }
    return f->n_globs == 0;
}

/* Everything below the folder rel ("": dir_fd itself) but .git. */
static int walk(struct checkout *c, int dir_fd, const char *rel, int depth,
                const struct filter *filter, struct err *err)
{
    char text[128];
    if (depth > CHECKOUT_DEPTH_MAX) {
        return err_set(err, ERR_TOO_LARGE, "%s: folders nested deeper than %d", shown(rel, text),
                       CHECKOUT_DEPTH_MAX);
    }
    int fd = openat(dir_fd, rel[0] ? rel : ".", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) {
        return errno == ENOENT ? 0 : err_sys(err, "open %s", shown(rel, text));
    }
    CLEANUP(closedir_fn) DIR *d = fdopendir(fd);
    if (!d) {
        (void)close(fd);
        return err_sys(err, "read %s", shown(rel, text));
    }
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0 ||
            strcmp(e->d_name, ".git") == 0) {
            continue;
        }
        char path[CHECKOUT_PATH_BYTES_MAX + 1];
        int n = snprintf(path, sizeof path, "%s%s%s", rel, rel[0] ? "/" : "", e->d_name);
        if (n >= (int)sizeof path) {
            return err_set(err, ERR_TOO_LARGE, "%s: a path of more than %u bytes", shown(rel, text),
                           CHECKOUT_PATH_BYTES_MAX);
        }
        struct stat st;
        if (fstatat(fd, e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
            continue; /* gone meanwhile */
        }
        int rc = 0;
        if (S_ISDIR(st.st_mode)) {
            rc = takes(filter, path, true) ? walk(c, dir_fd, path, depth + 1, filter, err) : 0;
        } else if (takes(filter, path, false)) {
            rc = add(c, path, &st, err);
        }
        if (rc < 0) {
            return rc;
        }
    }
    return 0;
}

/* .git in the folder or one above. */
static bool ruled_by_git(const char *dir)
{
    char real[PATH_MAX];
    if (!realpath(dir, real)) {
        return false;
    }
    for (;;) {
        char git[PATH_MAX + 8];
        struct stat st;
        (void)snprintf(git, sizeof git, "%s/.git", real);
        if (lstat(git, &st) == 0) {
            return true;
        }
        char *slash = strrchr(real, '/');
        if (!slash || (slash == real && real[1] == 0)) {
            return false;
        }
        slash[slash == real ? 1 : 0] = 0;
    }
}

/* Our environment without what a hook of git leaves in it. The caller frees the list only. */
static char **git_environment(void)
{
    static const char *const dropped[] = { "GIT_DIR=", "GIT_WORK_TREE=", "GIT_INDEX_FILE=",
                                           "GIT_PREFIX=", "LC_ALL=" };
    static char plain[] = "LC_ALL=C", quiet[] = "GIT_OPTIONAL_LOCKS=0";
    size_t n = 0;
    while (environ[n]) {
        n++;
    }
    char **env = calloc(n + 3, sizeof *env);
    if (!env) {
        abort();
    }
    size_t kept = 0;
    for (size_t i = 0; i < n; i++) {
        bool drop = false;
        for (size_t k = 0; k < sizeof dropped / sizeof *dropped; k++) {
            drop |= strncmp(environ[i], dropped[k], strlen(dropped[k])) == 0;
        }
        if (!drop) {
            env[kept++] = environ[i];
        }
    }
    env[kept++] = plain;
    env[kept] = quiet;
    return env;
}

static int start_git(const char *dir, int out_fd, int err_fd, pid_t *ret_pid)
{
    static const char *const words[] = { "git",      "ls-files",           "-z", "--cached",
                                         "--others", "--exclude-standard", NULL };
    char *argv[sizeof words / sizeof *words];
    memcpy(argv, words, sizeof words);
    cleanup_free char **env = git_environment();
    posix_spawn_file_actions_t act;
    if (posix_spawn_file_actions_init(&act) != 0) {
        abort();
    }
    int rc = posix_spawn_file_actions_addopen(&act, 0, "/dev/null", O_RDONLY, 0);
    rc = rc ? rc : posix_spawn_file_actions_adddup2(&act, out_fd, 1);
    rc = rc ? rc : posix_spawn_file_actions_adddup2(&act, err_fd, 2);
    rc = rc ? rc : posix_spawn_file_actions_addchdir_np(&act, dir);
    rc = rc ? rc : posix_spawnp(ret_pid, "git", &act, NULL, argv, env);
    (void)posix_spawn_file_actions_destroy(&act);
    return rc;
}

/* First line of what git said. */
static void git_words(int fd, char out[256])
{
    ssize_t n = pread(fd, out, 255, 0);
    out[n > 0 ? n : 0] = 0;
    out[strcspn(out, "\n")] = 0;
    for (char *p = out; *p; p++) {
        *p = (char)((unsigned char)*p < 0x20 || (unsigned char)*p >= 0x7f ? '?' : *p);
    }
}

/* git's list into out. Returns 0 when there is no program git, else 1. */
static int ask_git(const char *dir, struct buf *out, struct err *err)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0) {
        return err_sys(err, "pipe");
    }
    cleanup_close int from = ends[0], to = ends[1];
    cleanup_close int words = memfd_create("git", MFD_CLOEXEC);
    if (words < 0) {
        return err_sys(err, "memfd_create");
    }
    pid_t pid;
    int rc = start_git(dir, to, words, &pid);
    if (rc == ENOENT) {
        return 0;
    }
    if (rc != 0) {
        errno = rc;
        return err_sys(err, "start git");
    }
    (void)close(TAKE_FD(to));
    rc = buf_read_fd(out, from, err);
    (void)close(TAKE_FD(from)); /* a list that is too long ends by SIGPIPE */
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    if (rc < 0) {
        return err_prefix(err, "git ls-files");
    }
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        char said[256];
        git_words(words, said);
        return err_set(err, ERR_INVALID, "git ls-files failed: %s",
                       said[0] ? said : "it said nothing");
    }
    return 1;
}

static int take_git(struct checkout *c, int dir_fd, const struct buf *list, struct err *err)
{
    static const struct filter all = { 0 };
    for (size_t at = 0; at < list->len;) {
        char *path = list->data + at;
        size_t n = strnlen(path, list->len - at);
        at += n + 1;
        if (n > 1 && path[n - 1] == '/') { /* a repository inside that is not tracked */
            path[n - 1] = 0;
        }
        struct stat st;
        if (fstatat(dir_fd, path, &st, AT_SYMLINK_NOFOLLOW) < 0) {
            continue; /* tracked and deleted */
        }
        int rc = S_ISDIR(st.st_mode) ? walk(c, dir_fd, path, 1, &all, err) : add(c, path, &st, err);
        if (rc < 0) {
            return rc;
        }
    }
    return 0;
}

static int by_path(const void *pa, const void *pb)
{
    const struct checkout_file *a = pa, *b = pb;
    return path_order(a->path, strlen(a->path), b->path, strlen(b->path));
}

/* Sorted, each path once (git lists a file in conflict up to three times). */
static void finish(struct checkout *c)
{
    if (c->n) {
        qsort(c->files, c->n, sizeof *c->files, by_path);
    }
    size_t kept = 0;
    for (size_t i = 0; i < c->n; i++) {
        if (kept && strcmp(c->files[kept - 1].path, c->files[i].path) == 0) {
            free(c->files[i].path);
            continue;
        }
        c->files[kept++] = c->files[i];
    }
    c->n = kept;
}

static void leave_out(struct checkout *c, const struct checkout_file *f, const struct err *why)
{
    char text[128];
    if (c->n_left_out < CHECKOUT_LEFT_OUT_TOLD_MAX &&
        asprintf(&c->left_out[c->n_left_out], "%s: %s", shown(f->path, text), why->text) < 0) {
        abort();
    }
    c->n_left_out++;
    free(f->path);
}

/* The file as the worker's unpacking will see it: -ERR_INVALID or -ERR_TOO_LARGE as there. */
static int try_file(struct tree *t, int dir_fd, const struct checkout_file *f, struct err *err)
{
    char target[JOB_ARCHIVE_PATH_BYTES_MAX + 2];
    struct unpack_entry e = { .path = f->path, .path_len = strlen(f->path), .type = UNPACK_FILE };
    if (S_ISLNK(f->mode)) {
        ssize_t n = readlinkat(dir_fd, f->path, target, sizeof target - 1);
        if (n < 0) {
            return err_sys(err, "read the link");
        }
        if (n > JOB_ARCHIVE_PATH_BYTES_MAX) {
            return err_set(err, ERR_INVALID, "a link's target of more than %d bytes",
                           JOB_ARCHIVE_PATH_BYTES_MAX);
        }
        target[n] = 0;
        e.type = UNPACK_LINK;
        e.target = target;
        e.target_len = (size_t)n;
    }
    if (e.path_len > JOB_ARCHIVE_PATH_BYTES_MAX) {
        return err_set(err, ERR_TOO_LARGE, "a path of more than %d bytes",
                       JOB_ARCHIVE_PATH_BYTES_MAX);
    }
    return tree_add(t, &e, err);
}

/* What a job's archive cannot hold: links are left out, for anything else this is the end. */
static int keep_what_fits(struct checkout *c, int dir_fd, struct err *err)
{
    char text[128];
    size_t kept = 0;
    int rc = 0;
    struct tree t;
    tree_init(&t, JOB_ARCHIVE_ENTRIES_MAX, JOB_ARCHIVE_PATH_BYTES_MAX);
    for (size_t i = 0; i < c->n; i++) {
        const struct checkout_file f = c->files[i];
        int fits = rc < 0 ? 0 : try_file(&t, dir_fd, &f, err);
        if (fits == -ERR_INVALID && S_ISLNK(f.mode)) {
            leave_out(c, &f, err);
            continue;
        }
        rc = fits < 0 ? err_prefix(err, "%s", shown(f.path, text)) : rc;
        c->files[kept++] = f;
        c->size_bytes += f.size_bytes;
    }
    c->n = kept; /* all of them, also after an error: they are freed */
    tree_done(&t);
    if (rc == 0 && c->size_bytes > JOB_ARCHIVE_BYTES_MAX) {
        return err_set(err, ERR_TOO_LARGE,
                       "the checkout has %llu MiB; at most %llu (what git ignores is left out)",
                       (unsigned long long)((c->size_bytes + (1 << 20) - 1) >> 20),
                       JOB_ARCHIVE_BYTES_MAX >> 20);
    }
    return rc;
}

static int list(const char *dir, const struct filter *includes, struct checkout *c, struct err *err)
{
    static const struct filter all = { 0 };
    cleanup_close int dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir_fd < 0) {
        return errno == ENOENT || errno == ENOTDIR
                   ? err_set(err, ERR_NOT_FOUND, "%s: no such folder", dir)
                   : err_sys(err, "open %s", dir);
    }
    cleanup_buf struct buf paths = { 0 };
    buf_init(&paths, CHECKOUT_LIST_BYTES_MAX);
    int rc = ruled_by_git(dir) ? ask_git(dir, &paths, err) : 0;
    if (rc == 0) {
        rc = walk(c, dir_fd, "", 0, &all, err);
    } else if (rc > 0) {
        c->used_git = true;
        rc = take_git(c, dir_fd, &paths, err);
        if (rc == 0 && includes->n_globs > 0) {
            rc = walk(c, dir_fd, "", 0, includes, err);
        }
    }
    if (rc < 0) {
        return rc;
    }
    finish(c);
    return keep_what_fits(c, dir_fd, err);
}

int checkout_list(const char *dir, const char *const *includes, size_t n_includes,
                  struct checkout *ret_c, struct err *err)
{
    if (n_includes > CHECKOUT_INCLUDES_MAX) {
        return err_set(err, ERR_TOO_LARGE, "more than %u globs to include", CHECKOUT_INCLUDES_MAX);
    }
    for (size_t i = 0; i < n_includes; i++) {
        if (glob_check(includes[i], strlen(includes[i]), err) < 0) {
            return err_prefix(err, "include %zu", i + 1);
        }
    }
    struct checkout c = { 0 };
    struct filter filter = { includes, n_includes };
    int rc = list(dir, &filter, &c, err);
    if (rc < 0) {
        checkout_done(&c);
        return rc;
    }
    *ret_c = c;
    return 0;
}
