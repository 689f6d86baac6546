/* What a job leaves behind and what it brings along, through the CLI: artifacts after every kind of
 * end, listed, stored and written out; archives in every way they come. */
#include <criterion/criterion.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "common/base/cleanup.h"
#include "tests/e2e/cli.h"

#define PATIENCE_MS 100000 /* of programs that take a moment, on a host that is busy */

static char dir[48];

static void setup(void)
{
    (void)snprintf(dir, sizeof dir, "/tmp/brood-e2e-artifacts-XXXXXX");
    cr_assert(mkdtemp(dir));
}

static void sh(const char *line)
{
    cleanup_e2e_run struct e2e_run r;
    cleanup_free char *all = NULL;
    cr_assert_gt(asprintf(&all, "cd %s && %s", dir, line), 0);
    e2e_run(&r, (const char *const[]){ "sh", "-c", all, NULL }, NULL, E2E_SHORT_MS);
    cr_assert_eq(r.exit_code, 0, "%s\n%s%s", line, r.out.data, r.err.data);
}

static void done(void)
{
    sh("rm -rf ../${PWD##*/}");
}

TestSuite(artifacts, .init = setup, .fini = done);

/* Runs one job (taken over); the caller's. */
static json_t *run_job(json_t *job)
{
    json_t *jobs = json_pack("[o]", job), *results = e2e_run_batch(jobs);
    json_t *result = json_incref(json_array_get(results, 0));
    json_decref(results);
    json_decref(jobs);
    return result;
}

static json_t *with_globs(json_t *job, const char *a, const char *b, const char *c)
{
    (void)json_object_set_new(job, "artifacts", json_pack("[ss*s*]", a, b, c));
    return job;
}

static const char *word(const json_t *v, const char *path)
{
    const char *text = json_string_value(e2e_at(v, path));
    return text ? text : "";
}

static const json_t *find(const json_t *list, const char *path)
{
    size_t i;
    json_t *a;
    json_array_foreach(list, i, a)
    {
        if (strcmp(word(a, "path"), path) == 0) {
            return a;
        }
    }
    cr_assert_fail("%s is not listed", path);
    return NULL;
}

/* brood artifacts JOB OPTION VALUE */
static void artifacts(struct e2e_run *r, const json_t *result, const char *option,
                      const char *value, int want)
{
    E2E_BROOD(r, E2E_SHORT_MS, "artifacts", word(result, "job"), option, value);
    cr_assert_eq(r->exit_code, want, "%s %s: %d\n%s%s", option, value ? value : "", r->exit_code,
                 r->out.data, r->err.data);
}

#define LEAVES                                                                                     \
    "mkdir -p out/d && printf one > out/d/a && chmod 750 out/d/a && ln -s /etc/passwd out/link "   \
    "&& "                                                                                          \
    "printf '<x/>' > report.xml && truncate -s 300M out/big && mkfifo out/pipe && "                \
    "printf no > other && : > out/empty"

