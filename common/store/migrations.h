/* The SQL files of schemas/sql, in order; generated. The last row has version 0. */
#pragma once

struct migration {
    int version; /* number in the file's name, from 1, without gaps */
    const char *name;
    const char *sql; /* NUL-terminated */
};
extern const struct migration migrations[];
