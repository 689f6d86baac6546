/* A guest for tests: a thread on the other end of a socket pair that plays a script, well-behaved
 * or hostile. */
#pragma once
#include <pb.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include "common/wire/frame.h"
#include "schemas/proto/guest.pb.h"

struct fake_guest {
    int fd;      /* the guest's end */
    int host_fd; /* the other end: the test's, or handed on */
    int cpu_fd;  /* schedstat of the guest's thread, once it runs; the guest's to close */
    struct frame_parser parser;
    pthread_t thread;
    void (*script)(struct fake_guest *g, void *arg);
    void *arg;
    guest_Run run; /* the last Run received */
    guest_Identity identity;
    int files; /* File frames received */
    uint64_t file_bytes, stdin_bytes;
};

/* Start a thread that runs script. Heap: fake_guest_join frees. */
struct fake_guest *fake_guest_start(void (*script)(struct fake_guest *g, void *arg), void *arg);
/* Close the host's end when it is still there, wait for the script, free. */
void fake_guest_join(struct fake_guest *g);

/* For scripts. Next frame; false at the end of the stream. */
bool guest_recv(struct fake_guest *g, struct frame *ret_frame);
/* Receive until a frame of this type came (counting files and stdin, settled when asked to be);
 * false at the end of the stream. */
bool guest_recv_type(struct fake_guest *g, enum frame_type type, struct frame *ret_frame);
/* false when the host is gone. */
bool guest_send(struct fake_guest *g, enum frame_type type, const pb_msgdesc_t *fields,
                const void *message);
bool guest_send_raw(struct fake_guest *g, const void *data, size_t len);
bool guest_send_output(struct fake_guest *g, int stream, const void *data, size_t len);
/* Identity and Run received, Ready and Started sent. */
bool guest_begin(struct fake_guest *g);
bool guest_ready(struct fake_guest *g);
bool guest_started(struct fake_guest *g);
bool guest_exit(struct fake_guest *g, int exit_code);
/* The well-behaved guest: argv is {"echo", TEXT}, {"exit", N}, {"leave"}, {"sleep", MS}, {"spin",
 * MS},
 * {"die"}, {"flood"}, {"drip", MS}, {"cat"}; answers runs until the channel closes. */
void guest_script_shell(struct fake_guest *g, void *arg);
