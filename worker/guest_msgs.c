#include "worker/guest_msgs.h"

#include <assert.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sodium.h>

#include "common/base/clock.h"

#define IDENTITY_ENTROPY_BYTES 48
#define EXIT_CODE_MAX 255
#define SIGNAL_MAX 64

static_assert(sizeof(((guest_Exit *)0)->exec_error) <= sizeof(((struct run_result *)0)->exec_error),
              "guest.options");
static_assert(JOB_PATH_MAX < sizeof(((guest_File *)0)->path), "guest.options");

int guest_queue_identity(struct outq *q, struct err *err)
{
    guest_Identity m = guest_Identity_init_zero;
    m.entropy.size = IDENTITY_ENTROPY_BYTES;
    randombytes_buf(m.entropy.bytes, IDENTITY_ENTROPY_BYTES);
    m.machine_id.size = sizeof m.machine_id.bytes;
    randombytes_buf(m.machine_id.bytes, sizeof m.machine_id.bytes);
    (void)snprintf(m.hostname, sizeof m.hostname, "brood-%08x", (unsigned)randombytes_random());
    m.realtime_ns = wall_ns();
    return outq_message(q, FRAME_IDENTITY, guest_Identity_fields, &m, err);
}

int guest_queue_file(struct outq *q, const struct job_file *file, struct err *err)
{
    guest_File m = guest_File_init_zero;
    size_t n = strlen(file->path), target_n = file->target ? strlen(file->target) : 0;
    if (n >= sizeof m.path || target_n > sizeof m.target.bytes) {
        return err_set(err, ERR_TOO_LARGE, "file %.100s...: path too long", file->path);
    }
    memcpy(m.path, file->path, n + 1);
    memcpy(m.target.bytes, file->target ? file->target : "", target_n);
    m.target.size = (pb_size_t)target_n;
    m.folder = file->folder;
    m.mode = file->mode & 0777;
    m.size = file->content.len;
    int rc = outq_message(q, FRAME_FILE, guest_File_fields, &m, err);
    return rc < 0 ? rc : outq_raw(q, FRAME_FILE_DATA, file->content.data, file->content.len, err);
}

static int pack(uint8_t *out, size_t room, pb_size_t *size, const char *s, size_t len,
                struct err *err)
{
    if (len > room - *size) {
        return err_set(err, ERR_TOO_LARGE, "command: arguments or environment over %zu bytes",
                       room);
    }
    memcpy(out + *size, s, len);
    *size = (pb_size_t)(*size + len);
    return 0;
}

int guest_queue_run(struct outq *q, guest_Run *scratch, uint32_t run, const struct job_spec *spec,
                    const struct job_command *cmd, uint64_t stdin_bytes, unsigned how,
                    struct err *err)
{
    assert(cmd->argc > 0);
    guest_Run *m = scratch;
    m->run = run;
    m->argv.size = m->env.size = 0;
    m->cwd[0] = 0;
    m->as_root = false;
    m->stdin_bytes = stdin_bytes;
    m->warm = true;
    m->trusted = false;
    m->keep = how & GUEST_RUN_KEEP;
    m->cell = how & GUEST_RUN_CELL;
    m->last = how & GUEST_RUN_LAST;
    m->has_limits = true;
    m->limits = (guest_RunLimits){ .memory_bytes = (uint64_t)cmd->limits.memory_mib << 20,
                                   .processes = (uint32_t)cmd->limits.processes,
                                   .disk_bytes = (uint64_t)cmd->limits.disk_mib << 20,
                                   .disk_files = (uint64_t)cmd->limits.disk_files,
                                   .open_files = (uint64_t)cmd->limits.open_files,
                                   .output_bytes = (uint64_t)cmd->limits.output_bytes };
    int rc = 0;
    for (int i = 0; i < cmd->argc && rc == 0; i++) {
        rc = pack(m->argv.bytes, GUEST_ARGV_MAX, &m->argv.size, cmd->argv[i],
                  strlen(cmd->argv[i]) + 1, err);
    }
    assert(spec->n_secrets == 0 || !spec->secrets_sealed);
    for (int i = 0; i < spec->n_env + spec->n_secrets && rc == 0; i++) {
        const struct job_pair *e =
            i < spec->n_env ? &spec->env[i] : &spec->secrets[i - spec->n_env];
        rc = pack(m->env.bytes, GUEST_ENV_MAX, &m->env.size, e->key, strlen(e->key), err);
        if (rc == 0) {
            rc = pack(m->env.bytes, GUEST_ENV_MAX, &m->env.size, "=", 1, err);
        }
        if (rc == 0) {
            rc = pack(m->env.bytes, GUEST_ENV_MAX, &m->env.size, e->value, strlen(e->value) + 1,
                      err);
        }
    }
    return rc < 0 ? rc : outq_message(q, FRAME_RUN, guest_Run_fields, m, err);
}

int guest_queue_cell(struct outq *q, bool spare, struct err *err)
{
    guest_Cell m = { .spare = spare };
    return outq_message(q, FRAME_CELL, guest_Cell_fields, &m, err);
}

