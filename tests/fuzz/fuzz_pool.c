/* Messages on vmpool's socket: one packet, one message. What decodes can be encoded and decoded
 * again. */
#include <assert.h>
#include <stdint.h>
#include <string.h>
#include <pb_decode.h>
#include <pb_encode.h>

#include "schemas/proto/pool.pb.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static pool_PoolMessage message, twin;
static uint8_t bytes[pool_PoolMessage_size];

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    pb_istream_t is = pb_istream_from_buffer(data, size);
    if (!pb_decode(&is, pool_PoolMessage_fields, &message)) {
        return 0;
    }
    pb_ostream_t os = pb_ostream_from_buffer(bytes, sizeof bytes);
    bool ok = pb_encode(&os, pool_PoolMessage_fields, &message);
    assert(ok);
    is = pb_istream_from_buffer(bytes, os.bytes_written);
    ok = pb_decode(&is, pool_PoolMessage_fields, &twin);
    assert(ok && twin.id == message.id && twin.which_body == message.which_body);
    return 0;
}
