/* The manifest of a snapshot, which lies in a file: what is accepted prints to a fixed point and
 * equals itself. */
#include <assert.h>
#include <stdint.h>
#include <string.h>

#include "common/base/cleanup.h"
#include "vmpool/manifest.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct manifest m, twin;
    struct err err;
    if (manifest_parse((const char *)data, size, &m, &err) < 0) {
        return 0;
    }
    cleanup_free char *text = manifest_print(&m);
    int rc = manifest_parse(text, strlen(text), &twin, &err);
    assert(rc == 0);
    rc = manifest_compare(&m, &twin, &err);
    assert(rc == 0);
    return 0;
}
