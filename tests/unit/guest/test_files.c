/* Files, folders and links of a job in the guest's work folder. Ownership is given to the job's
 * user, so they need root. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "guest/boot.h"
#include "guest/files.h"

static char dir[32];
static int work_fd;
static struct err err;

static void setup(void)
{
    (void)snprintf(dir, sizeof dir, "/tmp/files-XXXXXX");
    cr_assert(mkdtemp(dir));
    work_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (geteuid() != 0) {
        cr_skip_test("needs root");
    }
}

static void done(void)
{
    char line[64];
    (void)snprintf(line, sizeof line, "rm -rf %s", dir);
    cr_assert_eq(system(line), 0);
    (void)close(work_fd);
}

TestSuite(files, .init = setup, .fini = done, .timeout = 60);

static int put(const char *path, uint32_t mode, const char *target, bool folder, const char *text)
{
    guest_File m = { .mode = mode, .folder = folder, .size = text ? strlen(text) : 0 };
    struct job_file f;
    (void)snprintf(m.path, sizeof m.path, "%s", path);
    if (target) {
        m.target.size = (pb_size_t)strlen(target);
        memcpy(m.target.bytes, target, m.target.size);
    }
    int rc = job_file_open(&f, work_fd, &m, &err);
    if (rc == 0 && text) {
        rc = job_file_data(&f, (const uint8_t *)text, strlen(text), &err);
    }
    job_file_drop(&f);
    return rc;
}

static struct stat look(const char *path)
{
    struct stat st;
    cr_assert_eq(fstatat(work_fd, path, &st, AT_SYMLINK_NOFOLLOW), 0, "%s", path);
    return st;
}

Test(files, a_link_is_made_with_its_folders_and_owner)
{
    cr_assert_eq(put("a/b/to", 0777, "../../x", false, NULL), 0, "%s", err.text);
    char target[32] = "";
    cr_expect_eq(readlinkat(work_fd, "a/b/to", target, sizeof target - 1), 7);
    cr_expect_str_eq(target, "../../x");
    cr_expect_eq(look("a/b/to").st_uid, (uid_t)BOOT_UID);
    cr_expect_eq(look("a/b").st_uid, (uid_t)BOOT_UID);
}

Test(files, a_link_out_of_the_work_folder_is_refused)
{
    cr_expect_eq(put("to", 0777, "/etc/passwd", false, NULL), -ERR_INVALID);
    cr_expect_eq(put("to", 0777, "../x", false, NULL), -ERR_INVALID);
    cr_expect_eq(put("a/to", 0777, "../../x", false, NULL), -ERR_INVALID);
    cr_expect_eq(put("a/to", 0777, "b/../../x", false, NULL), -ERR_INVALID);
    cr_expect_eq(put("to", 0777, "x", true, NULL), -ERR_INVALID);
    cr_expect_eq(put("to", 0777, "x", false, "content"), -ERR_INVALID);
    cr_expect_eq(faccessat(work_fd, "to", F_OK, AT_SYMLINK_NOFOLLOW), -1);
}

Test(files, nothing_goes_through_a_link)
{
    cr_assert_eq(put("real", 0755, NULL, true, NULL), 0, "%s", err.text);
    cr_assert_eq(put("to", 0777, "real", false, NULL), 0, "%s", err.text);
    cr_expect_eq(put("to/f", 0644, NULL, false, "x"), -ERR_INVALID);
    cr_expect_eq(put("to/l", 0777, "f", false, NULL), -ERR_INVALID);
    cr_expect_eq(put("to/d", 0755, NULL, true, NULL), -ERR_INVALID);
    cr_expect_eq(put("to", 0644, NULL, false, "x"), -ERR_INVALID, "the link itself is no file");
    cr_expect_eq(put("to", 0755, NULL, true, NULL), -ERR_INVALID);
    cr_expect_eq(put("real", 0777, "to", false, NULL), -ERR_INVALID, "something is there");
    cr_expect_eq(look("real").st_nlink, 2);
}

Test(files, a_folder_is_made_or_takes_the_mode)
{
    cr_assert_eq(put("d/e", 0700, NULL, true, NULL), 0, "%s", err.text);
    cr_expect_eq(look("d/e").st_mode & 07777, 0700u);
    cr_expect_eq(look("d").st_mode & 07777, 0755u);
    cr_assert_eq(put("d/e/f", 0600, NULL, false, "text"), 0, "%s", err.text);
    cr_assert_eq(put("d/e", 0500, NULL, true, NULL), 0, "%s", err.text);
    cr_expect_eq(look("d/e").st_mode & 07777, 0500u);
    cr_expect_eq(look("d/e/f").st_size, 4);
    cr_expect_eq(put("d/e/f", 0700, NULL, true, NULL), -ERR_INVALID, "a file is there");
    cr_expect_eq(put("g", 0700, NULL, true, "x"), -ERR_INVALID, "a folder has no content");
}
