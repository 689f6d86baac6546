/* Is KVM here, and does it run a guest at speed? */
#pragma once
#include <stdbool.h>
#include <stddef.h>

/* Runs a guest of a few instructions for some milliseconds by raw ioctls and counts its progress: a
 * /dev/kvm that opens but runs a guest a thousand times too slowly (a paravirtual host) is not
 * usable. why (room bytes) gets the reason and the measured figure. Takes at most 1.5 s, whatever
 * the device does: the guest runs in a child that is killed then. BROOD_TEST_KVM_ROUNDS_MIN in the
 * environment replaces the minimum below, and gives the guest more time (tests only). */
bool kvm_probe(char *why, size_t room);

/* The loop's progress that a usable KVM makes: rounds a second. Hardware does tens of millions; a
 * host that traps on each step some ten thousand. */
#define KVM_PROBE_ROUNDS_MIN 3000000.0
