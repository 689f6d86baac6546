/* UUIDs as text. Version 7 (RFC 9562): sorts by creation time; monotonic within this process. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#define ID_BYTES 16
#define ID_TEXT_BYTES 37 /* 36 characters and NUL */

struct id {
    char text[ID_TEXT_BYTES];
};

/* Thread-safe. */
struct id id_new(void);
/* Any UUID in lower-case 8-4-4-4-12 form. */
bool id_valid(const char *text);
struct id id_of_bytes(const uint8_t bytes[ID_BYTES]);
/* Deterministic id (version 8) from the parts joined by NUL: the same parts give the same id. */
struct id id_derive(const char *const *parts, int n_parts);
