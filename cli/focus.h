/* Usage lines as FOCUS 1.2 charge records, CSV. Pure. */
#pragma once
#include <stdio.h>
#include "common/store/usage.h"

/* Names, or one row; a line feed at the end. */
void focus_header(FILE *out);
void focus_row(const struct usage_line *l, FILE *out);
/* One field, quoted when it has to be (RFC 4180). */
void csv_field(FILE *out, const char *text);
