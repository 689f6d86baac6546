/* Secrets of a job: its program gets them, and nothing that the service keeps holds them. Expected
 * outputs: on the host, and in no machine (case_B091 looks for them as a job may; here in branches
 * and files). */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "common/base/cleanup.h"
#include "common/base/id.h"
#include "tests/e2e/cli.h"

/* Put together at run time, so that no source file or core of a compiler holds it. */
static void make_marker(char out[64])
{
    struct id id = id_new();
    (void)snprintf(out, 64, "sesame-%s", id.text);
}

/* Files below dir (raw bytes: Postgres' pages and log, Redis' files, objects, logs, spools) that
 * hold text; their names go to *out. */
static int files_with(const char *dir, const char *text, struct buf *out)
{
    struct e2e_run r;
    e2e_run(&r, (const char *const[]){ "grep", "-raloF", "--devices=skip", "--", text, dir, NULL },
            NULL, E2E_SHORT_MS);
    int n = 0;
    for (const char *p = r.out.len ? r.out.data : ""; (p = strchr(p, '\n')); p++) {
        n++;
    }
    struct err err;
    cr_expect_eq(buf_add(out, r.out.len ? r.out.data : "", r.out.len, &err), 0, "%s", err.text);
    e2e_run_done(&r);
    return n;
}

static void nowhere(const char *marker)
{
    struct buf names;
    buf_init(&names, 65536);
    int n = files_with(e2e_config()->home, marker, &names);
    n += files_with(e2e_config()->run_dir, marker, &names);
    cr_expect_eq(n, 0, "files that hold the secret:\n%.*s", (int)names.len,
                 names.len ? names.data : "");
    buf_done(&names);
}

/* Redis has everything on its disk; Postgres has since its commits (its log of writes is in the
 * home).
 */
static void flushed(void)
{
    struct e2e_run r;
    E2E_REDIS(&r, "SAVE");
    e2e_run_done(&r);
}

static json_t *job_with(const char *marker, const char *code)
{
    json_t *job = e2e_python(code);
    (void)json_object_set_new(job, "secrets", json_pack("{s:s}", "SESAME", marker));
    return job;
}

/* The program knows the length and the last word, so that its output does not tell it. */
#define CODE "import os\ns = os.environ['SESAME']\nprint(len(s), s.startswith('sesame-'))\n"

Test(secrets, in_the_environment_and_nowhere_else)
{
    char marker[64];
    make_marker(marker);
    json_t *jobs = json_array(), *branched = job_with(marker, CODE), *fails;
    (void)json_array_append_new(jobs, job_with(marker, CODE));
    (void)json_object_set_new(branched, "setup", json_string("test -n \"$SESAME\""));
    (void)json_object_set_new(branched, "tests",
                              json_pack("[{s:s},{s:s}]", "name", "a", "name", "b"));
    (void)json_array_append_new(jobs, branched);
    fails = job_with(marker, CODE "raise SystemExit(3)\n");
    (void)json_array_append_new(jobs, fails);
    json_t *results = e2e_run_batch(jobs);
    static const char *const want[] = { "accepted", "accepted", "runtime_error" };
    for (size_t i = 0; i < 3; i++) {
        const json_t *r = json_array_get(results, i);
        cr_expect_str_eq(e2e_verdict(r), want[i], "job %zu: %s", i,
                         json_string_value(e2e_at(r, "reason")));
        cleanup_free char *text = json_dumps(r, 0);
        cr_expect(!strstr(text, marker), "the result tells it: %s", text);
    }
    struct buf out;
    e2e_output(json_array_get(results, 0), "stdout", &out);
    cr_expect(out.len == 8 && memcmp(out.data, "43 True\n", 8) == 0, "%.*s", (int)out.len,
              out.data);
    buf_done(&out);
    flushed();
    nowhere(marker);
    json_decref(results);
    json_decref(jobs);
}

/* Straight onto the intake stream: plain there until it is taken; then sealed, and refused ones are
 * not kept. */
