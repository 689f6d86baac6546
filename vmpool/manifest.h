/* What a snapshot was made with, and whether this host can still use it. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <jansson.h>
#include "common/base/err.h"
#include "vmpool/engine.h"
#include "vmpool/template.h"

#define MANIFEST_VERSION 1
#define MANIFEST_SHA_TEXT 65

/* Each string must be equal for a snapshot to be used. MANIFEST_FIELD(name, bytes): one list for
 * writing, reading, comparing. */
#define MANIFEST_FIELDS                                                                            \
    MANIFEST_FIELD(engine, 32)                                                                     \
    MANIFEST_FIELD(vmm_version, 64)                                                                \
    MANIFEST_FIELD(machine, 256)                                                                   \
    MANIFEST_FIELD(cpu_model, 64)                                                                  \
    MANIFEST_FIELD(host_cpu, 128)                                                                  \
    MANIFEST_FIELD(template_name, TEMPLATE_NAME_MAX)                                               \
    MANIFEST_FIELD(template_digest, TEMPLATE_DIGEST_MAX)                                           \
    MANIFEST_FIELD(kernel_digest, TEMPLATE_DIGEST_MAX)                                             \
    MANIFEST_FIELD(cmdline, 512)

struct manifest {
#define MANIFEST_FIELD(name, bytes) char name[bytes];
    MANIFEST_FIELDS
#undef MANIFEST_FIELD
    uint32_t memory_mib, vcpus;
    uint32_t tsc_khz; /* may differ by a thousandth: it is measured */
    /* contents; not compared, checked while reading */
    uint64_t state_bytes, ram_bytes_used;
    char state_sha256[MANIFEST_SHA_TEXT], ram_sha256[MANIFEST_SHA_TEXT];
    uint64_t boot_ms; /* how long the boot took, for doctor and the bench */
};

/* What a snapshot of this template made on this host now would say; contents are zero. */
void manifest_wanted(struct manifest *ret_manifest, const struct engine_host *host,
                     const struct template_info *t);
/* Kernel command line of a template's boot. */
void manifest_cmdline(const struct engine_host *host, const struct template_info *t, char *out,
                      size_t room);
/* 0 when have may be used where want is asked for; -ERR_MISMATCH names the first field that
 * differs, and both values. */
MUST_CHECK int manifest_compare(const struct manifest *have, const struct manifest *want,
                                struct err *err);
/* The same as an object, for a document that holds more; a reference of the caller's. */
json_t *manifest_to_json(const struct manifest *m);
/* Keys that are not a manifest's are passed over. -ERR_INVALID, -ERR_MISMATCH (version). */
MUST_CHECK int manifest_from_json(const json_t *root, struct manifest *ret_manifest,
                                  struct err *err);
/* JSON text, NUL-terminated, free(). */
char *manifest_print(const struct manifest *m);
/* -ERR_INVALID names the field. */
MUST_CHECK int manifest_parse(const char *text, size_t len, struct manifest *ret_manifest,
                              struct err *err);
