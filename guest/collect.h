/* Artifacts: the files of the work folder that match the host's globs, sent after a run.
 *
 * Theory: a walk in steps. The agent's loop calls collect_work once a turn, which goes on while the
 * channel has room and stops after COLLECT_STEPS_MAX steps, so the agent keeps answering whatever
 * lies in the folder. Every name is opened in the folder that holds it, without following links and
 * without leaving the file system (a run may have laid any trap, and mounted any); only plain files
 * are opened at all. Each folder is read whole and sorted by bytes, so the same tree gives the same
 * frames. The run is dead by then, but nothing here depends on it: a file that changes while it is
 * read keeps the size that was announced. Limits of the walk (depth, names held) are below; what
 * they leave out is counted. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "common/base/buf.h"
#include "common/model/glob.h"
#include "guest/channel.h"
#include "schemas/proto/guest.pb.h"

#define COLLECT_DEPTH_MAX 64           /* folders below one another, the work folder included */
#define COLLECT_NAMES_MAX 65536u       /* names held at once, of all open folders */
#define COLLECT_NAME_BYTES_MAX 4194304 /* their bytes, for each open folder */
#define COLLECT_STEPS_MAX 256          /* a step is one name, or one frame of data */

struct collect_dir {
    int fd;
    struct buf text; /* the names, each ended by NUL */
    char **names;    /* into text, sorted */
    size_t n, next;
    size_t path_len; /* of this folder's path; 0: the work folder */
};

struct collect {
    bool active;
    guest_Collect ask; /* large */
    struct collect_dir dirs[COLLECT_DEPTH_MAX];
    int depth;
    size_t names_held;
    char path[GLOB_PATH_BYTES_MAX]; /* of the name in hand */
    int file_fd;                    /* -1: the rest of the file is zeros */
    bool in_file;
    uint64_t file_left;
    guest_ArtifactChange change;
    uint64_t matched; /* bit i: pattern i matched something */
    guest_Collected told;
};

/* Zeroed, or drop what is going on. */
void collect_init(struct collect *c);
void collect_drop(struct collect *c);
/* Begin: from here on collect_work is called until `active` is false. work_fd: the work folder,
 * kept by the caller. -ERR_PROTOCOL, -ERR_INVALID (globs), -ERR_SYS. */
MUST_CHECK int collect_start(struct collect *c, int work_fd, const struct frame *f,
                             struct err *err);
/* Queue what fits; COLLECTED is queued when all is told. */
void collect_work(struct collect *c, struct channel *ch);
