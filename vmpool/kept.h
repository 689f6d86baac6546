/* Kept states on disk: HOME/kept/ID/{manifest.json,layer}, where ID is the SHA-256 of
 * manifest.json.
 *
 * A kept state is a chain: its layer (layer.h), its parent's, and so on down to one without a
 * parent. The manifest names the layer and the parent by their digests, so an ID stands for every
 * byte of RAM and device state below it. The chain of a state of a template's machine ends in the
 * template's snapshot, kept once as a state of its own: another host's snapshot of the same
 * template has other bytes. Files are written by tmp + rename and never changed; who needs the room
 * may delete a folder at any time, what is loaded lives in a memfd. These calls are made on a
 * helper thread. */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "common/base/err.h"
#include "vmpool/layer.h"
#include "vmpool/manifest.h"

#define KEPT_ID_TEXT LAYER_SHA_TEXT
#define KEPT_CHAIN_MAX 16   /* layers that are read to load one state */
#define KEPT_PREFIX "kept:" /* of a lease's template: kept:ID */

struct kept_manifest {
    struct manifest machine;   /* what it was made with; sums and boot_ms are not used */
    char parent[KEPT_ID_TEXT]; /* "": the layer is whole */
    char layer_sha256[LAYER_SHA_TEXT];
    uint64_t layer_bytes; /* of the file */
    uint64_t pages, zero_pages;
    uint64_t chain_bytes; /* of the files of all layers on it, this one's included */
    uint32_t depth;       /* how many those are */
};

/* Is text an ID (64 lower-case hex digits)? */
bool kept_id_ok(const char *text);
/* -ERR_NOT_FOUND: it is not on this disk; -ERR_CORRUPT: the file is not what ID says. */
MUST_CHECK int kept_read_manifest(const char *home, const char *id, struct kept_manifest *ret,
                                  struct err *err);
/* As that, but a folder that is not what ID says is put away: -ERR_NOT_FOUND. */
MUST_CHECK int kept_find(const char *home, const char *id, struct kept_manifest *ret,
                         struct err *err);
/* Is it there, by its manifest and its layer's size? */
bool kept_whole(const char *home, const char *id);
/* Keep what `from` has. m: machine and parent are given (parent: on this disk, or "" with
 * from->flat), the rest is filled in. The same state again is the same ID. */
MUST_CHECK int kept_write(const char *home, const struct layer_source *from,
                          struct kept_manifest *m, char ret_id[KEPT_ID_TEXT], struct err *err);
/* Load the chain of id, whose manifest m is, into two sealed memfds. -ERR_NOT_FOUND names the first
 * ID that is not on this disk; one that is, but is not what its ID says, is put away. *ret_used:
 * bytes of RAM that are not holes; -ERR_NO_CAPACITY when more than room_bytes may be needed for it,
 * and then how many. */
MUST_CHECK int kept_load(const char *home, const char *id, const struct kept_manifest *m,
                         uint64_t room_bytes, int *ret_ram_fd, int *ret_state_fd,
                         uint64_t *ret_used, struct err *err);
