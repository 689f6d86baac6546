/* Names that a job chose, for a terminal. Pure. */
#pragma once
#include <stddef.h>

/* Copy len bytes to out[room], cut when it does not fit: control characters, and everything when it
 * is not UTF-8, as \xNN; a backslash as it is. room is 1 or more; 4 x len + 1 holds all. */
void safe_text(char *out, size_t room, const char *data, size_t len);
