/* vmpool's own few words with a guest's agent: waiting for its hello, and running the template's
 * exercise. What the guest says is hostile input; the channel is left at the boundary of a frame.
 */
#pragma once
#include <stdint.h>
#include <event2/event.h>
#include "common/base/err.h"

struct exercise;
/* why is NULL when all went well, exercise_closed when the machine ended (its own end says why).
 * Called once, from the loop. */
extern const char exercise_closed[];
typedef void exercise_done(void *user, const char *why);

/* Wait for FRAME_HELLO on fd (borrowed). */
struct exercise *exercise_await_hello(struct event_base *base, int fd, exercise_done *done,
                                      void *user);
/* Up to rounds times (fewer, but two, when time_ms milliseconds are over): send what a lease sends,
 * an Identity and a trusted Run of argv (argv_len bytes, strings each ended by NUL), in one piece,
 * and wait for Ready and for an Exit with code 0 (output is dropped). */
MUST_CHECK int exercise_run(struct event_base *base, int fd, const char *argv, uint32_t argv_len,
                            uint32_t memory_mib, int rounds, int64_t time_ms, exercise_done *done,
                            void *user, struct exercise **ret, struct err *err);
/* Stop listening; safe inside done. */
void exercise_free(struct exercise *e);