Test(artifacts, are_listed_stored_and_written_out)
{
    json_t *result = run_job(with_globs(e2e_shell(LEAVES), "out/**", "report.xml", "*.log"));
    cr_assert_str_eq(e2e_verdict(result), "accepted", "%s", word(result, "reason"));
    const json_t *warnings = e2e_at(result, "warnings"), *list = e2e_at(result, "artifacts");
    cr_expect_eq(json_array_size(warnings), 1u);
    const char *warning = json_string_value(json_array_get(warnings, 0));
    cr_expect_str_eq(warning ? warning : "", "artifacts: *.log matched nothing");
    cr_assert_eq(json_array_size(list), 6u);
    cr_expect_str_eq(word(find(list, "report.xml"), "sha256"),
                     "2a31f44da4bd7decbbd3ddfd1a37ae04d02ec665e2c2688816ccc65631586ed1");
    cr_expect(json_is_true(e2e_at(find(list, "out/d/a"), "stored")));
    cr_expect_str_eq(word(find(list, "out/d/a"), "mode"), "0750");
    const json_t *big = find(list, "out/big");
    cr_expect(json_is_false(e2e_at(big, "stored")));
    cr_expect_str_eq(word(big, "reason"), "too_large");
    cr_expect_eq(json_integer_value(e2e_at(big, "size")), 300 << 20);
    cr_expect_str_eq(word(find(list, "out/pipe"), "reason"), "not_a_file");
    cr_expect_str_eq(word(find(list, "out/link"), "type"), "link");
    cr_expect_str_eq(word(find(list, "out/link"), "target"), "/etc/passwd");

    cleanup_e2e_run struct e2e_run listed, got, tar;
    artifacts(&listed, result, "--json", NULL, 0);
    cr_expect(strstr(listed.out.data, "\"out/d/a\""), "%s", listed.out.data);
    char path[80];
    (void)snprintf(path, sizeof path, "%s/got", dir);
    artifacts(&got, result, "--get", path, 1);
    cr_expect(strstr(got.err.data, "missing: out/big: not stored: too_large"), "%s", got.err.data);
    cr_expect(strstr(got.err.data, "4 written, 7 bytes; 2 missing"), "%s", got.err.data);
    sh("cd got && test \"$(cat out/d/a)\" = one && test \"$(stat -c %a out/d/a)\" = 750 && "
       "test \"$(cat report.xml)\" = '<x/>' && test \"$(readlink out/link)\" = /etc/passwd && "
       "test -f out/empty && test $(find . -type f | wc -l) = 3");
    (void)snprintf(path, sizeof path, "%s/a.tar.zst", dir);
    artifacts(&tar, result, "--tar", path, 1);
    sh("mkdir t && cd t && tar --zstd -xf ../a.tar.zst && diff -r --no-dereference . ../got");
    json_decref(result);
}

Test(artifacts, come_after_a_time_out_and_a_crash)
{
    json_t *slow = with_globs(e2e_shell("printf begun > log; exec sleep 1000"), "log", NULL, NULL);
    (void)json_object_set_new(slow, "limits", json_pack("{s:i}", "wall_ms", 8000));
    json_t *jobs =
        json_pack("[ooo]", slow,
                  with_globs(e2e_shell("printf begun > log; kill -SEGV $$"), "log", NULL, NULL),
                  with_globs(e2e_shell("printf begun > log; exit 3"), "log", NULL, NULL));
    json_t *results = e2e_run_batch(jobs), *result;
    static const char *const verdicts[] = { "wall_time_limit", "runtime_error", "runtime_error" };
    size_t i;
    json_array_foreach(results, i, result)
    {
        const json_t *list = e2e_at(result, "artifacts");
        cr_expect_str_eq(e2e_verdict(result), verdicts[i], "job %zu: %s", i, e2e_verdict(result));
        cr_assert_eq(json_array_size(list), 1u, "job %zu", i);
        cr_expect(json_is_true(e2e_at(json_array_get(list, 0), "stored")), "job %zu", i);
        char path[80], check[120];
        cleanup_e2e_run struct e2e_run got;
        (void)snprintf(path, sizeof path, "%s/got%zu", dir, i);
        artifacts(&got, result, "--get", path, 0);
        (void)snprintf(check, sizeof check, "test \"$(cat got%zu/log)\" = begun", i);
        sh(check);
    }
    json_decref(results);
    json_decref(jobs);
}

