/* The program around a worker, shared by brood-worker and the test build's brood-worker-scripted.
 */
#pragma once
#include "worker/worker.h"

/* The value for main to return. script NULL: real sandboxes. */
int worker_main(int argc, char **argv, job_script script);
