#include "worker/artifacts.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "schemas/proto/guest.pb.h"
#include "worker/guest_msgs.h"

static_assert(crypto_hash_sha256_BYTES * 2 == MANIFEST_SHA256_HEX, "hex");
static_assert(GUEST_ARTIFACT_PATH_MAX == MANIFEST_PATH_BYTES_MAX, "one maximum");

#define SIZE_TOLD_MAX ((uint64_t)1 << 53) /* of a file that is not sent; exact in JSON readers */

enum phase { WAIT_ARTIFACT, IN_DATA, WAIT_END, COLLECTED };

struct intake {
    const struct artifacts_job *job;
    struct artifact_set *set;
    enum phase phase;
    uint64_t left;  /* bytes of the file under way */
    uint64_t total; /* bytes announced of all files */
    uint64_t spooled;
    uint64_t matched; /* bit i: glob i matched something */
    crypto_hash_sha256_state hash;
    int64_t end_us, heard_us;
};

void artifacts_init(struct artifact_set *set)
{
    *set = (struct artifact_set){ .spool_fd = -1 };
}

void artifacts_done(struct artifact_set *set)
{
    manifest_done(&set->manifest);
    if (set->spool_fd >= 0) {
        (void)close(set->spool_fd);
    }
    artifacts_init(set);
}

static struct artifact *last_file(struct intake *in)
{
    assert(in->set->manifest.n > 0);
    return &in->set->manifest.files[in->set->manifest.n - 1];
}

/* ---- spool ---- */

static int spool_open(struct artifact_set *set, const char *dir, struct err *err)
{
    set->spool_fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (set->spool_fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR)) {
        char path[512];
        int n = snprintf(path, sizeof path, "%s/artifacts-XXXXXX", dir);
        if (n > 0 && (size_t)n < sizeof path) {
            set->spool_fd = mkostemp(path, O_CLOEXEC);
            if (set->spool_fd >= 0) {
                (void)unlink(path);
            }
        }
    }
    return set->spool_fd < 0 ? err_sys(err, "artifacts: spool in %s", dir) : 0;
}

static int spool_write(struct intake *in, const uint8_t *data, size_t len, struct err *err)
{
    while (len > 0) {
        ssize_t n = pwrite(in->set->spool_fd, data, len, (off_t)in->spooled);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return err_sys(err, "artifacts: spool");
        }
        in->spooled += (uint64_t)n;
        data += n;
        len -= (size_t)n;
    }
    return 0;
}

/* ---- frames ---- */

static uint64_t match(const struct artifacts_job *job, const char *path, size_t n)
{
    uint64_t found = 0, bit = 1;
    for (size_t at = 0; at < job->globs_len; bit <<= 1) {
        size_t len = strlen(job->globs + at);
        found |= glob_match(job->globs + at, len, path, n) ? bit : 0;
        at += len + 1;
    }
    return found;
}

static int broken(struct err *err, const char *what)
{
    return err_set(err, ERR_PROTOCOL, "guest: artifacts: %s", what);
}

static int take_file(struct intake *in, const guest_Artifact *m, struct artifact *a,
                     struct err *err)
{
    const struct artifact_limits *l = &in->job->limits;
    a->size = m->size <= SIZE_TOLD_MAX ? m->size : SIZE_TOLD_MAX;
    switch (m->skipped) {
    case guest_ArtifactSkipped_SKIPPED_NOT:
        break;
    case guest_ArtifactSkipped_SKIPPED_TOO_LARGE:
        a->reason = ARTIFACT_TOO_LARGE;
        return 0;
    case guest_ArtifactSkipped_SKIPPED_TOTAL:
        a->reason = ARTIFACT_TOTAL;
        return 0;
    case guest_ArtifactSkipped_SKIPPED_UNREADABLE:
        a->reason = ARTIFACT_UNREADABLE;
        return 0;
    default:
        return broken(err, "a file skipped for no reason known");
    }
    if (m->size > l->file_bytes_max || m->size > l->total_bytes_max - in->total) {
        return broken(err, "more bytes than asked for");
    }
    in->total += m->size;
    in->left = m->size;
    in->phase = m->size > 0 ? IN_DATA : WAIT_END;
    a->spool_offset = in->spooled;
    a->reason = ARTIFACT_LOST; /* until its end has come */
    (void)crypto_hash_sha256_init(&in->hash);
    return 0;
}

