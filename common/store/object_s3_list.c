/* ListObjectsV2 by pages. Keys that are not objects of ours (another prefix's, a person's) are
 * passed over, so one call of ours may need several of the server's. The mark is always the last
 * key seen, so nothing depends on the server's continuation tokens. */
#include "common/store/object_s3.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define LIST_PAGES_MAX 100000 /* of one call: 100 million keys that are not ours */

/* The id of a key; false when it is not one of ours. */
static bool key_id(const struct object_s3 *s, const char *key, struct object_id *ret_id)
{
    size_t n = strlen(s->o.prefix);
    if (strncmp(key, s->o.prefix, n) != 0 || strlen(key + n) != OBJECT_PATH ||
        object_id_parse(ret_id, key + n + 6, NULL) < 0) {
        return false;
    }
    char path[OBJECT_PATH + 1];
    object_id_path(ret_id, path);
    return strcmp(path, key + n) == 0;
}

struct page {
    int n; /* rows taken */
    bool more;
    char last[1100]; /* last key seen, ours or not; keys have at most 1024 bytes */
};

static int read_page(const struct object_s3 *s, const struct buf *xml, struct object_info *rows,
                     int max, struct page *p, struct err *err)
{
    const char *text = xml->data ? xml->data : "";
    char word[32], size[32], date[64], before[sizeof p->last];
    size_t pos = 0, at, len;
    if (!s3_xml_text(text, xml->len, &pos, "IsTruncated", word, sizeof word)) {
        return err_set(err, ERR_PROTOCOL, "s3: list of bucket %s: not a ListBucketResult",
                       s->o.bucket);
    }
    p->more = strcmp(word, "true") == 0;
    p->n = 0;
    (void)snprintf(before, sizeof before, "%s", p->last);
    pos = 0;
    while (p->n < max && s3_xml_element(text, xml->len, &pos, "Contents", &at, &len)) {
        size_t in = 0;
        if (!s3_xml_text(text + at, len, &in, "Key", p->last, sizeof p->last)) {
            return err_set(err, ERR_PROTOCOL, "s3: list of bucket %s: an entry without key",
                           s->o.bucket);
        }
        struct object_info *row = &rows[p->n];
        if (!key_id(s, p->last, &row->id)) {
            continue;
        }
        char *end = size;
        in = 0;
        bool sized = s3_xml_text(text + at, len, &in, "Size", size, sizeof size);
        row->size_bytes = sized ? strtoll(size, &end, 10) : -1;
        if (!sized || end == size || *end || row->size_bytes < 0 ||
            row->size_bytes > OBJECT_SIZE_MAX) {
            return err_set(err, ERR_PROTOCOL, "s3: list of bucket %s: %s has no size", s->o.bucket,
                           row->id.hex);
        }
        in = 0;
        row->modified_ms = s3_xml_text(text + at, len, &in, "LastModified", date, sizeof date)
                               ? s3_time_ms(date)
                               : -1;
        p->n++;
    }
    if (p->more && strcmp(p->last, before) <= 0) {
        return err_set(err, ERR_PROTOCOL, "s3: list of bucket %s does not get on from %.100s",
                       s->o.bucket, before);
    }
    return 0;
}

int s3_list(struct object_store *store, const struct object_id *after, struct object_info *rows,
            int max, struct err *err)
{
    struct object_s3 *s = s3_of(store);
    struct page p = { .more = true };
    if (after) {
        s3_key(s, after, p.last);
    }
    cleanup_s3_response struct s3_response r;
    s3_response_init(&r);
    int n = 0;
    for (int pages = 0; n < max && p.more; pages++) {
        if (pages == LIST_PAGES_MAX) {
            return err_set(err, ERR_TOO_LARGE, "s3: list of bucket %s: more than %d pages",
                           s->o.bucket, LIST_PAGES_MAX);
        }
        char query[S3_QUERY_MAX], mark[3 * sizeof p.last], prefix[3 * sizeof s->o.prefix];
        int rc = s3_encode(p.last, false, mark, sizeof mark, err);
        if (rc < 0 || (rc = s3_encode(s->o.prefix, false, prefix, sizeof prefix, err)) < 0) {
            return rc;
        }
        (void)snprintf(query, sizeof query, "list-type=2&max-keys=%d&prefix=%s%s%s", max - n,
                       prefix, mark[0] ? "&start-after=" : "", mark);
        struct s3_request q = S3_REQUEST(.method = "GET", .query = query);
        if ((rc = s3_send(s, &q, &r, err)) < 0 ||
            (rc = read_page(s, &r.text, rows + n, max - n, &p, err)) < 0) {
            return rc;
        }
        n += p.n;
    }
    return n;
}
