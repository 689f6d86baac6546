/* Between test_layers.c and its target. */
#pragma once
#include <stdint.h>

#define LAYERS_PAGE 4096u

enum layers_verb {
    LAYERS_PEEK,    /* answer: a byte of the page */
    LAYERS_FILL,    /* with value; answer: a byte as it was before */
    LAYERS_SCATTER, /* every second page, with layers_letter */
    LAYERS_LOOK     /* answer: 'y' when every second page is so, and every other one as it was */
};

struct layers_command {
    uint32_t page;
    char verb, value;
};

static inline char layers_letter(uint32_t page)
{
    return (char)('a' + page / 2 % 26);
}