int guest_queue_kill(struct outq *q, uint32_t run, struct err *err)
{
    guest_Kill m = { .run = run };
    return outq_message(q, FRAME_KILL, guest_Kill_fields, &m, err);
}

static int check_run(uint32_t got, uint32_t want, const char *what, struct err *err)
{
    if (got != want) {
        return err_set(err, ERR_PROTOCOL, "guest: %s for run %u; run %u is on", what, got, want);
    }
    return 0;
}

int guest_check_ready(const struct frame *f, int64_t sent_ns, int64_t now_ns, struct err *err)
{
    guest_Ready m = guest_Ready_init_zero;
    int rc = frame_decode(f, guest_Ready_fields, &m, err);
    if (rc < 0) {
        return rc;
    }
    if (!m.reseeded) {
        return err_set(err, ERR_PROTOCOL, "guest: its random generators were not reseeded");
    }
    if (m.realtime_ns < sent_ns - GUEST_CLOCK_SLACK_NS ||
        m.realtime_ns > now_ns + GUEST_CLOCK_SLACK_NS) {
        return err_set(err, ERR_PROTOCOL, "guest: its clock is more than 1 s off");
    }
    return 0;
}

int guest_check_started(const struct frame *f, uint32_t run, bool *ret_warm, struct err *err)
{
    guest_Started m = guest_Started_init_zero;
    int rc = frame_decode(f, guest_Started_fields, &m, err);
    if (rc < 0 || (rc = check_run(m.run, run, "Started", err)) < 0) {
        return rc;
    }
    *ret_warm = m.warm;
    return 0;
}

int guest_check_pull(const struct frame *f, uint32_t run, uint32_t *ret_bytes, struct err *err)
{
    guest_Pull m = guest_Pull_init_zero;
    int rc = frame_decode(f, guest_Pull_fields, &m, err);
    if (rc < 0 || (rc = check_run(m.run, run, "Pull", err)) < 0) {
        return rc;
    }
    *ret_bytes = m.bytes;
    return 0;
}

static int64_t clamp(uint64_t v)
{
    const uint64_t max = (uint64_t)1 << 53; /* exact in JSON readers */
    return (int64_t)(v < max ? v : max);
}

static void put_printable(char *out, size_t room, const char *text)
{
    size_t i = 0;
    for (; text[i] && i + 1 < room; i++) {
        out[i] = text[i] >= ' ' && text[i] <= '~' ? text[i] : '?';
    }
    out[i] = 0;
}

int guest_check_cell(const struct frame *f, char *text, size_t room, struct err *err)
{
    guest_CellReady m = guest_CellReady_init_zero;
    int rc = frame_decode(f, guest_CellReady_fields, &m, err);
    if (rc < 0) {
        return rc;
    }
    put_printable(text, room, m.trouble);
    return 0;
}

int guest_check_exit(const struct frame *f, uint32_t run, struct run_result *ret_run,
                     struct disk_full *ret_full, struct err *err)
{
    guest_Exit m = guest_Exit_init_zero;
    int rc = frame_decode(f, guest_Exit_fields, &m, err);
    if (rc < 0 || (rc = check_run(m.run, run, "Exit", err)) < 0) {
        return rc;
    }
    bool by_signal = m.signal >= 1 && m.signal <= SIGNAL_MAX && m.exit_code == -1;
    bool by_exit = m.signal == 0 && m.exit_code >= 0 && m.exit_code <= EXIT_CODE_MAX;
    if (!by_signal && !by_exit) {
        return err_set(err, ERR_PROTOCOL, "guest: Exit with code %d and signal %u",
                       (int)m.exit_code, m.signal);
    }
    ret_run->exit_code = m.exit_code;
    ret_run->signal = (int)m.signal;
    ret_run->guest_cpu_us = clamp(m.cpu_us);
    ret_run->memory_peak_bytes = clamp(m.memory_peak_bytes);
    ret_run->oom_kills = m.oom_kills;
    ret_run->process_refusals = m.process_refusals;
    ret_run->leftover_processes = m.leftover_processes;
    ret_run->disk_used_bytes = clamp(m.disk_used_bytes);
    put_printable(ret_run->exec_error, sizeof ret_run->exec_error, m.exec_error);
    ret_run->disk_files_used = clamp(m.disk_files_used);
    ret_run->disk_refusals = clamp(m.disk_refusals) + clamp(m.disk_file_refusals);
    ret_run->open_file_refusals = clamp(m.open_file_refusals);
    *ret_full = (struct disk_full){ .bytes = m.disk_full || m.disk_refusals > 0,
                                    .files = m.disk_file_refusals > 0 };
    return 0;
}

int guest_check_error(const struct frame *f, uint32_t run, bool *ret_user_fault, char *text,
                      size_t room, struct err *err)
{
    guest_GuestError m = guest_GuestError_init_zero;
    int rc = frame_decode(f, guest_GuestError_fields, &m, err);
    if (rc < 0 || (m.run != 0 && (rc = check_run(m.run, run, "Error", err)) < 0)) {
        return rc;
    }
    char both[sizeof m.what + sizeof m.text + 4];
    (void)snprintf(both, sizeof both, "%s: %s", m.what, m.text);
    put_printable(text, room, both);
    *ret_user_fault = m.user_fault;
    return 0;
}
