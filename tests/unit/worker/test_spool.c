/* The spool on disk: order, maxima, torn and damaged tails, files of workers that are gone; and an
 * ended attempt there and back. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/log.h"
#include "worker/spool.h"
#include "worker/spool_entry.h"

static char dir[64], file[96];
static struct err err;

#define OK(call) cr_assert_geq((call), 0, "%s: %s", #call, err.text)
#define BYTES_MAX 100000

static void set_up(void)
{
    log_init("test", LOG_ERROR, STDERR_FILENO);
    (void)snprintf(dir, sizeof dir, "/tmp/brood-spool-XXXXXX");
    cr_assert_not_null(mkdtemp(dir));
    (void)snprintf(file, sizeof file, "%s/results.0", dir);
}

static void tear_down(void)
{
    char command[96];
    (void)snprintf(command, sizeof command, "rm -rf -- %s", dir);
    cr_assert_eq(system(command), 0);
}

TestSuite(spool, .init = set_up, .fini = tear_down, .timeout = 60);

static struct spool *open_it(void)
{
    struct spool *s = NULL;
    OK(spool_open(&s, dir, BYTES_MAX, &err));
    return s;
}

static int append(struct spool *s, const char *text, size_t len)
{
    struct buf b;
    buf_init(&b, BYTES_MAX);
    OK(buf_add(&b, text, len, &err));
    int rc = spool_append(s, &b, 1, &err);
    buf_done(&b);
    return rc;
}

static void expect(struct spool *s, int index, const char *text)
{
    struct buf b;
    buf_init(&b, BYTES_MAX);
    OK(spool_read(s, index, &b, &err));
    cr_assert_eq(b.len, strlen(text));
    cr_assert_eq(memcmp(b.data, text, b.len), 0);
    buf_done(&b);
}

static int64_t size_of(const char *path)
{
    struct stat st;
    cr_assert_eq(stat(path, &st), 0);
    return st.st_size;
}

Test(spool, records_come_back_in_order_and_the_file_is_emptied)
{
    struct spool *s = open_it();
    OK(append(s, "one", 3));
    OK(append(s, "two", 3));
    OK(append(s, "", 0));
    expect(s, 0, "one");
    expect(s, 1, "two");
    expect(s, 2, "");
    spool_consume(s, 1);
    expect(s, 0, "two");
    spool_close(s);
    s = open_it(); /* consuming is not written down */
    cr_assert_eq(spool_count(s), 3);
    expect(s, 0, "one");
    spool_consume(s, 3);
    cr_assert_eq(size_of(file), 0);
    OK(append(s, "again", 5));
    expect(s, 0, "again");
    spool_close(s);
}

Test(spool, a_tail_torn_at_any_byte_is_cut_off)
{
    struct spool *s = open_it();
    OK(append(s, "first", 5));
    int64_t whole = size_of(file);
    OK(append(s, "second record", 13));
    int64_t all = size_of(file);
    spool_close(s);
    char bytes[512];
    int fd = open(file, O_RDWR | O_CLOEXEC);
    cr_assert_eq(read(fd, bytes, sizeof bytes), all);
    for (int64_t cut = whole; cut < all; cut++) {
        cr_assert_eq(ftruncate(fd, 0), 0);
        cr_assert_eq(pwrite(fd, bytes, (size_t)cut, 0), cut);
        s = open_it();
        cr_assert_eq(spool_count(s), 1, "cut at %d", (int)cut);
        cr_assert_eq(size_of(file), whole);
        expect(s, 0, "first");
        spool_close(s);
    }
    for (int64_t at = whole; at < all; at++) { /* a flipped bit is a torn tail too */
        char flipped = (char)(bytes[at] ^ 4);
        cr_assert_eq(pwrite(fd, bytes, (size_t)all, 0), all);
        cr_assert_eq(pwrite(fd, &flipped, 1, at), 1);
        s = open_it();
        cr_assert_eq(spool_count(s), 1, "flipped at %d", (int)at);
        spool_close(s);
    }
    (void)close(fd);
}