Test(secrets, through_redis)
{
    char marker[64], bad_marker[64];
    make_marker(marker);
    make_marker(bad_marker);
    json_t *job = job_with(marker, CODE), *bad = job_with(bad_marker, CODE);
    (void)json_object_set_new(bad, "template", json_string("no-such"));
    struct id batch = id_new(), other = id_new();
    cleanup_free char *text = json_dumps(job, JSON_COMPACT),
                      *bad_text = json_dumps(bad, JSON_COMPACT);
    struct e2e_run r;
    E2E_REDIS(&r, "XADD", "brood:intake", "*", "job", text, "batch", batch.text);
    e2e_run_done(&r);
    E2E_REDIS(&r, "XADD", "brood:intake", "*", "job", bad_text, "batch", other.text);
    e2e_run_done(&r);
    cr_assert(e2e_sql_becomes(1, E2E_BATCH_MS,
                              "SELECT count(*) FROM jobs WHERE batch_id = '%s' AND verdict = "
                              "'accepted'",
                              batch.text));
    cr_expect_eq(e2e_sql("SELECT count(*) FROM jobs WHERE spec LIKE '%%%s%%'", marker), 0);
    E2E_REDIS(&r, "XRANGE", "brood:rejected", "-", "+");
    cr_expect(strstr(r.out.data, other.text), "the refused entry is on record");
    cr_expect(!strstr(r.out.data, bad_marker), "with its secret");
    e2e_run_done(&r);
    E2E_REDIS(&r, "BGREWRITEAOF"); /* docs/security.md: the one place, until this */
    e2e_run_done(&r);
    int64_t pending = 1;
    for (int i = 0; i < 100 && pending; i++) {
        E2E_REDIS(&r, "INFO", "persistence");
        pending = strstr(r.out.data, "aof_rewrite_in_progress:1") ||
                  strstr(r.out.data, "aof_rewrite_scheduled:1");
        e2e_run_done(&r);
        (void)usleep(100000);
    }
    flushed();
    nowhere(marker);
    nowhere(bad_marker);
    json_decref(job);
    json_decref(bad);
}

/* What a judged program may read of its machine, and that no expectation is in it: neither the
 * job's nor a branch's, neither its own nor a sibling's. The needle is made of two halves, so that
 * the program that looks for it does not hold it. */
Test(secrets, expected_outputs_stay_on_the_host)
{
    static const char code[] =
        "import os\n"
        "needle = (os.environ['HALF'] + '-' + os.environ['REST']).encode()\n"
        "def scan(top):\n"
        "    for d, ds, fs in os.walk(top):\n"
        "        ds[:] = [x for x in ds if os.path.join(d, x) not in ('/proc', '/sys')]\n"
        "        for f in fs:\n"
        "            p = os.path.join(d, f)\n"
        "            if os.path.isfile(p) and not os.path.islink(p):\n"
        "                try:\n"
        "                    if needle in open(p, 'rb').read(8 << 20): print('found in', p)\n"
        "                except OSError: pass\n"
        "for top in ('/work', '/tmp', '/run', '/dev/shm', '/var', '/etc', '/home', '/root'):\n"
        "    scan(top)\n"
        "for p in os.listdir('/proc'):\n"
        "    if p.isdigit():\n"
        "        for f in ('environ', 'cmdline'):\n"
        "            try:\n"
        "                if needle in open(f'/proc/{p}/{f}', 'rb').read(): print('found in', p, "
        "f)\n"
        "            except OSError: pass\n"
        "print('done')\n";
    struct id half = id_new(), rest = id_new();
    char needle[128];
    (void)snprintf(needle, sizeof needle, "%s-%s", half.text, rest.text);
    json_t *job = e2e_python(code), *jobs = json_array();
    (void)json_object_set_new(job, "env",
                              json_pack("{s:s,s:s}", "HALF", half.text, "REST", rest.text));
    (void)json_object_set_new(job, "setup", json_string("true"));
    (void)json_object_set_new(job, "tests",
                              json_pack("[{s:s,s:{s:s}},{s:s,s:{s:s},s:[{s:s,s:s}]}]", "name", "a",
                                        "expect", "stdout", needle, "name", "b", "expect", "stdout",
                                        needle, "files", "path", "data/in.txt", "text",
                                        "an input"));
    (void)json_array_append_new(jobs, job);
    json_t *results = e2e_run_batch(jobs);
    cr_assert_eq(json_array_size(results), 1);
    cleanup_free char *text = json_dumps(json_array_get(results, 0), 0);
    cr_expect_str_eq(e2e_verdict(json_array_get(results, 0)), "wrong_answer", "%s", text);
    cr_expect(!strstr(text, "found in"), "%s", text);
    cr_expect(strstr(text, "done"), "%s", text);
    json_decref(results);
    json_decref(jobs);
}

