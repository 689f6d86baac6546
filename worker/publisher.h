/* What is shown of running jobs, on its way to Redis: one thread with a connection of its own, so
 * that nobody who drives a sandbox ever waits for Redis.
 *
 * Theory: pieces wait in one list, at most PUBLISHER_BYTES_MAX together. What cannot be written, or
 * finds no room, ends the view of the jobs that have something shown now, and of no later one:
 * every job is begun with the number of the outage that it knows of (publisher_era), and a piece
 * with an old number is dropped. So a view ends, but never has a hole. The stored result is the
 * truth. Thread-safe. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "common/base/config.h"
#include "common/base/err.h"
#include "common/store/queue.h"

#define PUBLISHER_BYTES_MAX (16u << 20)

struct publisher;

/* Starts the thread; connects when there is something to write. config outlives it. */
MUST_CHECK int publisher_start(const struct config *config, struct publisher **ret_publisher,
                               struct err *err);
/* What waits is written, unless Redis is away. NULL is allowed. */
void publisher_stop(struct publisher *p);

/* To be asked for when a job begins, and given with each of its pieces. */
uint64_t publisher_era(struct publisher *p);
/* Copies all of it. Stream 0 with no data: the job's output has ended. False: the view of this job
 * has ended before. */
bool publisher_put(struct publisher *p, uint64_t era, const char *job_id,
                   const struct log_piece *piece, const void *data, size_t len);
