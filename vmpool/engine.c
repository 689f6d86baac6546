/* Choice of the engine: one today; a native KVM engine comes behind the same struct. */
#include "vmpool/engine.h"

const struct engine *engine_default(void)
{
    return &engine_qemu;
}