/* ---- whom the services run as ---- */

#define GROUPS_MAX 8

struct who {
    uid_t uid[4]; /* real, effective, saved, of the file system */
    gid_t gid, groups[GROUPS_MAX];
    int n_groups;
    unsigned long long caps[4]; /* permitted, effective, inheritable, ambient */
    int no_new_privs;
};

static const char *field(const struct buf *b, const char *name)
{
    const char *at = strstr(b->data, name);
    cr_assert_not_null(at, "%s", name);
    return at + strlen(name);
}

static struct who who_is(pid_t pid)
{
    static const char *const caps[] = { "\nCapPrm:", "\nCapEff:", "\nCapInh:", "\nCapAmb:" };
    cleanup_buf struct buf b = { 0 };
    struct err err;
    struct who w = { .n_groups = 0 };
    char path[64], *end;
    (void)snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    buf_init(&b, 65536);
    cr_assert_eq(buf_read_file(&b, path, &err), 0, "%s", err.text);
    cr_assert_eq(
        sscanf(field(&b, "\nUid:"), "%u %u %u %u", &w.uid[0], &w.uid[1], &w.uid[2], &w.uid[3]), 4);
    w.gid = (gid_t)strtoul(field(&b, "\nGid:"), NULL, 10);
    const char *p = field(&b, "\nGroups:");
    for (; w.n_groups < GROUPS_MAX && *p != '\n'; p = end) {
        unsigned long g = strtoul(p, &end, 10);
        if (end == p) {
            break;
        }
        w.groups[w.n_groups++] = (gid_t)g;
        end += strspn(end, " ");
    }
    for (int i = 0; i < 4; i++) {
        w.caps[i] = strtoull(field(&b, caps[i]), NULL, 16);
    }
    w.no_new_privs = (int)strtol(field(&b, "\nNoNewPrivs:"), NULL, 10);
    return w;
}

