/* A small JSON value costs the parser a hundred times its bytes, so the values are counted before
 * it allocates. Up to the first syntax error the text is cut into tokens as jansson does. */
#include "common/report/report_part.h"

int report_json_bounds(const char *s, size_t n, struct err *err)
{
    size_t values = 1;
    int depth = 0;
    for (size_t i = 0; i < n; i++) {
        switch (s[i]) {
        case '"':
            for (i++; i < n && s[i] != '"'; i++) {
                i += s[i] == '\\';
            }
            break;
        case '[':
        case '{':
            if (++depth > REPORT_DEPTH_MAX) {
                return err_set(err, ERR_INVALID, "JSON nested deeper than %d", REPORT_DEPTH_MAX);
            }
            values++;
            break;
        case ']':
        case '}':
            depth--;
            break;
        case ',':
            values++;
            break;
        default:
            break;
        }
        if (values > REPORT_JSON_VALUES_MAX) {
            return err_set(err, ERR_TOO_LARGE, "more than %u JSON values", REPORT_JSON_VALUES_MAX);
        }
    }
    return 0;
}
