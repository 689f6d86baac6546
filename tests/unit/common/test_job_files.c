/* Files of a job, and the rules for paths and tenants. */
#include "tests/unit/common/job_case.h"

#define FILE_JSON(path) HEAD ",\"files\":[{\"path\":\"" path "\",\"text\":\"\"}]}"

Test(files, path_rule)
{
    const char *good[] = { "a",       "a/b/c", "..a",      "a..",      "...",
                           ".hidden", "a b",   "\xc3\xa9", "a/.b/..c", "a\\b" };
    const char *bad[] = { "",    "/",   "/a",   "a/",   "a//b",   ".",    "..",
                          "./a", "a/.", "a/..", "../a", "a/../b", "a\nb", "a\x7f" };
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        cr_assert(job_path_ok(good[i]), "%s", good[i]);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        cr_assert(!job_path_ok(bad[i]), "%s", bad[i]);
    }
    char path[JOB_PATH_MAX + 2];
    memset(path, 'a', sizeof path);
    path[200] = '/';
    path[JOB_PATH_MAX] = 0;
    cr_assert(job_path_ok(path));
    path[JOB_PATH_MAX] = 'a';
    path[JOB_PATH_MAX + 1] = 0;
    cr_assert(!job_path_ok(path));
    memset(path, 'a', sizeof path);
    path[JOB_PATH_PART_MAX] = 0;
    cr_assert(job_path_ok(path));
    path[JOB_PATH_PART_MAX] = 'a';
    path[JOB_PATH_PART_MAX + 1] = 0;
    cr_assert(!job_path_ok(path));
}

Test(files, refused)
{
    refused(FILE_JSON("../x"), ERR_INVALID, "files[0].path: \"../x\": must be relative");
    refused(FILE_JSON("/etc/passwd"), ERR_INVALID,
            "files[0].path: \"/etc/passwd\": must be relative");
    refused(FILE_JSON("a\\u0000b"), ERR_INVALID, "files[0].path: must not hold a NUL");
    refused(FILE_JSON(""), ERR_INVALID, "files[0].path: must not be empty");
    refused(HEAD ",\"files\":{}}", ERR_INVALID, "files: must be a list");
    refused(HEAD ",\"files\":[7]}", ERR_INVALID, "files[0]: must be an object");
    refused(HEAD ",\"files\":[{\"text\":\"\"}]}", ERR_INVALID, "files[0].path: missing");
    refused(HEAD ",\"files\":[{\"path\":\"a\"}]}", ERR_INVALID,
            "files[0]: needs either text or base64");
    refused(HEAD ",\"files\":[{\"path\":\"a\",\"text\":\"\",\"base64\":\"\"}]}", ERR_INVALID,
            "either text or base64");
    refused(HEAD ",\"files\":[{\"path\":\"a\",\"text\":7}]}", ERR_INVALID,
            "files[0].text: must be a string");
    refused(HEAD ",\"files\":[{\"path\":\"a\",\"base64\":\"!\"}]}", ERR_INVALID,
            "files[0].base64: must be base64");
    refused(HEAD ",\"files\":[{\"path\":\"a\",\"text\":\"\"},{\"path\":\"b\",\"text\":\"\"},{"
                 "\"path\":\"a\",\"text\":\"\"}]}",
            ERR_INVALID, "files[2].path: \"a\" is given twice");
    refused(HEAD
            ",\"files\":[{\"path\":\"a/b/"
            "c\",\"text\":\"\"},{\"path\":\"a-\",\"text\":\"\"},{\"path\":\"a/b\",\"text\":\"\"}]}",
            ERR_INVALID, "files[2].path: \"a/b\" is a file and the folder of files[0]");
    job_spec_free(
        parse(HEAD ",\"files\":[{\"path\":\"a/b\",\"text\":\"\"},{\"path\":\"a/bc\",\"text\":\"\"},"
                   "{\"path\":\"a/b.c\",\"text\":\"\"}]}"));
}