static int take_other(const guest_Artifact *m, struct artifact *a, struct err *err)
{
    if (m->type == guest_ArtifactType_ARTIFACT_OTHER &&
        m->skipped == guest_ArtifactSkipped_SKIPPED_KIND) {
        a->type = ARTIFACT_OTHER;
        a->reason = ARTIFACT_KIND;
        return 0;
    }
    if (m->type != guest_ArtifactType_ARTIFACT_LINK) {
        return broken(err, "a type that is not known");
    }
    a->type = ARTIFACT_LINK;
    a->stored = a->target_len > 0 && m->skipped == guest_ArtifactSkipped_SKIPPED_NOT;
    if (!a->stored) {
        a->reason = m->skipped == guest_ArtifactSkipped_SKIPPED_TARGET ? ARTIFACT_TARGET
                                                                       : ARTIFACT_UNREADABLE;
    }
    return 0;
}

static int on_artifact(struct intake *in, const struct frame *f, struct err *err)
{
    guest_Artifact m;
    int rc = frame_decode(f, guest_Artifact_fields, &m, err);
    if (rc < 0) {
        return rc;
    }
    const char *path = (const char *)m.path.bytes;
    if (m.run != in->job->run) {
        return broken(err, "of another run");
    }
    if (in->set->manifest.n >= in->job->limits.files_max) {
        return broken(err, "more files than asked for");
    }
    uint64_t found = match(in->job, path, m.path.size);
    if (found == 0) {
        return broken(err, "a file that was not asked for");
    }
    bool link = m.type == guest_ArtifactType_ARTIFACT_LINK;
    struct artifact *a;
    struct err why;
    rc = manifest_add(&in->set->manifest, path, m.path.size, (const char *)m.target.bytes,
                      link ? m.target.size : 0, &a, &why);
    if (rc < 0) {
        return broken(err, why.text);
    }
    in->matched |= found;
    a->mode = m.mode & 0777;
    rc = m.type == guest_ArtifactType_ARTIFACT_FILE ? take_file(in, &m, a, err)
                                                    : take_other(&m, a, err);
    if (rc < 0) {
        a->type = ARTIFACT_OTHER; /* what it is, is not known */
        a->reason = ARTIFACT_LOST;
    }
    return rc;
}

static int on_data(struct intake *in, const struct frame *f, struct err *err)
{
    if (f->len == 0 || f->len > in->left) {
        return broken(err, "data of a length that was not announced");
    }
    (void)crypto_hash_sha256_update(&in->hash, f->payload, f->len);
    in->left -= f->len;
    in->phase = in->left > 0 ? IN_DATA : WAIT_END;
    return spool_write(in, f->payload, f->len, err);
}

static int on_end(struct intake *in, const struct frame *f, struct err *err)
{
    static const enum artifact_change changes[] = {
        [guest_ArtifactChange_CHANGE_NONE] = ARTIFACT_SAME,
        [guest_ArtifactChange_CHANGE_SHRANK] = ARTIFACT_SHRANK,
        [guest_ArtifactChange_CHANGE_GREW] = ARTIFACT_GREW,
        [guest_ArtifactChange_CHANGE_READ_ERROR] = ARTIFACT_READ_ERROR,
    };
    guest_ArtifactEnd m;
    int rc = frame_decode(f, guest_ArtifactEnd_fields, &m, err);
    if (rc < 0) {
        return rc;
    }
    if (m.run != in->job->run || (size_t)m.change >= sizeof changes / sizeof changes[0]) {
        return broken(err, "an end that is not one");
    }
    struct artifact *a = last_file(in);
    uint8_t digest[crypto_hash_sha256_BYTES];
    (void)crypto_hash_sha256_final(&in->hash, digest);
    (void)sodium_bin2hex(a->sha256, sizeof a->sha256, digest, sizeof digest);
    a->change = changes[m.change];
    a->reason = ARTIFACT_OK;
    in->phase = WAIT_ARTIFACT;
    return 0;
}

