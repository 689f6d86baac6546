/* The directory driver on a real file system: what every driver must do, and what only files can
 * suffer. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "tests/support/object_checks.h"

static char top[] = "/tmp/brood-t-objects-XXXXXX";
static struct object_options options;
static struct object_store *store;
static struct err err;

#define OK(call) cr_assert_eq((call), 0, "%s: %s", #call, err.text)

static void setup(void)
{
    cr_assert_not_null(mkdtemp(top));
    (void)snprintf(options.dir, sizeof options.dir, "%s/objects", top);
    OK(object_store_open(&store, &options, &err));
}

static void teardown(void)
{
    char command[128];
    object_store_free(store);
    (void)snprintf(command, sizeof command, "rm -rf -- %s", top);
    cr_assert_eq(system(command), 0);
}

TestSuite(object_dir, .init = setup, .fini = teardown);

static void path_of(const struct object_id *id, char out[700])
{
    char part[OBJECT_PATH + 1];
    object_id_path(id, part);
    (void)snprintf(out, 700, "%s/%s", options.dir, part);
}

static int tmp_files(void)
{
    char path[600];
    int n = 0;
    (void)snprintf(path, sizeof path, "%s/tmp", options.dir);
    DIR *d = opendir(path);
    cr_assert_not_null(d);
    for (const struct dirent *e; (e = readdir(d));) {
        n += e->d_name[0] != '.';
    }
    (void)closedir(d);
    return n;
}

Test(object_dir, round_trip)
{
    const size_t sizes[] = { 0, 1, 128 * 1024 - 1, 128 * 1024, 128 * 1024 + 1, 5000000 };
    for (int i = 0; i < 6; i++) {
        object_check_round_trip(store, sizes[i]);
    }
    cr_assert_eq(tmp_files(), 0);
}

Test(object_dir, stream)
{
    object_check_stream(store);
    cr_assert_eq(tmp_files(), 0);
}

Test(object_dir, sink_is_a_pipe)
{
    object_check_sink_is_a_pipe(store);
}

Test(object_dir, refusals)
{
    object_check_refusals(store);
    cr_assert_eq(tmp_files(), 0);
}

Test(object_dir, absent)
{
    object_check_absent(store);
}

Test(object_dir, ranges)
{
    object_check_ranges(store);
}

Test(object_dir, parallel)
{
    object_check_parallel(store);
}

Test(object_dir, sweep)
{
    object_check_sweep(store);
}

Test(object_dir, a_put_renews_what_is_old)
{
    object_store_free(store);
    options.renew_after_s = 1;
    OK(object_store_open(&store, &options, &err));
    object_check_renew(store);
}

Test(object_dir, list)
{
    object_check_list(store);
}

Test(object_dir, layout_and_mode)
{
    struct object_id id;
    char path[700];
    OK(object_put_bytes(store, "", 0, &id, &err));
    cr_assert_str_eq(id.hex, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    (void)snprintf(path, sizeof path, "%s/e3/b0/%s", options.dir, id.hex);
    struct stat st;
    cr_assert_eq(stat(path, &st), 0);
    cr_assert_eq(st.st_mode & 07777, 0444);
    char url[OBJECT_URL_MAX];
    cr_assert_eq(object_presign_get(store, &id, 60, url, &err), -ERR_UNSUPPORTED);
}

Test(object_dir, names_that_are_not_objects)
{
    struct object_id id = object_put_seeded(store, 10, 1);
    struct object_info rows[10];
    char path[700], other[720];
    path_of(&id, path);
    const char *suffix[] = { "x", ".part", "~" };
    for (int i = 0; i < 3; i++) {
        (void)snprintf(other, sizeof other, "%s%s", path, suffix[i]);
        cr_assert_eq(symlink("/etc/passwd", other), 0);
    }
    /* a digest in the wrong folder, and a link with an object's name in the right one */
    (void)snprintf(other, sizeof other, "%s/00", options.dir);
    cr_assert_eq(mkdir(other, 0700), 0);
    (void)snprintf(other, sizeof other, "%s/00/00", options.dir);
    cr_assert_eq(mkdir(other, 0700), 0);
    (void)snprintf(other, sizeof other, "%s/00/00/%s", options.dir, id.hex);
    cr_assert_eq(link(path, other), 0);
    struct object_id fake = id;
    memset(fake.hex, '0', 4);
    (void)snprintf(other, sizeof other, "%s/00/00/%s", options.dir, fake.hex);
    cr_assert_eq(symlink("/etc/passwd", other), 0);
    cr_assert_eq(object_list(store, NULL, rows, 10, &err), 1, "%s", err.text);
    cr_assert_str_eq(rows[0].id.hex, id.hex);
    int fd = -1;
    cr_assert_lt(object_open(store, &fake, false, &fd, &err), 0, "a link is not followed");
}

