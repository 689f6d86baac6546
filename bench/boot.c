/* bench_boot TEMPLATE N: cold boots of a template, by the pool's own engine and command line: from
 * the start of QEMU to the first byte that print(1) writes. JSON on stdout: {"boot_us": [...],
 * "first_byte_us": [...]} (boot: to the agent's hello). */
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <sodium.h>
#include "bench/session.h"
#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/config.h"
#include "vmpool/engine.h"
#include "vmpool/exercise.h"
#include "vmpool/manifest.h"
#include "vmpool/template.h"

#define N_MAX 1000

struct bench {
    struct event_base *base;
    const struct engine *engine;
    struct engine_host host;
    struct template_info info;
    char cmdline[512];
    struct bench_session *session;
    struct machine *machine;
    struct exercise *hello;
    bool exited;
    char why[ENGINE_TEXT_MAX]; /* not empty: the boot failed */
};

static void on_hello(void *user, const char *why)
{
    struct bench *b = user;
    if (why) {
        (void)snprintf(b->why, sizeof b->why, "no hello: %s", why);
    }
    (void)event_base_loopbreak(b->base);
}

static void on_machine(void *user, enum machine_event event, const char *text)
{
    struct bench *b = user;
    if (event == MACHINE_RUNNING) {
        b->hello = exercise_await_hello(b->base, b->engine->channel_fd(b->machine), on_hello, b);
    } else if (event == MACHINE_FAILED || event == MACHINE_EXITED) {
        b->exited = b->exited || event == MACHINE_EXITED;
        (void)snprintf(b->why, sizeof b->why, "machine: %.180s", text ? text : "ended");
        (void)event_base_loopbreak(b->base);
    }
}

static void destroy(struct bench *b)
{
    exercise_free(TAKE_PTR(b->hello));
    if (!b->machine) {
        return;
    }
    b->engine->destroy(b->machine);
    while (!b->exited) {
        (void)event_base_loop(b->base, EVLOOP_ONCE);
    }
    b->engine->free(TAKE_PTR(b->machine));
}

static int boot(struct bench *b, int64_t *ret_boot_us, int64_t *ret_first_byte_us, struct err *err)
{
    cleanup_close int ram = memfd_create("bench-ram", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    cleanup_close int state = memfd_create("bench-state", MFD_CLOEXEC);
    if (ram < 0 || state < 0 || ftruncate(ram, (off_t)b->info.memory_mib << 20) < 0) {
        return err_sys(err, "memfd");
    }
    struct machine_options options = { .memory_mib = b->info.memory_mib,
                                       .vcpus = b->info.vcpus,
                                       .ram_fd = ram,
                                       .share = true,
                                       .state_fd = state,
                                       .disk = b->info.rootfs[0] ? b->info.rootfs : NULL,
                                       .kernel = b->info.kernel,
                                       .initrd = b->info.initrd,
                                       .cmdline = b->cmdline };
    b->exited = false;
    b->why[0] = 0;
    int64_t start_us = mono_us(), total_us;
    int rc = b->engine->start(b->base, &b->host, &options, on_machine, b, &b->machine, err);
    if (rc < 0) {
        return rc;
    }
    (void)event_base_dispatch(b->base);
    *ret_boot_us = mono_us() - start_us;
    exercise_free(TAKE_PTR(b->hello));
    if (b->why[0]) {
        rc = err_set(err, ERR_INTERNAL, "%s", b->why);
    } else {
        rc = bench_session_run(b->session, b->engine->channel_fd(b->machine), -1, start_us,
                               ret_first_byte_us, &total_us, err);
    }
    destroy(b);
    return rc;
}

static int prepare(struct bench *b, const char *name, struct err *err)
{
    static struct config config;
    char digest[TEMPLATE_DIGEST_MAX];
    b->engine = engine_default();
    b->base = event_base_new();
    int rc = b->base ? config_load(&config, NULL, NULL, err) : err_set(err, ERR_SYS, "event loop");
    rc = rc < 0 ? rc : b->engine->probe(&b->host, err);
    rc = rc < 0 ? rc : template_current(config.home, name, digest, err);
    rc = rc < 0 ? rc : template_load(config.home, name, digest, &b->info, err);
    if (rc < 0) {
        return rc;
    }
    manifest_cmdline(&b->host, &b->info, b->cmdline, sizeof b->cmdline);
    return bench_session_new(name, &b->session, err);
}

int main(int argc, char **argv)
{
    struct err err = { 0 };
    static struct bench b;
    long n = argc == 3 ? strtol(argv[2], NULL, 10) : 0;
    if (n < 1 || n > N_MAX) {
        (void)fprintf(stderr, "usage: bench_boot TEMPLATE N   (the home is $BROOD_HOME)\n");
        return 2;
    }
    json_t *boots = json_array(), *firsts = json_array();
    int rc =
        sodium_init() < 0 ? err_set(&err, ERR_INTERNAL, "libsodium") : prepare(&b, argv[1], &err);
    for (long i = 0; rc >= 0 && i < n; i++) {
        int64_t boot_us = 0, first_us = 0;
        rc = boot(&b, &boot_us, &first_us, &err);
        (void)json_array_append_new(boots, json_integer(boot_us));
        (void)json_array_append_new(firsts, json_integer(first_us));
    }
    if (rc < 0) {
        (void)fprintf(stderr, "bench_boot: %s\n", err.text);
        return 1;
    }
    json_t *out = json_pack("{s:o, s:o, s:s}", "boot_us", boots, "first_byte_us", firsts, "engine",
                            b.host.name);
    (void)json_dumpf(out, stdout, JSON_COMPACT);
    (void)putchar('\n');
    json_decref(out);
    bench_session_free(b.session);
    event_base_free(b.base);
    return 0;
}
