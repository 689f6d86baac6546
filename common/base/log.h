/* JSON-lines log on stderr (or the fd given): {"ts":..,"level":..,"proc":..,"msg":..,<fields>}.
 * Library code logs at debug only; the caller that ends a story logs it once. Thread-safe: a line
 * is one write(2). Fields are alternating key, value strings ended by NULL; values are escaped, a
 * value may be NULL (written as null). */
#pragma once
#include <stdbool.h>

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR };

/* proc: static string, e.g. "worker". level: lowest that is written. */
void log_init(const char *proc, enum log_level level, int fd);
/* Would a line of that level be written? For what costs something to put together. */
bool log_wanted(enum log_level level);
void log_kv(enum log_level level, const char *msg, ...) __attribute__((sentinel));
/* printf-style message without fields, for rare places. */
void log_fmt(enum log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* -1 for an unknown name. */
int log_level_parse(const char *name);

#define log_debug(...) log_kv(LOG_DEBUG, __VA_ARGS__, (char *)0)
#define log_info(...) log_kv(LOG_INFO, __VA_ARGS__, (char *)0)
#define log_warn(...) log_kv(LOG_WARN, __VA_ARGS__, (char *)0)
#define log_error(...) log_kv(LOG_ERROR, __VA_ARGS__, (char *)0)
