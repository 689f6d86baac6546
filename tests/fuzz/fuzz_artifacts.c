/* The intake of artifacts against any bytes of a guest: what is listed has a clean path that was
 * asked for, in order; what is spooled is what was announced. */
#include <assert.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "worker/artifacts.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define INPUT_MAX 65536u
#define TOTAL_MAX 4096

static int put(void *arg, const struct artifact_object *o, struct err *err)
{
    (void)arg;
    (void)err;
    assert(o->fd >= 0 && o->size <= TOTAL_MAX && strlen(o->sha256) == MANIFEST_SHA256_HEX);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct frame_parser parser;
    static struct outq out;
    static const char globs[] = "out/\0*.log\0**/a?[b-d]";
    struct err err = { 0 };
    int pair[2];
    if (size > INPUT_MAX) {
        return 0;
    }
    if (!parser.data) {
        (void)signal(SIGPIPE, SIG_IGN);
        frame_parser_init(&parser);
        outq_init(&out);
    }
    parser.start = parser.end = 0;
    parser.broken = 0;
    outq_reset(&out);
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0) {
        abort();
    }
    (void)!send(pair[1], data, size, MSG_DONTWAIT);
    (void)shutdown(pair[1], SHUT_WR);
    struct artifacts_job job = {
        .channel_fd = pair[0],
        .abort_fd = -1,
        .parser = &parser,
        .out = &out,
        .run = 1,
        .globs = globs,
        .globs_len = sizeof globs,
        .limits = { .files_max = 16, .file_bytes_max = 1024, .total_bytes_max = TOTAL_MAX },
        .timeout_ms = 1000,
        .idle_ms = 500,
        .spool_dir = "/tmp"
    };
    struct artifact_set set;
    artifacts_init(&set);
    int rc = artifacts_receive(&job, &set, &err);
    assert(rc == 0 || (err.text[0] && set.manifest.truncated));
    assert(set.manifest.n <= 16);
    uint64_t total = 0;
    for (size_t i = 0; i < set.manifest.n; i++) {
        const struct artifact *a = &set.manifest.files[i];
        assert(a->path[0] && a->path[0] != '/' && !strstr(a->path, "/../") && a->mode <= 0777);
        total += a->reason == ARTIFACT_OK && a->type == ARTIFACT_FILE ? a->size : 0;
    }
    struct stat st;
    assert(total <= TOTAL_MAX && fstat(set.spool_fd, &st) == 0 && st.st_size <= TOTAL_MAX);
    rc = artifacts_store(&set, put, NULL, &err);
    assert(rc == 0);
    artifacts_done(&set);
    (void)close(pair[0]);
    (void)close(pair[1]);
    return 0;
}