Test(artifacts, gone_from_the_store_are_named)
{
    json_t *result = run_job(with_globs(
        e2e_shell("head -c 16 /dev/urandom > gone; printf kept > kept"), "*", NULL, NULL));
    const json_t *list = e2e_at(result, "artifacts");
    const char *sha = word(find(list, "gone"), "sha256");
    char line[600], path[80];
    cr_assert_eq(strlen(sha), 64u);
    (void)snprintf(line, sizeof line, "rm -f %s/%.2s/%.2s/%s", e2e_config()->object_dir, sha,
                   sha + 2, sha);
    sh(line);
    (void)snprintf(path, sizeof path, "%s/got", dir);
    cleanup_e2e_run struct e2e_run got;
    artifacts(&got, result, "--get", path, 1);
    cr_expect(strstr(got.err.data, "missing: gone: "), "%s", got.err.data);
    cr_expect(strstr(got.err.data, sha), "it says which object: %s", got.err.data);
    sh("test \"$(ls got)\" = kept");
    json_decref(result);
}

Test(artifacts, of_branches_are_in_folders_of_their_names)
{
    json_t *job =
        json_pack("{s:s, s:s, s:s, s:[s], s:[{s:s, s:[s]}, {s:s, s:[{s:s, s:[s]}]}]}", "template",
                  "python", "setup", "mkdir out && printf before > out/setup", "command",
                  "printf %s \"$1\" > out/mine", "artifacts", "out/", "branches", "name", "a",
                  "args", "of-a", "name", "b", "branches", "name", "..", "args", "of-b");
    json_t *result = run_job(job);
    cr_assert_str_eq(e2e_verdict(result), "accepted", "%s", word(result, "reason"));
    char path[80];
    (void)snprintf(path, sizeof path, "%s/got", dir);
    cleanup_e2e_run struct e2e_run got, one, none;
    artifacts(&got, result, "--get", path, 0);
    sh("cd got && test \"$(find . -type f | sort | tr '\\n' ' ')\" = "
       "'./a/out/mine ./a/out/setup ./b/%2E%2E/out/mine ./b/%2E%2E/out/setup ' && "
       "test \"$(cat a/out/mine)$(cat b/*/out/mine)\" = of-aof-b && "
       "test \"$(cat a/out/setup)\" = before");
    (void)snprintf(path, sizeof path, "%s/one", dir);
    E2E_BROOD(&one, E2E_SHORT_MS, "artifacts", word(result, "job"), "--branch", "b/..", "--get",
              path);
    cr_expect_eq(one.exit_code, 0, "%s", one.err.data);
    sh("test \"$(cat one/out/mine)\" = of-b");
    artifacts(&none, result, "--branch", "c", 2);
    json_decref(result);
}

/* ---- archives ---- */

static char *base64_of(const char *name)
{
    char path[80];
    cleanup_buf struct buf b = { 0 };
    struct err err;
    buf_init(&b, 1 << 20);
    (void)snprintf(path, sizeof path, "%s/%s", dir, name);
    cr_assert_eq(buf_read_file(&b, path, &err), 0, "%s", err.text);
    size_t room = sodium_base64_ENCODED_LEN(b.len, sodium_base64_VARIANT_ORIGINAL);
    char *text = malloc(room);
    (void)sodium_bin2base64(text, room, (uint8_t *)b.data, b.len, sodium_base64_VARIANT_ORIGINAL);
    return text;
}

static json_t *with_archive(json_t *job, const char *format, const char *name)
{
    cleanup_free char *text = base64_of(name);
    (void)json_object_set_new(job, "archive",
                              json_pack("{s:s, s:s}", "format", format, "base64", text));
    return job;
}

#define SHOW                                                                                       \
    "cat d/a && ./d/run && stat -c %a d/run && test -d empty && touch empty/mine d/mine && "       \
    "cat own && "