Test(spool, it_is_bounded)
{
    static char big[BYTES_MAX];
    struct spool *s = open_it();
    cr_assert_eq(append(s, big, BYTES_MAX - 40), 0, "exactly full: %s", err.text);
    int64_t full = size_of(file);
    cr_assert_eq(append(s, "x", 1), -ERR_NO_CAPACITY);
    cr_assert_eq(size_of(file), full);
    spool_consume(s, 1);
    cr_assert_eq(append(s, big, BYTES_MAX - 39), -ERR_NO_CAPACITY);
    struct buf b;
    buf_init(&b, 64);
    OK(buf_add(&b, "x", 1, &err));
    for (int i = 0; i < SPOOL_RECORDS_MAX && i < BYTES_MAX / 41; i++) {
        OK(spool_append(s, &b, 1, &err));
    }
    buf_done(&b);
    spool_close(s);
}

/* Consumed records stay in the file until all are: it may have more than there is room for. */
Test(spool, a_file_of_many_records_is_read_to_its_end)
{
    enum { MORE = 256, ALL = SPOOL_RECORDS_MAX + MORE };
    struct spool *s = NULL;
    static struct buf numbers[ALL];
    for (int i = 0; i < ALL; i++) {
        buf_init(&numbers[i], sizeof i);
        OK(buf_add(&numbers[i], &i, sizeof i, &err));
    }
    OK(spool_open(&s, dir, 4 * BYTES_MAX, &err));
    OK(spool_append(s, numbers, SPOOL_RECORDS_MAX, &err));
    cr_assert_eq(spool_append(s, numbers, 1, &err), -ERR_NO_CAPACITY);
    spool_consume(s, MORE);
    OK(spool_append(s, numbers + SPOOL_RECORDS_MAX, MORE, &err));
    spool_close(s);
    OK(spool_open(&s, dir, 4 * BYTES_MAX, &err));
    cr_assert_eq(spool_append(s, numbers, 1, &err), -ERR_NO_CAPACITY, "what is there goes first");
    struct buf b;
    buf_init(&b, BYTES_MAX);
    int got = 0;
    for (; spool_count(s) > 0; got++) {
        OK(spool_read(s, 0, &b, &err));
        cr_assert(b.len == sizeof got && memcmp(b.data, &got, sizeof got) == 0, "record %d", got);
        spool_consume(s, 1);
    }
    cr_assert_eq(got, ALL, "%d of %d", got, ALL);
    cr_assert_eq(size_of(file), 0);
    OK(append(s, "new", 3));
    expect(s, 0, "new");
    spool_close(s);
    buf_done(&b);
    for (int i = 0; i < ALL; i++) {
        buf_done(&numbers[i]);
    }
}

Test(spool, a_full_disk_leaves_nothing_half)
{
    struct spool *s = NULL;
    cr_assert_eq(spool_open(&s, "/proc/self/none/spool", BYTES_MAX, &err), -ERR_SYS);
    s = open_it();
    OK(append(s, "kept", 4));
    int64_t kept = size_of(file);
    pid_t pid = fork();
    if (pid == 0) { /* a file size limit stands for the disk */
        struct rlimit limit = { (rlim_t)kept + 50, (rlim_t)kept + 50 };
        (void)signal(SIGXFSZ, SIG_IGN);
        (void)setrlimit(RLIMIT_FSIZE, &limit);
        static char big[4000];
        _exit(append(s, big, sizeof big) == -ERR_SYS && size_of(file) == kept ? 0 : 1);
    }
    int status;
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    cr_assert_eq(status, 0);
    spool_close(s);
}

Test(spool, what_a_dead_worker_left_is_taken_over)
{
    struct spool *a = open_it(), *b = open_it();
    OK(append(b, "of b", 4));
    spool_close(b);
    spool_close(a);
    a = open_it();
    cr_assert_eq(spool_count(a), 1);
    expect(a, 0, "of b");
    spool_close(a);
    char second[96];
    (void)snprintf(second, sizeof second, "%s/results.1", dir);
    cr_assert_eq(size_of(second), 0);
}

