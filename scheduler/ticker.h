/* A thread that takes one turn after the other until it is stopped: what the keeper and the sweeper
 * are. */
#pragma once
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include "common/base/err.h"

/* One turn; the ms until the next. Asks ticker_stopping between steps that take long. */
typedef int64_t (*ticker_fn)(void *arg);

struct ticker {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool stopping;
    ticker_fn turn;
    void *arg;
};

/* Starts the thread, with a turn. arg must outlive ticker_stop. */
MUST_CHECK int ticker_start(struct ticker *t, ticker_fn turn, void *arg, struct err *err);
/* Any thread. */
bool ticker_stopping(struct ticker *t);
/* Waits for the end of the turn it is in. */
void ticker_stop(struct ticker *t);