/* errno of the try as that user; 0: it went well. */
static int opens(const struct who *w, const char *path, int flags)
{
    int status = 0;
    pid_t pid = fork();
    if (pid == 0) {
        int fd = setgroups((size_t)w->n_groups, w->groups) < 0 ||
                         setresgid(w->gid, w->gid, w->gid) < 0 ||
                         setresuid(w->uid[0], w->uid[0], w->uid[0]) < 0
                     ? -1
                     : open(path, flags | O_CLOEXEC);
        _exit(fd < 0 ? errno : 0);
    }
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    cr_assert(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static pid_t pid_of(const char *service)
{
    cleanup_e2e_run struct e2e_run r;
    E2E_BROOD(&r, E2E_SHORT_MS, "status", "--json");
    json_t *s = json_loads(r.out.data ? r.out.data : "", 0, NULL), *p;
    pid_t pid = 0;
    size_t i;
    json_array_foreach(e2e_at(s, "processes"), i, p)
    {
        const char *is = json_string_value(json_object_get(p, "name"));
        if (is && strcmp(is, service) == 0) {
            pid = (pid_t)json_integer_value(json_object_get(p, "pid"));
        }
    }
    json_decref(s);
    cr_assert_gt(pid, 1, "%s: %s", service, r.err.data);
    return pid;
}

enum { REDIS, VMPOOL, SCHEDULER, WORKER, N_SERVICES };

Test(users, each_service_is_its_own_and_only_two_have_the_key)
{
    static const char *const names[] = { "redis", "vmpool", "scheduler", "worker" };
    struct who w[N_SERVICES];
    char key[1200], objects[1200], kept[1200], memory[64];
    const char *home = e2e_config()->home;
    if (geteuid() != 0) {
        cr_skip("brood up is not root here");
    }
    w[0] = (struct who){ .uid = { config_uids(e2e_config()) }, .gid = config_uids(e2e_config()) };
    (void)snprintf(kept, sizeof kept, "%s/.", home);
    if (opens(&w[0], kept, O_PATH) != 0) {
        cr_skip("a home that no other user reaches: the services stay root");
    }
    for (int i = 0; i < N_SERVICES; i++) {
        w[i] = who_is(pid_of(names[i]));
        for (int k = 0; k < 4; k++) {
            cr_expect(w[i].uid[k] != 0 && w[i].uid[k] == w[i].uid[0], "%s: uid %u", names[i],
                      (unsigned)w[i].uid[k]);
            cr_expect_eq(w[i].caps[k], 0, "%s: capabilities %llx", names[i], w[i].caps[k]);
        }
        cr_expect_eq(w[i].no_new_privs, 1, "%s", names[i]);
        for (int k = 0; k < i; k++) {
            cr_expect_neq(w[i].uid[0], w[k].uid[0], "%s and %s", names[i], names[k]);
        }
    }
    (void)snprintf(key, sizeof key, "%s/secrets.key", home);
    (void)snprintf(objects, sizeof objects, "%s/objects", home);
    (void)snprintf(kept, sizeof kept, "%s/kept", home);
    struct stat st;
    cr_assert_eq(stat(key, &st), 0, "brood up makes it");
    cr_expect(st.st_uid == 0 && (st.st_mode & 07777) == 0600, "mode %o", st.st_mode & 07777);
    for (int i = 0; i < N_SERVICES; i++) {
        bool stores = i == SCHEDULER || i == WORKER, states = i == VMPOOL || i == WORKER;
        cr_expect_eq(opens(&w[i], key, O_RDONLY), EACCES, "%s: the file is root's", names[i]);
        cr_expect_eq(opens(&w[i], objects, O_RDONLY), stores ? 0 : EACCES, "%s", names[i]);
        cr_expect_eq(opens(&w[i], kept, O_RDONLY), states ? 0 : EACCES, "%s", names[i]);
        (void)snprintf(memory, sizeof memory, "/proc/%d/mem", (int)pid_of("worker"));
        if (i != WORKER) {
            cr_expect_eq(opens(&w[i], memory, O_RDONLY), EACCES, "%s", names[i]);
        }
    }
}

/* ---- what the services see of brood up's environment ---- */

#define CANARY "canary-7f3a"    /* fixture.sh: a variable that is none of ours */
#define S3_KEY "key-of-s3-51c2" /* and two of the object store's */

/* false: it has ended meanwhile. */
static bool read_environ(pid_t pid, struct buf *b)
{
    char path[64];
    struct err err;
    (void)snprintf(path, sizeof path, "/proc/%d/environ", (int)pid);
    buf_init(b, 1u << 20);
    cleanup_close int fd = open(path, O_RDONLY | O_CLOEXEC);
    return fd >= 0 && buf_read_fd(b, fd, &err) == 0 && b->len > 0;
}

static bool holds(const struct buf *b, const char *text)
{
    return b->len && memmem(b->data, b->len, text, strlen(text));
}

/* Also of what vmpool starts: the jailer, its keeper, the machines, one of which is made to run. */
Test(environment, credentials_reach_only_who_logs_in_with_them)
{
    static const char *const names[] = { "postgres", "redis-server", "brood-vmpool", "brood-jailer",
                                         "qemu" };
    static const char *const stores[] = { "scheduler", "worker" };
    json_t *jobs = json_pack("[o]", e2e_shell("true"));
    json_decref(e2e_run_batch(jobs));
    json_decref(jobs);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        pid_t pids[E2E_PIDS_MAX];
        int n = e2e_pids(names[i], pids, E2E_PIDS_MAX), looked = 0;
        for (int k = 0; k < n; k++) {
            cleanup_buf struct buf env = { 0 };
            looked += read_environ(pids[k], &env);
            cr_expect(!holds(&env, S3_KEY), "%s has the object store's key", names[i]);
            cr_expect(!holds(&env, CANARY), "%s has a variable of no use to it", names[i]);
        }
        cr_expect(looked > 0 || strcmp(names[i], "brood-jailer") == 0, "no %s", names[i]);
    }
    for (size_t i = 0; i < 2; i++) {
        cleanup_buf struct buf env = { 0 };
        cr_assert(read_environ(pid_of(stores[i]), &env), "%s", stores[i]);
        cr_expect(holds(&env, "AWS_SECRET_ACCESS_KEY=" S3_KEY), "%s", stores[i]);
        cr_expect(holds(&env, "BROOD_S3_SECRET_KEY=" S3_KEY), "%s", stores[i]);
        cr_expect(!holds(&env, CANARY), "%s has a variable of no use to it", stores[i]);
    }
}
