/* A built template and the kernel it boots, as the files under the home describe them. */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "common/base/err.h"

#define TEMPLATE_NAME_MAX 64
#define TEMPLATE_DIGEST_MAX 72
#define TEMPLATE_PATH_MAX 1024
#define TEMPLATE_EXERCISE_MAX 4096 /* bytes of the exercise's argv, NULs included */
#define TEMPLATE_MEMORY_MIB_MIN 64
#define TEMPLATE_MEMORY_MIB_MAX 65536
#define TEMPLATE_VCPUS_MAX 64

struct template_info {
    char name[TEMPLATE_NAME_MAX];
    char digest[TEMPLATE_DIGEST_MAX];
    char rootfs[TEMPLATE_PATH_MAX]; /* "" when the manifest says that there is none */
    uint32_t memory_mib, vcpus;
    uint32_t exercise_len;                /* 0: nothing to exercise */
    char exercise[TEMPLATE_EXERCISE_MAX]; /* strings, each ended by NUL */
    uint32_t light_len;                   /* 0: as exercise */
    char light[TEMPLATE_EXERCISE_MAX];    /* for each copy of a machine that had the exercise */
    char kernel[TEMPLATE_PATH_MAX], initrd[TEMPLATE_PATH_MAX];
    char kernel_digest[TEMPLATE_DIGEST_MAX];
    char cmdline[256]; /* what the kernel's manifest adds */
};

/* spec: "name" or "name@digest". Splits; digest is "" when not given. -ERR_INVALID for anything
 * that could leave the folder. */
MUST_CHECK int template_spec_parse(const char *spec, char ret_name[TEMPLATE_NAME_MAX],
                                   char ret_digest[TEMPLATE_DIGEST_MAX], struct err *err);
/* Digest that home/templates/name/current points to. -ERR_NOT_FOUND. One readlink. */
MUST_CHECK int template_current(const char *home, const char *name,
                                char ret_digest[TEMPLATE_DIGEST_MAX], struct err *err);
/* Read both manifests. -ERR_NOT_FOUND, -ERR_INVALID (text names file and field). */
MUST_CHECK int template_load(const char *home, const char *name, const char *digest,
                             struct template_info *ret_info, struct err *err);
