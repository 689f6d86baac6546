/* A snapshot holds a CPU's and a device model's inner state: it is refused, never tried, on
 * anything else than what made it (DESIGN 4). host_cpu matters only where the guest sees the host's
 * CPU (KVM). */
#include "vmpool/manifest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <jansson.h>

#define TSC_TOLERANCE 1000u /* one part in */

static void read_host_cpu(char *out, size_t room)
{
    char line[512];
    FILE *f = fopen("/proc/cpuinfo", "re");
    (void)snprintf(out, room, "unknown");
    while (f && fgets(line, sizeof line, f)) {
        char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) == 0 && colon) {
            colon[1 + strcspn(colon + 1, "\n")] = 0;
            (void)snprintf(out, room, "%s", colon + 1 + strspn(colon + 1, " "));
            break;
        }
    }
    if (f) {
        (void)fclose(f);
    }
}

/* init_on_alloc: zeroing each page that is about to be written costs a TCG guest dearly, and the
 * machine is the boundary. transparent_hugepage: a first write to a huge page would make 2 MiB of a
 * clone's memory private. */
void manifest_cmdline(const struct engine_host *host, const struct template_info *t, char *out,
                      size_t room)
{
    char tsc[64] = "";
    if (host->tsc_khz) {
        (void)snprintf(tsc, sizeof tsc, " tsc=reliable tsc_early_khz=%u", host->tsc_khz);
    }
    (void)snprintf(out, room,
                   "mitigations=off nokaslr random.trust_cpu=on init_on_alloc=0 "
                   "transparent_hugepage=never quiet panic=-1%s%s%s",
                   tsc, t->cmdline[0] ? " " : "", t->cmdline);
}

void manifest_wanted(struct manifest *ret_manifest, const struct engine_host *host,
                     const struct template_info *t)
{
    struct manifest m = { .memory_mib = t->memory_mib,
                          .vcpus = t->vcpus,
                          .tsc_khz = host->tsc_khz };
    (void)snprintf(m.engine, sizeof m.engine, "%s", host->name);
    (void)snprintf(m.vmm_version, sizeof m.vmm_version, "%s", host->vmm_version);
    (void)snprintf(m.machine, sizeof m.machine, "%s", host->machine);
    (void)snprintf(m.cpu_model, sizeof m.cpu_model, "%s", host->cpu_model);
    if (host->kvm) {
        read_host_cpu(m.host_cpu, sizeof m.host_cpu);
    }
    (void)snprintf(m.template_name, sizeof m.template_name, "%s", t->name);
    (void)snprintf(m.template_digest, sizeof m.template_digest, "%s", t->digest);
    (void)snprintf(m.kernel_digest, sizeof m.kernel_digest, "%s", t->kernel_digest);
    /* without the measured rate, which has a field and a tolerance of its own */
    struct engine_host plain = *host;
    plain.tsc_khz = 0;
    manifest_cmdline(&plain, t, m.cmdline, sizeof m.cmdline);
    *ret_manifest = m;
}

static int differs(struct err *err, const char *field, const char *have, const char *want)
{
    return err_set(err, ERR_MISMATCH, "snapshot: %s is \"%.90s\", here it is \"%.90s\"", field,
                   have, want);
}

static int number_differs(struct err *err, const char *field, uint32_t have, uint32_t want)
{
    return err_set(err, ERR_MISMATCH, "snapshot: %s is %u, here it is %u", field, have, want);
}