/* More objects than one folder's rows, in few folders: put by hand. */
Test(object_dir, folder_with_more_than_a_page)
{
    char path[700];
    (void)snprintf(path, sizeof path, "%s/ab", options.dir);
    cr_assert_eq(mkdir(path, 0700), 0);
    (void)snprintf(path, sizeof path, "%s/ab/cd", options.dir);
    cr_assert_eq(mkdir(path, 0700), 0);
    for (unsigned i = 0; i < 2500; i++) {
        (void)snprintf(path, sizeof path, "%s/ab/cd/abcd%060x", options.dir, i * 7919 % 2500);
        int fd = open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0444);
        cr_assert_geq(fd, 0);
        (void)close(fd);
    }
    static struct object_info rows[OBJECT_LIST_MAX];
    struct object_id last;
    const int want[] = { 1000, 1000, 500, 0 };
    for (unsigned page = 0, n = 0; page < 4; page++) {
        int got = object_list(store, page ? &last : NULL, rows, OBJECT_LIST_MAX, &err);
        cr_assert_eq(got, want[page], "%d: %s", got, err.text);
        for (int i = 0; i < got; i++, n++) {
            (void)snprintf(path, sizeof path, "abcd%060x", n);
            cr_assert_str_eq(rows[i].id.hex, path);
        }
        last = got ? rows[got - 1].id : last;
    }
    struct object_total total;
    OK(object_total(store, &total, &err));
    cr_assert_eq(total.objects, 2500);
}

static void *put_same(void *arg)
{
    struct err e;
    struct object_id id;
    int fd = object_file(2000000, 6, &id);
    struct object_put put = { .fd = fd, .size_bytes = -1 };
    int rc = object_put(store, &put, &e);
    (void)close(fd);
    *(int *)arg = rc;
    return NULL;
}

Test(object_dir, the_same_object_from_eight_threads)
{
    pthread_t threads[8];
    int rcs[8];
    for (int i = 0; i < 8; i++) {
        cr_assert_eq(pthread_create(&threads[i], NULL, put_same, &rcs[i]), 0);
    }
    for (int i = 0; i < 8; i++) {
        (void)pthread_join(threads[i], NULL);
        cr_assert_eq(rcs[i], 0);
    }
    struct object_total total;
    OK(object_total(store, &total, &err));
    cr_assert(total.objects == 1 && total.bytes == 2000000);
    cr_assert_eq(tmp_files(), 0);
}

static void spoil(const struct object_id *id, const char *bytes, off_t at, off_t cut)
{
    char path[700];
    path_of(id, path);
    cr_assert_eq(chmod(path, 0644), 0);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    cr_assert_geq(fd, 0);
    cr_assert_eq(pwrite(fd, bytes, strlen(bytes), at), (ssize_t)strlen(bytes));
    if (cut >= 0) {
        cr_assert_eq(ftruncate(fd, cut), 0);
    }
    (void)close(fd);
}

Test(object_dir, corrupted_object_is_never_good)
{
    struct object_id id = object_put_seeded(store, 300000, 8);
    int out = object_empty_file(), fd = -1;
    cr_assert_eq(write(out, "head", 4), 4);
    spoil(&id, "spoilt", 299000, -1);
    cr_assert_eq(object_get(store, &id, out, NULL, &err), -ERR_CORRUPT);
    cr_assert(strstr(err.text, id.hex), "%s", err.text);
    cr_assert_eq(lseek(out, 0, SEEK_END), 4, "nothing of it stays in the file");
    cr_assert_eq(object_open(store, &id, true, &fd, &err), -ERR_CORRUPT);
    cr_assert_eq(fd, -1);
    cr_assert_eq(object_get_parallel(store, &id, out, 4, 1, -1, NULL, &err), -ERR_CORRUPT);
    cr_assert_eq(lseek(out, 0, SEEK_END), 0);
    (void)close(out);
}

