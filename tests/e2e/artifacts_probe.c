/* The worker's side of collecting artifacts, on a channel that guest_artifacts.py has opened:
 * artifacts_probe FD RUN SPOOL-DIR FILES-MAX FILE-BYTES-MAX TOTAL-BYTES-MAX GLOB...
 * Prints the manifest after putting each content into SPOOL-DIR/<sha256>. Exit status 1 and the
 * error when it fails. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/buf.h"
#include "common/base/cleanup.h"
#include "worker/artifacts.h"

#define TIMEOUT_MS 60000

static int put(void *arg, const struct artifact_object *o, struct err *err)
{
    char path[512];
    (void)snprintf(path, sizeof path, "%s/%s", (const char *)arg, o->sha256);
    cleanup_close int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    char data[65536];
    for (uint64_t left = o->size; left > 0;) {
        size_t want = left < sizeof data ? (size_t)left : sizeof data;
        ssize_t n = read(o->fd, data, want);
        if (n <= 0 || write(fd, data, (size_t)n) != n) {
            return err_sys(err, "%s", path);
        }
        left -= (uint64_t)n;
    }
    return fd < 0 ? err_sys(err, "%s", path) : 0;
}

static int run(int argc, char **argv, struct artifact_set *set, struct err *err)
{
    struct frame_parser parser;
    struct outq out;
    cleanup_buf struct buf globs = { 0 };
    int rc = 0;
    buf_init(&globs, GLOBS_BYTES_MAX);
    for (int i = 7; i < argc && rc == 0; i++) {
        rc = buf_add(&globs, argv[i], strlen(argv[i]) + 1, err);
    }
    if (rc < 0 || (rc = globs_check(globs.data, globs.len, err)) < 0) {
        return rc;
    }
    frame_parser_init(&parser);
    outq_init(&out);
    struct artifacts_job job = { .channel_fd = (int)strtol(argv[1], NULL, 10),
                                 .abort_fd = -1,
                                 .parser = &parser,
                                 .out = &out,
                                 .run = (uint32_t)strtoul(argv[2], NULL, 10),
                                 .globs = globs.data,
                                 .globs_len = globs.len,
                                 .limits = { .files_max = (uint32_t)strtoul(argv[4], NULL, 10),
                                             .file_bytes_max = strtoull(argv[5], NULL, 10),
                                             .total_bytes_max = strtoull(argv[6], NULL, 10) },
                                 .timeout_ms = TIMEOUT_MS,
                                 .spool_dir = argv[3] };
    rc = artifacts_receive(&job, set, err);
    rc = rc ? rc : artifacts_store(set, put, argv[3], err);
    frame_parser_done(&parser);
    outq_done(&out);
    return rc;
}

int main(int argc, char **argv)
{
    struct artifact_set set;
    struct err err = { 0 };
    if (argc < 8) {
        return 64;
    }
    artifacts_init(&set);
    int rc = run(argc, argv, &set, &err);
    if (rc < 0) {
        (void)fprintf(stderr, "%s\n", err.text);
    } else {
        cleanup_free char *json = manifest_json(&set.manifest);
        (void)puts(json);
    }
    artifacts_done(&set);
    return rc < 0;
}
