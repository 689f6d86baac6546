/* Making a document that XML forbids into one that it allows. Internal to common/report. */
#pragma once
#include "common/report/report_part.h"

enum xml_encoding {
    XML_UTF8,  /* UTF-8 or ASCII, said or not */
    XML_BYTES, /* another encoding that keeps ASCII in its place */
    XML_WIDE,  /* UTF-16 by its mark: not filtered */
};
enum xml_encoding xml_encoding_of(const char *data, size_t len);

/* Replace forbidden control characters, invalid UTF-8 and references to forbidden characters by
 * U+FFFD ("?" in XML_BYTES). When nothing has to be replaced, *ret_data is data itself and out
 * stays empty; otherwise it is in out, which must be empty and hold 3 * len bytes. */
void xml_filter(enum xml_encoding encoding, const char *data, size_t len, struct buf *out,
                const char **ret_data, size_t *ret_len);