Test(object_dir, object_that_lost_its_end_is_put_again)
{
    struct object_id id = object_put_seeded(store, 300000, 8), same;
    spoil(&id, "", 0, 1000);
    int out = object_empty_file();
    cr_assert_eq(object_get(store, &id, out, NULL, &err), -ERR_CORRUPT);
    cr_assert_eq(object_get_range(store, &id, 0, 300000, out, 0, &err), -ERR_INVALID);
    int fd = object_file(300000, 8, &same);
    struct object_put put = { .fd = fd, .size_bytes = -1, .want = &id };
    OK(object_put(store, &put, &err));
    cr_assert_not(put.ret_existed);
    cr_assert_eq(ftruncate(out, 0), 0);
    OK(object_get_parallel(store, &id, out, 2, 1, -1, NULL, &err));
    (void)close(fd);
    (void)close(out);
}

/* In a child: status 0 as it should be, 77 cannot be tried here. */
static int in_child(int (*fn)(void))
{
    pid_t pid = fork();
    cr_assert_geq(pid, 0);
    if (pid == 0) {
        _exit(fn());
    }
    int status;
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    cr_assert(WIFEXITED(status), "status %x", (unsigned)status);
    return WEXITSTATUS(status);
}

static int full_disk(void)
{
    if (unshare(CLONE_NEWNS) < 0 && unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0) {
        return 77;
    }
    if (mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount("tmpfs", top, "tmpfs", 0, "size=1m") < 0) {
        return 77;
    }
    struct object_store *s;
    struct object_id id;
    struct object_total total;
    if (object_store_open(&s, &options, &err) < 0) {
        return 2;
    }
    int fd = object_file(3 << 20, 1, &id);
    struct object_put put = { .fd = fd, .size_bytes = -1 };
    int rc = object_put(s, &put, &err);
    if (rc != -ERR_SYS || err.saved_errno != ENOSPC || !strstr(err.text, options.dir) ||
        !strstr(err.text, "No space left")) {
        (void)fprintf(stderr, "%d %s\n", rc, err.text);
        return 3;
    }
    /* nothing is left over, and what fits can be put */
    if (object_total(s, &total, &err) < 0 || total.objects != 0 || tmp_files() != 0) {
        return 4;
    }
    put.size_bytes = 500000;
    return object_put(s, &put, &err) == 0 ? 0 : 5;
}

Test(object_dir, full_disk)
{
    int rc = in_child(full_disk);
    if (rc == 77) {
        cr_skip_test("a mount namespace cannot be made here");
    }
    cr_assert_eq(rc, 0, "step %d", rc);
}

static int no_permission(void)
{
    if (geteuid() == 0 && (chmod(top, 0755) < 0 || setgid(65534) < 0 || setuid(65534) < 0)) {
        return 77;
    }
    if (geteuid() != 65534) {
        return 77;
    }
    struct object_id id;
    int fd = object_file(100, 1, &id);
    struct object_put put = { .fd = fd, .size_bytes = -1 };
    if (object_put(store, &put, &err) != -ERR_SYS || err.saved_errno != EACCES ||
        !strstr(err.text, options.dir)) {
        return 2;
    }
    struct object_store *s;
    (void)snprintf(options.dir, sizeof options.dir, "%s/other", top);
    if (object_store_open(&s, &options, &err) != -ERR_SYS || err.saved_errno != EACCES ||
        !strstr(err.text, "/other")) {
        return 3;
    }
    return 0;
}

Test(object_dir, no_permission)
{
    int rc = in_child(no_permission);
    if (rc == 77) {
        cr_skip_test("needs root, to become somebody else");
    }
    cr_assert_eq(rc, 0, "step %d", rc);
}

