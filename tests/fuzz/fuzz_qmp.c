/* QEMU's answers: a QEMU that a guest has taken over writes what it likes on its control socket.
 * Pieces are cut where the input's own bytes say; whatever is handed out is of a known kind and has
 * a name where it must. */
#include <assert.h>
#include <stdint.h>
#include <string.h>

#include "vmpool/qmp.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct qmp_reader r;
    struct qmp_message m;
    struct err err;
    int rc = 0;
    qmp_reader_init(&r);
    for (size_t at = 0; at < size && rc >= 0;) {
        size_t n = (size_t)data[at] * 11 + 1;
        n = n < size - at ? n : size - at;
        rc = qmp_reader_feed(&r, data + at, n, &err);
        at += n;
        while (rc >= 0 && (rc = qmp_reader_next(&r, &m, &err)) == 1) {
            assert(m.root && m.kind >= QMP_GREETING && m.kind <= QMP_EVENT);
            assert((m.kind != QMP_ERROR && m.kind != QMP_EVENT) || m.name);
            assert(m.kind != QMP_RETURN || m.data);
            json_decref(m.root);
        }
    }
    if (rc < 0) { /* broken is broken */
        assert(qmp_reader_feed(&r, "{}\n", 3, &err) < 0 && qmp_reader_next(&r, &m, &err) < 0);
    }
    qmp_reader_done(&r);
    return 0;
}