Test(spool, an_ended_attempt_there_and_back)
{
    struct commit_entry *e = commit_entry_new(), *back = NULL;
    char worker[64];
    (void)snprintf(e->claim.stream_id, sizeof e->claim.stream_id, "123-4");
    struct id id = id_new();
    (void)snprintf(e->claim.job_id, sizeof e->claim.job_id, "%s", id.text);
    (void)snprintf(e->claim.tenant, sizeof e->claim.tenant, "acme");
    e->claim.attempt = 3;
    (void)snprintf(e->template_name, sizeof e->template_name, "python");
    e->result.verdict = VERDICT_WRONG_ANSWER;
    e->result.run.present = true;
    e->result.run.out.head.data = calloc(1, 5);
    memcpy(e->result.run.out.head.data, "a\0\xff\n", 4);
    e->result.run.out.head.len = 4;
    e->result.run.out.total_bytes = 4;
    e->billed = true;
    e->result.vcpus = 2; /* what it is priced by, when it commits */
    e->result.memory_mib = 256;
    e->result.leased_wall_ms = 1000;
    e->result.ended_wall_ms = 2500;
    e->result.measured_ms = 1501;
    struct snapshot_row kept = { .id = id_new(), .layer_bytes = 4711 };
    (void)snprintf(kept.name, sizeof kept.name, "after-setup");
    commit_entry_keep(e, &kept);
    e->n_branches = 1;
    e->branches = calloc(1, sizeof *e->branches);
    job_result_init(&e->branches[0].result);
    e->branches[0].node = 1;
    e->branches[0].leaf = true;
    e->branches[0].path = strdup("root/0");
    e->branches[0].name_path = strdup("one");
    e->branches[0].weight = 1;
    e->branches[0].result.verdict = VERDICT_ACCEPTED;
    struct buf b;
    buf_init(&b, 1 << 20);
    OK(spool_entry_write(e, "w7", &b, &err));
    OK(spool_entry_read(b.data, b.len, &back, worker, sizeof worker, &err));
    cr_assert_str_eq(worker, "w7");
    cr_assert_str_eq(back->claim.job_id, id.text);
    cr_assert_str_eq(back->claim.stream_id, "123-4");
    cr_assert_eq(back->claim.attempt, 3);
    cr_assert_eq(back->result.verdict, VERDICT_WRONG_ANSWER);
    cr_assert_eq(back->result.run.out.head.len, 4);
    cr_assert_eq(memcmp(back->result.run.out.head.data, "a\0\xff\n", 4), 0);
    cr_assert(back->billed);
    cr_assert_eq(back->result.vcpus, 2);
    cr_assert_eq(back->result.memory_mib, 256);
    cr_assert_eq(back->result.leased_wall_ms, 1000);
    cr_assert_eq(back->result.ended_wall_ms, 2500);
    cr_assert_eq(back->result.measured_ms, 1501);
    cr_assert_eq(back->n_snapshots, 1);
    cr_assert_str_eq(back->snapshots[0].id.text, kept.id.text);
    cr_assert_str_eq(back->snapshots[0].name, "after-setup");
    cr_assert_eq(back->snapshots[0].layer_bytes, 4711);
    cr_assert_eq(back->n_branches, 1);
    cr_assert_str_eq(back->branches[0].name_path, "one");
    cr_assert_eq(back->branches[0].result.verdict, VERDICT_ACCEPTED);
    commit_entry_free(back);
    for (size_t cut = 0; cut < b.len; cut++) { /* never a half one */
        cr_assert_eq(spool_entry_read(b.data, cut, &back, worker, sizeof worker, &err),
                     -ERR_CORRUPT);
    }
    buf_done(&b);
    commit_entry_free(e);
}