Test(object_dir, killed_in_mid_put)
{
    int ends[2];
    struct object_total total;
    static char half[100000];
    cr_assert_eq(pipe2(ends, O_CLOEXEC), 0);
    pid_t pid = fork();
    if (pid == 0) {
        (void)close(ends[1]);
        struct object_put put = { .fd = ends[0], .size_bytes = -1 };
        _exit(object_put(store, &put, NULL) == 0 ? 0 : 1);
    }
    (void)close(ends[0]);
    for (int i = 0; i < 10; i++) { /* more than a pipe holds: the child has written */
        cr_assert_eq(write(ends[1], half, sizeof half), (ssize_t)sizeof half);
    }
    cr_assert_eq(tmp_files(), 1);
    /* another process that opens the store leaves a live writer's file alone */
    struct object_store *other;
    OK(object_store_open(&other, &options, &err));
    object_store_free(other);
    cr_assert_eq(tmp_files(), 1);
    cr_assert_eq(kill(pid, SIGKILL), 0);
    cr_assert_eq(waitpid(pid, NULL, 0), pid);
    OK(object_total(store, &total, &err));
    cr_assert_eq(total.objects, 0);
    cr_assert_eq(tmp_files(), 1, "what it had written is still there");
    OK(object_store_open(&other, &options, &err));
    object_store_free(other);
    cr_assert_eq(tmp_files(), 0, "and taken away by the next who opens the store");
    (void)close(ends[1]);
}

Test(object_dir, a_file_where_the_folder_should_be)
{
    struct object_store *s;
    struct object_options o = { .driver = OBJECT_DIR };
    (void)snprintf(o.dir, sizeof o.dir, "%s/file", top);
    int fd = open(o.dir, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    cr_assert_geq(fd, 0);
    (void)close(fd);
    cr_assert_eq(object_store_open(&s, &o, &err), -ERR_INVALID);
    cr_assert(strstr(err.text, "/file is not a folder"), "%s", err.text);
    (void)snprintf(o.dir, sizeof o.dir, "relative");
    cr_assert_eq(object_store_open(&s, &o, &err), -ERR_INVALID);
}

/* ---- sweeping ---- */

#define RACES 300

struct race {
    struct object_id id;
    atomic_bool stop;
    int swept;
};

static void *sweep_again_and_again(void *arg)
{
    struct race *r = arg;
    struct err mine;
    while (!atomic_load(&r->stop)) {
        r->swept += object_sweep(store, &r->id, wall_ms() - 600000, &mine) == 1;
    }
    return NULL;
}

static void make_old(const struct object_id *id)
{
    char path[700];
    const struct timespec old[2] = { { .tv_sec = 1000000000 }, { .tv_sec = 1000000000 } };
    path_of(id, path);
    (void)utimensat(AT_FDCWD, path, old, 0); /* it may be gone */
}

/* A put that has returned can be counted on, whatever a sweep was doing at that moment. */
Test(object_dir, a_sweep_takes_nothing_that_was_just_put)
{
    struct race r = { .swept = 0 };
    pthread_t thread;
    object_store_free(store);
    options.renew_after_s = 300;
    OK(object_store_open(&store, &options, &err));
    int fd = object_file(3000, 9, &r.id);
    struct object_put put = { .fd = fd, .size_bytes = 3000, .want = &r.id };
    OK(object_put(store, &put, &err));
    cr_assert_eq(pthread_create(&thread, NULL, sweep_again_and_again, &r), 0);
    for (int i = 0; i < RACES; i++) {
        make_old(&r.id);
        OK(object_put(store, &put, &err));
        cr_assert_eq(object_exists(store, &r.id, &err), 1, "round %d", i);
    }
    atomic_store(&r.stop, true);
    cr_assert_eq(pthread_join(thread, NULL), 0);
    (void)close(fd);
}

/* A group that shares the store: what one makes in it, the other may remove. */
Test(object_dir, folders_hand_their_group_down)
{
    char folder[700];
    struct stat st;
    cr_assert(chmod(options.dir, 02770) == 0);
    struct object_id id = object_put_seeded(store, 10, 12);
    (void)snprintf(folder, sizeof folder, "%s/%.2s/%.2s", options.dir, id.hex, id.hex + 2);
    cr_assert_eq(stat(folder, &st), 0);
    cr_expect_eq(st.st_mode & 07777, 02770, "%o", st.st_mode & 07777);
    *strrchr(folder, '/') = 0;
    cr_assert_eq(stat(folder, &st), 0);
    cr_expect_eq(st.st_mode & 07777, 02770, "%o", st.st_mode & 07777);
}
