/* Runs a fuzz target over stored inputs: every file of every folder named. Fails when there is
 * none. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/buf.h"
#include "common/base/cleanup.h"

#define INPUT_MAX (32u << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int replay(const char *dir)
{
    DIR *d = opendir(dir);
    if (!d) {
        (void)fprintf(stderr, "%s: cannot be opened\n", dir);
        return -1;
    }
    int n = 0;
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        if (e->d_name[0] == '.') {
            continue;
        }
        char path[4096];
        (void)snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
        cleanup_buf struct buf b = { 0 };
        buf_init(&b, INPUT_MAX);
        struct err err;
        if (buf_read_file(&b, path, &err) < 0) {
            (void)fprintf(stderr, "%s\n", err.text);
            (void)closedir(d);
            return -1;
        }
        /* an exact allocation, so that AddressSanitizer sees a read behind the end */
        cleanup_free uint8_t *exact = malloc(b.len ? b.len : 1);
        if (!exact) {
            abort();
        }
        memcpy(exact, b.data, b.len);
        (void)LLVMFuzzerTestOneInput(exact, b.len);
        n++;
    }
    (void)closedir(d);
    return n;
}

int main(int argc, char **argv)
{
    int total = 0;
    for (int i = 1; i < argc; i++) {
        int n = replay(argv[i]);
        if (n < 0) {
            return 1;
        }
        total += n;
    }
    (void)printf("replayed %d inputs\n", total);
    return total > 0 ? 0 : 1;
}
