/* The guest that was taken over: one behaviour a word (hostile.def), played on any channel.
 *
 * Theory: the same code is a thread on a socket pair (unit tests) and the agent of a real microVM
 * (brood-guest-hostile, tests/e2e/hostile). It begins where the agent has received Run; everything
 * from Started on is its own. It needs no allocation and no library but the frames. */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "common/wire/frame.h"

/* Plays word on fd (stream socket or virtio-serial port, blocking or not) as an answer to Run
 * number run; returns when there is nothing more to say, or the host is gone. in: what was read
 * from fd by now. false: no such word. */
bool hostile_play(int fd, struct frame_parser *in, const char *word, uint32_t run);
/* It ends with the channel closed rather than with silence. */
bool hostile_closes(const char *word);
