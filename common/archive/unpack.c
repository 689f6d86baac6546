#include "common/archive/unpack.h"

#include <archive.h>
#include <archive_entry.h>
#include <assert.h>
#include <locale.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/archive/source.h"
#include "common/archive/tree.h"
#include "common/base/cleanup.h"

#define NAME_SHOWN_MAX 96 /* bytes of an entry's name in an error */
#define USTAR_NAME_BYTES 100
#define HEADER_BYTES 4096u /* of an entry, without its paths: more than any program writes */

struct unpack {
    struct source source; /* large: on the heap */
    struct archive *a;
    const struct unpack_limits *limits;
    const struct unpack_sink *sink;
    struct tree tree;
    bool zip, empty;
    int entries;
    uint32_t headers;
    uint64_t total; /* bytes given out of the files before the one in hand */
    char path[UNPACK_PATH_BYTES_MAX + 1], target[UNPACK_PATH_BYTES_MAX + 1];
};

/* "archive: 'NAME': " before the text of err; the name printable and cut. */
static int of_entry(struct err *err, const char *name)
{
    char shown[NAME_SHOWN_MAX + 4];
    size_t n = 0;
    for (; name[n] && n < NAME_SHOWN_MAX; n++) {
        shown[n] = name[n] >= ' ' && name[n] <= '~' && name[n] != '\'' ? name[n] : '?';
    }
    memcpy(shown + n, name[n] ? "..." : "", name[n] ? 4 : 1);
    return err_prefix(err, "archive: '%s'", shown);
}

static int too_many(const struct unpack *u, struct err *err)
{
    return err_set(err, ERR_TOO_LARGE, "archive: more than %u entries", u->limits->entries_max);
}

static int damaged(struct unpack *u, struct err *err)
{
    const char *why = archive_error_string(u->a);
    int rc = source_failed(&u->source, err);
    if (rc < 0) {
        return rc;
    }
    if (u->source.full) {
        return too_many(u, err);
    }
    if (u->source.over) {
        return err_set(err, ERR_TOO_LARGE, "archive: what it unpacks to is more than %llu bytes",
                       (unsigned long long)u->source.unpacked_max);
    }
    if (archive_read_has_encrypted_entries(u->a) > 0) {
        return err_set(err, ERR_INVALID, "archive: encrypted; only plain ones are read");
    }
    return err_set(err, ERR_INVALID, "archive: damaged or cut short: %s", why ? why : "no reason");
}

static int configure(struct unpack *u, struct err *err)
{
    enum source_kind kind;
    int rc = source_kind(&u->source, &kind, err);
    if (rc < 0) {
        return rc;
    }
    u->zip = kind == SOURCE_ZIP;
    u->empty = kind == SOURCE_ZIP_EMPTY;
    if (u->empty) { /* libarchive does not know it */
        return 0;
    }
    if (u->zip && !u->source.seekable) {
        return err_set(err, ERR_INVALID,
                       "archive: a zip must come as a file: its directory is at its end");
    }
    int ok = ARCHIVE_OK;
    if (u->zip) {
        ok = archive_read_support_format_zip_seekable(u->a);
    } else { /* exactly these, in place of what libarchive would guess: nothing nested */
        ok = archive_read_set_format(u->a, ARCHIVE_FORMAT_TAR);
        if (ok == ARCHIVE_OK && kind == SOURCE_TAR_GZ) {
            ok = archive_read_append_filter(u->a, ARCHIVE_FILTER_GZIP);
        } else if (ok == ARCHIVE_OK && kind == SOURCE_TAR_ZST) {
            ok = archive_read_append_filter(u->a, ARCHIVE_FILTER_ZSTD);
        } else if (ok == ARCHIVE_OK) {
            ok = archive_read_append_filter(u->a, ARCHIVE_FILTER_NONE);
        }
    }
    if (ok != ARCHIVE_OK) {
        return err_set(err, ERR_UNSUPPORTED, "archive: %s", archive_error_string(u->a));
    }
    if (!u->zip) { /* what no entry gives out is bounded, too; a zip is bounded by its own size */
        const struct unpack_limits *l = u->limits;
        u->source.unpacked_max =
            l->total_bytes_max + l->entries_max * (HEADER_BYTES + 2 * (uint64_t)l->path_bytes_max);
    }
    rc = source_open(&u->source, u->a, err);
    if (rc == 0 && u->zip) {
        source_records(&u->source, u->limits->entries_max);
    }
    return rc;
}

/* A warning that a name could not be converted: its record says UTF-8 and it is not. GNU tar writes
 * such records (--format=pax); libarchive then gives the name of the old header, which is the same
 * bytes unless it was cut at the field's end. */
static int check_warning(const char *name, const char *why, struct err *err)
{
    if (why && strstr(why, "onverted") &&
        (!name || strstr(why, "inkname") || strstr(why, "ymlink") ||
         strlen(name) == USTAR_NAME_BYTES)) {
        return err_set(err, ERR_INVALID, "a name that is marked as UTF-8 and is not");
    }
    return 0;
}

