/* The output of one shard of `brood ci`, line by line as it comes, each behind "[label] ".
 *
 * Output comes twice: live, in pieces that may be lost, and whole with the result, where the middle
 * of a long one is cut out. What was taken is counted, and the result gives the rest. A piece ends
 * anywhere: the last line waits until it is complete, or too long, or the end. */
#pragma once
#include <stdio.h>
#include "common/base/buf.h"
#include "common/model/result.h"

#define CI_OUT_LINE_MAX 65536u /* a longer line is broken */

struct ci_out {
    const char *label; /* "": as it comes, without lines */
    bool quiet;        /* count only */
    struct {
        FILE *to;
        uint64_t taken; /* bytes */
        struct buf line;
    } streams[3]; /* 1 stdout, 2 stderr */
};

/* label: the caller's. */
void ci_out_init(struct ci_out *o, const char *label, bool quiet);
void ci_out_done(struct ci_out *o);
/* A piece of stream 1 or 2, which begins where the last one ended. */
void ci_out_add(struct ci_out *o, int stream, const char *data, size_t n);
/* Bytes of it so far. */
uint64_t ci_out_taken(const struct ci_out *o, int stream);
/* What the result has beyond that, and the end. */
void ci_out_rest(struct ci_out *o, const struct run_result *run);