static int on_collected(struct intake *in, const struct frame *f, struct err *err)
{
    guest_Collected m;
    int rc = frame_decode(f, guest_Collected_fields, &m, err);
    if (rc < 0) {
        return rc;
    }
    if (m.run != in->job->run || m.files != in->set->manifest.n) {
        return broken(err, "other files than it counted");
    }
    in->set->manifest.truncated = m.truncated || m.left_out > 0;
    in->set->manifest.left_out = m.left_out;
    in->phase = COLLECTED; /* what matched nothing is known here */
    return 0;
}

static int on_frame(struct intake *in, const struct frame *f, struct err *err)
{
    static const enum frame_type due[] = { [WAIT_ARTIFACT] = FRAME_ARTIFACT,
                                           [IN_DATA] = FRAME_ARTIFACT_DATA,
                                           [WAIT_END] = FRAME_ARTIFACT_END };
    if (f->type == FRAME_ERROR) {
        char text[256];
        bool user_fault;
        int rc = guest_check_error(f, in->job->run, &user_fault, text, sizeof text, err);
        return rc < 0 ? rc : broken(err, text);
    }
    if (in->phase == WAIT_ARTIFACT && f->type == FRAME_COLLECTED) {
        return on_collected(in, f, err);
    }
    if (f->type != due[in->phase]) {
        return err_set(err, ERR_PROTOCOL, "guest: artifacts: frame of type %d instead of %d",
                       (int)f->type, (int)due[in->phase]);
    }
    return in->phase == WAIT_ARTIFACT ? on_artifact(in, f, err)
           : in->phase == IN_DATA     ? on_data(in, f, err)
                                      : on_end(in, f, err);
}

/* ---- the conversation ---- */

static int wait_channel(const struct intake *in, bool sending, short *ret_events, struct err *err)
{
    int64_t now_us = mono_us(), left_us = in->end_us - now_us;
    if (left_us <= 0) {
        return err_set(err, ERR_TIMEOUT, "guest: artifacts: not all within %lld ms",
                       (long long)in->job->timeout_ms);
    }
    int64_t idle_us = in->heard_us + in->job->idle_ms * 1000 - now_us;
    if (in->job->idle_ms > 0 && idle_us <= 0) {
        return err_set(err, ERR_TIMEOUT, "guest: artifacts: nothing for %lld ms",
                       (long long)in->job->idle_ms);
    }
    left_us = in->job->idle_ms > 0 && idle_us < left_us ? idle_us : left_us;
    struct timespec ts = { .tv_sec = left_us / 1000000, .tv_nsec = left_us % 1000000 * 1000 };
    struct pollfd p[2] = { { .fd = in->job->channel_fd,
                             .events = (short)(POLLIN | (sending ? POLLOUT : 0)) },
                           { .fd = in->job->abort_fd, .events = POLLIN } };
    int n = ppoll(p, 2, &ts, NULL);
    if (n < 0 && errno != EINTR) {
        return err_sys(err, "guest: poll");
    }
    *ret_events = n > 0 ? p[0].revents : 0;
    if (n > 0 && p[1].revents) {
        return err_set(err, ERR_STALE, "the job was given up");
    }
    return 0;
}

static int take_frames(struct intake *in, struct err *err)
{
    struct frame f;
    int rc = 0;
    while (in->phase != COLLECTED && (rc = frame_parser_next(in->job->parser, &f, err)) > 0) {
        if ((rc = on_frame(in, &f, err)) < 0) {
            break;
        }
    }
    return rc < 0 ? rc : 0;
}

static int receive(struct intake *in, struct err *err)
{
    size_t room;
    uint8_t *space = frame_parser_space(in->job->parser, &room);
    ssize_t n = recv(in->job->channel_fd, space, room, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
        return 0;
    }
    if (n <= 0) {
        return err_set(err, ERR_CLOSED, "guest: the channel closed before all artifacts had come");
    }
    frame_parser_filled(in->job->parser, (size_t)n);
    in->heard_us = mono_us();
    return take_frames(in, err);
}

static int ask(const struct artifacts_job *job, struct err *err)
{
    guest_Collect *m = calloc(1, sizeof *m);
    if (!m) {
        abort();
    }
    m->run = job->run;
    m->globs.size = (pb_size_t)job->globs_len;
    memcpy(m->globs.bytes, job->globs, job->globs_len);
    m->files_max = job->limits.files_max;
    m->file_bytes_max = job->limits.file_bytes_max;
    m->total_bytes_max = job->limits.total_bytes_max;
    int rc = outq_message(job->out, FRAME_COLLECT, guest_Collect_fields, m, err);
    free(m);
    return rc;
}