static int read_kind(struct archive_entry *ae, struct unpack_entry *e, struct err *err)
{
    if (archive_entry_hardlink(ae)) {
        e->type = UNPACK_HARDLINK;
        return 0;
    }
    switch (archive_entry_filetype(ae)) {
    case AE_IFREG:
        e->type = UNPACK_FILE;
        return 0;
    case AE_IFDIR:
        e->type = UNPACK_DIR;
        return 0;
    case AE_IFLNK:
        e->type = UNPACK_LINK;
        return 0;
    case AE_IFCHR:
    case AE_IFBLK:
        return err_set(err, ERR_INVALID, "a device");
    case AE_IFIFO:
        return err_set(err, ERR_INVALID, "a fifo");
    case AE_IFSOCK:
        return err_set(err, ERR_INVALID, "a socket");
    default:
        return err_set(err, ERR_INVALID, "of a type that is not known");
    }
}

static int read_target(struct unpack *u, struct archive_entry *ae, struct unpack_entry *e,
                       struct err *err)
{
    if (e->type == UNPACK_HARDLINK) {
        int n = tree_clean(&u->tree, archive_entry_hardlink(ae), u->target, err);
        if (n < 0) {
            return err_prefix(err, "a hard link");
        }
        e->target = u->target;
        e->target_len = (size_t)n;
    } else if (e->type == UNPACK_LINK) {
        const char *target = archive_entry_symlink(ae);
        size_t n = target ? strlen(target) : 0;
        if (n > u->limits->path_bytes_max) {
            return err_set(err, ERR_TOO_LARGE, "the link's target is over %zu bytes",
                           u->limits->path_bytes_max);
        }
        memcpy(u->target, target ? target : "", n + 1);
        e->target = u->target;
        e->target_len = n;
    }
    return 0;
}

/* zip alone: other methods need memory that the archive chooses. */
static int check_method(struct unpack *u, const struct unpack_entry *e, struct err *err)
{
    const char *name = archive_format_name(u->a);
    if (u->zip && e->type == UNPACK_FILE && name && !strstr(name, "(uncompressed)") &&
        !strstr(name, "(deflation)")) {
        return err_set(err, ERR_INVALID, "a zip method other than store and deflate: %.64s", name);
    }
    return 0;
}

static int check_size(struct unpack *u, struct archive_entry *ae, struct unpack_entry *e,
                      struct err *err)
{
    int64_t announced = archive_entry_size_is_set(ae) ? archive_entry_size(ae) : -1;
    if (announced < 0 && archive_entry_size_is_set(ae)) {
        return err_set(err, ERR_INVALID, "a negative size");
    }
    uint64_t size = announced > 0 ? (uint64_t)announced : 0;
    if (size > u->limits->file_bytes_max) {
        return err_set(err, ERR_TOO_LARGE, "%llu bytes; a file may have %llu",
                       (unsigned long long)size, (unsigned long long)u->limits->file_bytes_max);
    }
    if (size > u->limits->total_bytes_max - u->total) {
        return err_set(err, ERR_TOO_LARGE, "more than %llu bytes in all",
                       (unsigned long long)u->limits->total_bytes_max);
    }
    e->size = e->type == UNPACK_FILE ? announced : -1;
    return 0;
}

/* 1: *e is filled; 0: the work folder itself, nothing to do. */
static int read_entry(struct unpack *u, struct archive_entry *ae, const char *name, bool warned,
                      struct unpack_entry *e, struct err *err)
{
    int rc = warned ? check_warning(name, archive_error_string(u->a), err) : 0;
    if (rc == 0 && !name) {
        rc = err_set(err, ERR_INVALID, "an entry without a name");
    }
    if (rc == 0 && archive_entry_is_encrypted(ae)) {
        rc = err_set(err, ERR_INVALID, "encrypted; only plain ones are read");
    }
    rc = rc ? rc : read_kind(ae, e, err);
    if (rc == 0 &&
        (e->type == UNPACK_FILE || e->type == UNPACK_DIR)) { /* GNU dumps: folders, too */
        rc = check_size(u, ae, e, err);
    }
    int n = rc ? rc : tree_clean(&u->tree, name, u->path, err);
    if (n < 0) {
        return n;
    }
    if (n == 0) {
        return e->type == UNPACK_DIR ? 0 : err_set(err, ERR_INVALID, "names the work folder");
    }
    e->path = u->path;
    e->path_len = (size_t)n;
    e->mode = (unsigned)archive_entry_perm(ae) & 0777;
    rc = read_target(u, ae, e, err);
    rc = rc ? rc : tree_add(&u->tree, e, err);
    rc = rc ? rc : check_method(u, e, err);
    return rc < 0 ? rc : 1;
}

static int give_zeros(struct unpack *u, uint64_t n, struct err *err)
{
    static const char zeros[4096];
    int rc = 0;
    while (n > 0 && rc == 0) {
        size_t len = n < sizeof zeros ? (size_t)n : sizeof zeros;
        rc = u->sink->data(u->sink->arg, zeros, len, err);
        n -= len;
    }
    return rc;
}