Test(files, modes)
{
    const char *good[] = { "644", "0644", "0777", "0000", "755" };
    const char *bad[] = { "", "7", "1777", "0888", "06440", "rw", "+755", "0x1f", "064\\u0000" };
    char json[160];
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        (void)snprintf(json, sizeof json,
                       HEAD ",\"files\":[{\"path\":\"a\",\"text\":\"\",\"mode\":\"%s\"}]}",
                       good[i]);
        cleanup_job_spec struct job_spec *s = parse(json);
        cr_assert_eq(s->files[0].mode, strtoul(good[i], NULL, 8));
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        (void)snprintf(json, sizeof json,
                       HEAD ",\"files\":[{\"path\":\"a\",\"text\":\"\",\"mode\":\"%s\"}]}", bad[i]);
        refused(json, ERR_INVALID, "files[0].mode: must be an octal string");
    }
    refused(HEAD ",\"files\":[{\"path\":\"a\",\"text\":\"\",\"mode\":644}]}", ERR_INVALID,
            "files[0].mode");
}

static char *many(int n)
{
    struct buf b;
    struct err err;
    buf_init(&b, 1 << 20);
    cr_assert_eq(buf_add_str(&b, HEAD ",\"files\":[", &err), 0);
    for (int i = 0; i < n; i++) {
        cr_assert_eq(buf_addf(&b, &err, "%s{\"path\":\"f%d\",\"text\":\"x\"}", i ? "," : "", i), 0);
    }
    cr_assert_eq(buf_add_str(&b, "]}", &err), 0);
    return buf_take(&b, NULL);
}

Test(files, counts_and_sizes)
{
    cleanup_free char *most = many(JOB_FILES_MAX);
    cleanup_job_spec struct job_spec *s = parse(most);
    cr_assert_eq(s->n_files, JOB_FILES_MAX);
    cleanup_free char *more = many(JOB_FILES_MAX + 1);
    refused(more, ERR_TOO_LARGE, "files: 257 files; at most 256");

    const char *sixteen = "xxxxxxxxxxxxxxxx";
    fits(HEAD ",\"files\":[{\"path\":\"a\",\"text\":\"", sixteen, JOB_FILE_BYTES_MAX / 16, "\"}]}");
    too_much(HEAD ",\"files\":[{\"path\":\"a\",\"text\":\"x", sixteen, JOB_FILE_BYTES_MAX / 16,
             "\"}]}", ERR_TOO_LARGE, "files[0].text: 16777217 bytes; at most 16777216");
    too_much(HEAD ",\"files\":[{\"path\":\"b\",\"text\":\"y\"},{\"path\":\"a\",\"text\":\"",
             sixteen, JOB_FILE_BYTES_MAX / 16, "\"}]}", ERR_TOO_LARGE,
             "files: more than 16777216 bytes in all");
    fits(HEAD ",\"files\":[{\"text\":\"\",\"path\":\"", "ab/", JOB_PATH_MAX / 3,
         "c\"}]}"); /* 133 x 3 + 1 = 400 */
    too_much(HEAD ",\"files\":[{\"text\":\"\",\"path\":\"", "ab/", JOB_PATH_MAX / 3, "cd\"}]}",
             ERR_TOO_LARGE, "files[0].path: 401 bytes; at most 400");
}

Test(files, tenant_rule)
{
    cr_assert(job_tenant_ok("a") && job_tenant_ok("0-x_y") && job_tenant_ok("default"));
    const char *bad[] = { "", "-a", "_a", "A", "a b", "a/b", "a.b", "\xc3\xa9" };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        cr_assert(!job_tenant_ok(bad[i]), "%s", bad[i]);
    }
    char name[JOB_TENANT_MAX + 2];
    memset(name, 't', sizeof name);
    name[JOB_TENANT_MAX] = 0;
    cr_assert(job_tenant_ok(name));
    name[JOB_TENANT_MAX] = 't';
    name[JOB_TENANT_MAX + 1] = 0;
    cr_assert(!job_tenant_ok(name));
}