static int converse(struct intake *in, struct err *err)
{
    const struct artifacts_job *job = in->job;
    int rc = spool_open(in->set, job->spool_dir, err);
    rc = rc ? rc : ask(job, err);
    rc = rc ? rc : take_frames(in, err); /* already there: it did not wait to be asked */
    while (rc == 0 && in->phase != COLLECTED) {
        short events = 0;
        if ((rc = outq_flush(job->out, job->channel_fd, err)) < 0 ||
            (rc = wait_channel(in, !outq_empty(job->out), &events, err)) < 0) {
            break;
        }
        if (events & (POLLIN | POLLHUP | POLLERR)) {
            rc = receive(in, err);
        }
    }
    return rc;
}

/* The globs whose bit is not set, in their order. */
static void list_unmatched(struct intake *in)
{
    struct manifest *m = &in->set->manifest;
    const struct artifacts_job *job = in->job;
    uint64_t bit = 1;
    m->unmatched = malloc(job->globs_len);
    if (!m->unmatched) {
        abort();
    }
    for (size_t at = 0; at < job->globs_len; bit <<= 1) {
        size_t n = strlen(job->globs + at) + 1;
        if (!(in->matched & bit)) {
            memcpy(m->unmatched + m->unmatched_len, job->globs + at, n);
            m->unmatched_len += n;
        }
        at += n;
    }
}

int artifacts_receive(const struct artifacts_job *job, struct artifact_set *set, struct err *err)
{
    assert(set->manifest.n == 0 && set->spool_fd < 0);
    assert(job->globs_len > 0 && job->globs_len <= GLOBS_BYTES_MAX);
    assert(job->limits.files_max <= MANIFEST_FILES_MAX);
    int64_t now_us = mono_us();
    struct intake in = {
        .job = job, .set = set, .end_us = now_us + job->timeout_ms * 1000, .heard_us = now_us
    };
    int rc = converse(&in, err);
    if (rc < 0) {
        set->manifest.truncated = true; /* what did not come may have matched */
    } else {
        list_unmatched(&in);
    }
    return rc;
}

/* ---- storing ---- */

int artifacts_store(struct artifact_set *set, artifact_put put, void *arg, struct err *err)
{
    int rc = 0;
    for (size_t i = 0; i < set->manifest.n; i++) {
        struct artifact *a = &set->manifest.files[i];
        bool due = a->type == ARTIFACT_FILE && !a->stored &&
                   (a->reason == ARTIFACT_OK || a->reason == ARTIFACT_STORE);
        if (!due) {
            continue;
        }
        assert(a->sha256[0] && set->spool_fd >= 0);
        if (rc == 0) {
            struct artifact_object o = { .sha256 = a->sha256,
                                         .fd = set->spool_fd,
                                         .size = a->size };
            rc = lseek(set->spool_fd, (off_t)a->spool_offset, SEEK_SET) < 0
                     ? err_sys(err, "artifacts: spool")
                     : put(arg, &o, err);
        }
        a->stored = rc == 0;
        a->reason = rc == 0 ? ARTIFACT_OK : ARTIFACT_STORE;
        set->manifest.bytes_stored += rc == 0 ? a->size : 0;
    }
    return rc;
}

int artifacts_hold(struct artifact_set *set, artifact_put hold, void *arg, struct err *err)
{
    int rc = 0;
    for (size_t i = 0; i < set->manifest.n && rc == 0; i++) {
        struct artifact *a = &set->manifest.files[i];
        if (a->type != ARTIFACT_FILE || a->reason != ARTIFACT_STORE) {
            continue;
        }
        struct artifact_object o = { .sha256 = a->sha256, .fd = set->spool_fd, .size = a->size };
        rc = lseek(set->spool_fd, (off_t)a->spool_offset, SEEK_SET) < 0
                 ? err_sys(err, "artifacts: spool")
                 : hold(arg, &o, err);
        a->reason = rc == 0 ? ARTIFACT_PENDING : ARTIFACT_STORE;
    }
    return rc;
}
