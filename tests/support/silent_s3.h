/* An S3 store that is there and says nothing: a socket that takes connections and never answers. */
#pragma once
#include <stdbool.h>
#include "common/store/object.h"

/* home: for its temporary files. One attempt a request, broken off after stall_s. *ret_fd: the
 * socket, to be closed. Aborts the test when it cannot. */
struct object_store *silent_s3(const char *home, int stall_s, int *ret_fd);
/* Has another connection come? It stays open until the next. */
bool silent_s3_asked(int fd);