Test(artifacts, archives_are_unpacked_before_the_files)
{
    sh("mkdir -p in/d in/empty && cd in && printf 'one\\n' > d/a && "
       "printf '#!/bin/sh\\necho run\\n' > d/run && chmod 755 d/run && printf old > own && "
       "python3 -c \"import shutil; shutil.make_archive('../a', 'zip', '.')\" && "
       "ln -s ../own d/link && ln d/a hard && printf x > \"$(printf 'l\\344')\" && "
       "tar -czf ../a.tgz . && tar --zstd -cf ../a.tzst . && tar -cf ../a.tar .");
    const char *const all = SHOW "readlink d/link && cat hard && ls | grep -c l";
    json_t *jobs = json_pack("[oooo]", with_archive(e2e_shell(all), "tar.gz", "a.tgz"),
                             with_archive(e2e_shell(all), "tar.zst", "a.tzst"),
                             with_archive(e2e_shell(all), "tar", "a.tar"),
                             with_archive(e2e_shell(SHOW "true"), "zip", "a.zip"));
    json_t *results, *result, *job;
    size_t i;
    json_array_foreach(jobs, i, job)
    {
        (void)json_object_set_new(job, "files",
                                  json_pack("[{s:s, s:s}]", "path", "own", "text", "new\n"));
    }
    results = e2e_run_batch(jobs);
    json_array_foreach(results, i, result)
    {
        cr_expect_str_eq(e2e_verdict(result), "accepted", "archive %zu: %s %s", i,
                         word(result, "reason"), word(result, "stderr"));
        cr_expect_str_eq(word(result, "stdout"),
                         i < 3 ? "one\nrun\n755\nnew\n../own\none\n1\n" : "one\nrun\n755\nnew\n");
    }
    json_decref(results);
    json_decref(jobs);
}

Test(artifacts, a_hostile_archive_is_the_jobs_fault)
{
    sh("printf x > f && tar -P --transform 's,^f,../f,' -cf up.tar f && ln -s /etc l && "
       "tar -cf link.tar l && printf nothing > no.tar");
    static const char *const names[] = { "up.tar", "link.tar", "no.tar" };
    json_t *jobs = json_array(), *result;
    for (size_t i = 0; i < 3; i++) {
        (void)json_array_append_new(jobs, with_archive(e2e_shell("echo ran"), "tar", names[i]));
    }
    json_t *results = e2e_run_batch(jobs);
    size_t i;
    json_array_foreach(results, i, result)
    {
        const char *v = e2e_verdict(result);
        cr_expect(*v && strcmp(v, "accepted") != 0 && strcmp(v, "infra_error") != 0, "%s: %s",
                  names[i], v);
        cr_expect(strstr(word(result, "reason"), "archive"), "%s: %s", names[i],
                  word(result, "reason"));
        cr_expect_str_eq(word(result, "stdout"), "", "nothing ran");
    }
    json_decref(results);
    json_decref(jobs);
}

Test(artifacts, a_file_through_a_link_of_the_archive_is_refused)
{
    sh("mkdir real && ln -s real l && tar -cf a.tar real l");
    json_t *job = with_archive(e2e_shell("ls real"), "tar", "a.tar");
    (void)json_object_set_new(job, "files", json_pack("[{s:s, s:s}]", "path", "l/f", "text", "x"));
    json_t *result = run_job(job);
    cr_expect_str_neq(e2e_verdict(result), "accepted");
    cr_expect_str_neq(e2e_verdict(result), "infra_error");
    cr_expect(strstr(word(result, "reason"), "symbolic link"), "%s", word(result, "reason"));
    json_decref(result);
}

/* What one job has made, the next one may name. */
Test(artifacts, an_archive_from_the_object_store)
{
    json_t *made =
        run_job(with_globs(e2e_shell("printf 'from the first\\n' > f && tar -czf a.tgz f && rm f"),
                           "a.tgz", NULL, NULL));
    const char *sha = word(find(e2e_at(made, "artifacts"), "a.tgz"), "sha256");
    json_t *job = e2e_shell("cat f");
    (void)json_object_set_new(job, "archive",
                              json_pack("{s:s, s:s}", "format", "tar.gz", "object", sha));
    json_t *result = run_job(job);
    cr_expect_str_eq(e2e_verdict(result), "accepted", "%s", word(result, "reason"));
    cr_expect_str_eq(word(result, "stdout"), "from the first\n");
    json_decref(result);
    json_decref(made);
}