int manifest_compare(const struct manifest *have, const struct manifest *want, struct err *err)
{
#define MANIFEST_FIELD(name, bytes)                                                                \
    if (strcmp(have->name, want->name) != 0) {                                                     \
        return differs(err, #name, have->name, want->name);                                        \
    }
    MANIFEST_FIELDS
#undef MANIFEST_FIELD
    if (have->memory_mib != want->memory_mib) {
        return number_differs(err, "memory_mib", have->memory_mib, want->memory_mib);
    }
    if (have->vcpus != want->vcpus) {
        return number_differs(err, "vcpus", have->vcpus, want->vcpus);
    }
    uint32_t apart = have->tsc_khz > want->tsc_khz ? have->tsc_khz - want->tsc_khz
                                                   : want->tsc_khz - have->tsc_khz;
    if (apart > want->tsc_khz / TSC_TOLERANCE) {
        return number_differs(err, "tsc_khz", have->tsc_khz, want->tsc_khz);
    }
    return 0;
}

json_t *manifest_to_json(const struct manifest *m)
{
    json_t *root = json_object();
    (void)json_object_set_new(root, "version", json_integer(MANIFEST_VERSION));
#define MANIFEST_FIELD(name, bytes) (void)json_object_set_new(root, #name, json_string(m->name));
    MANIFEST_FIELDS
#undef MANIFEST_FIELD
        (void)
    json_object_set_new(root, "memory_mib", json_integer(m->memory_mib));
    (void)json_object_set_new(root, "vcpus", json_integer(m->vcpus));
    (void)json_object_set_new(root, "tsc_khz", json_integer(m->tsc_khz));
    (void)json_object_set_new(root, "state_bytes", json_integer((json_int_t)m->state_bytes));
    (void)json_object_set_new(root, "ram_bytes_used", json_integer((json_int_t)m->ram_bytes_used));
    (void)json_object_set_new(root, "state_sha256", json_string(m->state_sha256));
    (void)json_object_set_new(root, "ram_sha256", json_string(m->ram_sha256));
    (void)json_object_set_new(root, "boot_ms", json_integer((json_int_t)m->boot_ms));
    return root;
}

char *manifest_print(const struct manifest *m)
{
    json_t *root = manifest_to_json(m);
    char *text = json_dumps(root, JSON_INDENT(2));
    json_decref(root);
    if (!text) {
        abort();
    }
    return text;
}

static int take_string(const json_t *root, const char *key, char *out, size_t room, struct err *err)
{
    const char *s = json_string_value(json_object_get(root, key));
    if (!s || strlen(s) >= room) {
        return err_set(err, ERR_INVALID,
                       "snapshot manifest: %s: must be a string of at most %zu bytes", key,
                       room - 1);
    }
    memcpy(out, s, strlen(s) + 1);
    return 0;
}

static int take_uint(const json_t *root, const char *key, uint64_t max, uint64_t *ret,
                     struct err *err)
{
    const json_t *v = json_object_get(root, key);
    if (!json_is_integer(v) || json_integer_value(v) < 0 || (uint64_t)json_integer_value(v) > max) {
        return err_set(err, ERR_INVALID, "snapshot manifest: %s: must be a whole number", key);
    }
    *ret = (uint64_t)json_integer_value(v);
    return 0;
}

int manifest_from_json(const json_t *root, struct manifest *ret_manifest, struct err *err)
{
    struct manifest parsed = { 0 }, *m = &parsed;
    uint64_t version, memory, vcpus, tsc;
    int rc = take_uint(root, "version", UINT32_MAX, &version, err);
    if (rc < 0) {
        return rc;
    }
    if (version != MANIFEST_VERSION) {
        return err_set(err, ERR_MISMATCH, "snapshot: manifest version is %llu, here it is %d",
                       (unsigned long long)version, MANIFEST_VERSION);
    }
#define MANIFEST_FIELD(name, bytes)                                                                \
    if ((rc = take_string(root, #name, m->name, sizeof m->name, err)) < 0) {                       \
        return rc;                                                                                 \
    }
    MANIFEST_FIELDS
#undef MANIFEST_FIELD
    if ((rc = take_uint(root, "memory_mib", TEMPLATE_MEMORY_MIB_MAX, &memory, err)) < 0 ||
        (rc = take_uint(root, "vcpus", TEMPLATE_VCPUS_MAX, &vcpus, err)) < 0 ||
        (rc = take_uint(root, "tsc_khz", UINT32_MAX, &tsc, err)) < 0 ||
        (rc = take_uint(root, "state_bytes", 1u << 30, &m->state_bytes, err)) < 0 ||
        (rc = take_uint(root, "ram_bytes_used", (uint64_t)1 << 40, &m->ram_bytes_used, err)) < 0 ||
        (rc = take_uint(root, "boot_ms", INT32_MAX, &m->boot_ms, err)) < 0 ||
        (rc = take_string(root, "state_sha256", m->state_sha256, sizeof m->state_sha256, err)) <
            0 ||
        (rc = take_string(root, "ram_sha256", m->ram_sha256, sizeof m->ram_sha256, err)) < 0) {
        return rc;
    }
    m->memory_mib = (uint32_t)memory;
    m->vcpus = (uint32_t)vcpus;
    m->tsc_khz = (uint32_t)tsc;
    *ret_manifest = parsed;
    return 0;
}

int manifest_parse(const char *text, size_t len, struct manifest *ret_manifest, struct err *err)
{
    json_error_t je;
    json_t *root = json_loadb(text, len, JSON_REJECT_DUPLICATES, &je);
    int rc = json_is_object(root) ? manifest_from_json(root, ret_manifest, err)
                                  : err_set(err, ERR_INVALID, "snapshot manifest: %s",
                                            root ? "not an object" : je.text);
    json_decref(root);
    return rc;
}
