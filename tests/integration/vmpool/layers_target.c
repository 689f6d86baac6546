/* brood-layers-target: maps its "guest RAM" (fd 3) shared, as QEMU does, with the preload library
 * beneath it (test_layers.c). fd 4: commands, struct layers_command; each is answered by one
 * char. */
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/integration/vmpool/layers_target.h"

/* base_pages: those that were not zeros, but 'b', before. */
static char look(const char *ram, uint32_t pages, uint32_t base_pages)
{
    for (uint32_t p = 0; p < pages; p++) {
        char want = p % 2 == 0 ? layers_letter(p) : p < base_pages ? 'b' : 0;
        if (ram[(size_t)p * LAYERS_PAGE + p % LAYERS_PAGE] != want) {
            return 'n';
        }
    }
    return 'y';
}

int main(void)
{
    struct stat st;
    struct layers_command c;
    if (fstat(3, &st) < 0) {
        return 1;
    }
    char *ram = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, 3, 0);
    if (ram == MAP_FAILED) {
        return 2;
    }
    while (recv(4, &c, sizeof c, 0) == (ssize_t)sizeof c) {
        uint32_t pages = (uint32_t)((size_t)st.st_size / LAYERS_PAGE);
        char *page = ram + (size_t)c.page * LAYERS_PAGE, answer = page[c.page % LAYERS_PAGE];
        if (c.verb == LAYERS_FILL) {
            memset(page, c.value, LAYERS_PAGE);
        } else if (c.verb == LAYERS_LOOK) {
            answer = look(ram, pages, c.page);
        }
        for (uint32_t p = 0; c.verb == LAYERS_SCATTER && p < pages; p += 2) {
            memset(ram + (size_t)p * LAYERS_PAGE, layers_letter(p), LAYERS_PAGE);
        }
        if (send(4, &answer, 1, MSG_NOSIGNAL) != 1) {
            return 3;
        }
    }
    return 0;
}