/* The file in hand has to_end bytes at least. */
static int check_running(struct unpack *u, const struct unpack_entry *e, uint64_t to_end,
                         struct err *err)
{
    if (e->size >= 0 && to_end > (uint64_t)e->size) {
        return err_set(err, ERR_INVALID, "more bytes than it says");
    }
    if (to_end > u->limits->file_bytes_max) {
        return err_set(err, ERR_TOO_LARGE, "a file may have %llu bytes",
                       (unsigned long long)u->limits->file_bytes_max);
    }
    if (to_end > u->limits->total_bytes_max - u->total) {
        return err_set(err, ERR_TOO_LARGE, "more than %llu bytes in all",
                       (unsigned long long)u->limits->total_bytes_max);
    }
    return 0;
}

static int read_data(struct unpack *u, const struct unpack_entry *e, struct err *err)
{
    uint64_t at = 0;
    for (;;) {
        const void *data;
        size_t n;
        la_int64_t offset;
        int got = archive_read_data_block(u->a, &data, &n, &offset);
        if (got == ARCHIVE_EOF) {
            break;
        }
        if (got != ARCHIVE_OK) {
            return damaged(u, err);
        }
        if (offset < 0 || (uint64_t)offset < at) {
            return err_set(err, ERR_INVALID, "data out of order");
        }
        int rc = check_running(u, e, (uint64_t)offset + n, err);
        rc = rc ? rc : give_zeros(u, (uint64_t)offset - at, err);
        if (rc == 0 && n > 0) {
            rc = u->sink->data(u->sink->arg, data, n, err);
        }
        if (rc < 0) {
            return rc;
        }
        at = (uint64_t)offset + n;
    }
    if (e->size >= 0 && at < (uint64_t)e->size) { /* a hole at the end of a sparse file */
        int rc = give_zeros(u, (uint64_t)e->size - at, err);
        if (rc < 0) {
            return rc;
        }
        at = (uint64_t)e->size;
    }
    u->total += at;
    return 0;
}

static int run(struct unpack *u, struct err *err)
{
    int rc = configure(u, err);
    while (rc >= 0 && !u->empty) {
        struct archive_entry *ae;
        int got = archive_read_next_header(u->a, &ae);
        u->source.counting = false; /* of a zip: its directory is read */
        if (got == ARCHIVE_EOF) {
            rc = source_failed(&u->source, err);
            return rc < 0 ? rc : u->entries;
        }
        if (got != ARCHIVE_OK && got != ARCHIVE_WARN) {
            return damaged(u, err);
        }
        if (++u->headers > u->limits->entries_max) {
            return too_many(u, err);
        }
        struct unpack_entry e = { .size = -1 };
        const char *name = archive_entry_pathname(ae);
        rc = read_entry(u, ae, name, got == ARCHIVE_WARN, &e, err);
        if (rc < 0) {
            return of_entry(err, name ? name : "?");
        }
        if (rc == 0) {
            continue;
        }
        u->entries++;
        rc = u->sink->entry(u->sink->arg, &e, err);
        if (rc == 0 && e.type == UNPACK_FILE && (rc = read_data(u, &e, err)) < 0) {
            return of_entry(err, u->path);
        }
    }
    return rc;
}

static int unpack(struct unpack *u, const struct unpack_limits *limits,
                  const struct unpack_sink *sink, struct err *err)
{
    /* libarchive converts names between what a record says and the thread's locale; UTF-8 is what
     * records say, and everything else is passed as it is. */
    locale_t utf8 = newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0);
    if (utf8 == (locale_t)0) {
        return err_set(err, ERR_UNSUPPORTED, "archive: this system has no locale C.UTF-8");
    }
    u->limits = limits;
    u->sink = sink;
    tree_init(&u->tree, limits->entries_max, limits->path_bytes_max);
    locale_t before = uselocale(utf8);
    u->a = archive_read_new();
    int rc = u->a ? run(u, err) : err_set(err, ERR_INTERNAL, "archive: no memory");
    (void)archive_read_free(u->a);
    (void)uselocale(before);
    freelocale(utf8);
    tree_done(&u->tree);
    return rc;
}

static struct unpack *unpack_new(void)
{
    struct unpack *u = calloc(1, sizeof *u);
    if (!u) {
        abort();
    }
    return u;
}

int unpack_memory(const void *data, size_t n, const struct unpack_limits *limits,
                  const struct unpack_sink *sink, struct err *err)
{
    cleanup_free struct unpack *u = unpack_new();
    source_memory(&u->source, data, n);
    return unpack(u, limits, sink, err);
}

int unpack_fd(int fd, const struct unpack_limits *limits, const struct unpack_sink *sink,
              struct err *err)
{
    cleanup_free struct unpack *u = unpack_new();
    int rc = source_fd(&u->source, fd, err);
    return rc < 0 ? rc : unpack(u, limits, sink, err);
}
