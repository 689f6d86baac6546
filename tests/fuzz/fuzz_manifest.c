/* A manifest of artifacts, read back as if a stranger wrote it: what is accepted has clean paths in
 * order, and its text is a fixed point. */
#include <assert.h>
#include <stdint.h>
#include <string.h>

#include "common/base/cleanup.h"
#include "common/model/manifest.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct err err;
    cleanup_manifest struct manifest m = { 0 };
    if (manifest_parse((const char *)data, size, &m, &err) < 0) {
        return 0;
    }
    assert(m.n <= MANIFEST_FILES_MAX);
    for (size_t i = 0; i < m.n; i++) {
        const struct artifact *a = &m.files[i];
        assert(a->path_len > 0 && a->path_len <= MANIFEST_PATH_BYTES_MAX && a->path[0] != '/');
        assert(strlen(a->path) == a->path_len && strcmp(a->path, "..") != 0);
        assert(strncmp(a->path, "../", 3) != 0 && !strstr(a->path, "/../"));
        assert(a->mode <= 0777 && a->type < ARTIFACT_TYPES && a->reason < ARTIFACT_REASONS);
        assert(!a->stored || a->type != ARTIFACT_FILE || a->sha256[0]);
    }
    cleanup_free char *text = manifest_json(&m);
    cleanup_manifest struct manifest twin = { 0 };
    int rc = manifest_parse(text, strlen(text), &twin, &err);
    assert(rc == 0);
    cleanup_free char *again = manifest_json(&twin);
    assert(strcmp(text, again) == 0);
    return 0;
}
