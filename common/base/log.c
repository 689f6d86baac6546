#include "common/base/log.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"

#define LOG_LINE_MAX 4096u

static struct {
    const char *proc;
    enum log_level level;
    int fd;
} config = { "brood", LOG_INFO, 2 };

static const char *const level_names[] = { "debug", "info", "warn", "error" };

struct line {
    char text[LOG_LINE_MAX];
    size_t len;
};

static void put(struct line *l, const char *s, size_t n)
{
    /* keep room for the closing quote, brace and newline */
    size_t room = LOG_LINE_MAX - 4 - l->len;
    if (n > room) {
        n = room;
    }
    memcpy(l->text + l->len, s, n);
    l->len += n;
}

static void put_json(struct line *l, const char *s)
{
    if (!s) {
        put(l, "null", 4);
        return;
    }
    put(l, "\"", 1);
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;
        char esc[8];
        if (LOG_LINE_MAX - l->len < 16) {
            break; /* never cut inside an escape */
        }
        if (c == '"' || c == '\\') {
            esc[0] = '\\';
            esc[1] = (char)c;
            put(l, esc, 2);
        } else if (c < 0x20 || c >= 0x7f) {
            (void)snprintf(esc, sizeof esc, "\\u%04x", c);
            put(l, esc, 6);
        } else {
            put(l, (const char *)&c, 1);
        }
    }
    put(l, "\"", 1);
}

static void start(struct line *l, enum log_level level, const char *msg)
{
    char ts[CLOCK_TEXT_MAX];
    clock_format_ms(wall_ms(), ts);
    int n = snprintf(l->text, sizeof l->text,
                     "{\"ts\":\"%s\",\"level\":\"%s\",\"proc\":\"%s\",\"msg\":", ts,
                     level_names[level], config.proc);
    l->len = (size_t)n;
    put_json(l, msg);
}

static void finish(struct line *l)
{
    l->text[l->len++] = '}';
    l->text[l->len++] = '\n';
    (void)!write(config.fd, l->text, l->len);
}

void log_init(const char *proc, enum log_level level, int fd)
{
    config.proc = proc;
    config.level = level;
    config.fd = fd;
}

bool log_wanted(enum log_level level)
{
    return level >= config.level;
}

void log_kv(enum log_level level, const char *msg, ...)
{
    if (level < config.level) {
        return;
    }
    struct line l;
    start(&l, level, msg);
    va_list ap;
    va_start(ap, msg);
    const char *key;
    while ((key = va_arg(ap, const char *)) != NULL) {
        const char *value = va_arg(ap, const char *);
        if (LOG_LINE_MAX - l.len < strlen(key) + 64) {
            break;
        }
        put(&l, ",", 1);
        put_json(&l, key);
        put(&l, ":", 1);
        put_json(&l, value);
    }
    va_end(ap);
    finish(&l);
}

void log_fmt(enum log_level level, const char *fmt, ...)
{
    if (level < config.level) {
        return;
    }
    char msg[1024];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(msg, sizeof msg, fmt, ap);
    va_end(ap);
    log_kv(level, msg, (char *)0);
}

int log_level_parse(const char *name)
{
    for (int i = 0; i < 4; i++) {
        if (strcmp(name, level_names[i]) == 0) {
            return i;
        }
    }
    return -1;
}
