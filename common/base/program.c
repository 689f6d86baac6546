#include "common/base/program.h"

#include <argp.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common/base/log.h"

#define EXIT_WRONG_SETTINGS 2
/* A name is asked for twice, 2 s each: with the resolver's own 5 s a silent name server would hold
 * a thread for longer than a lease. */
#define RESOLVER_OPTIONS "timeout:2 attempts:2"

/* Left to itself, malloc takes ever larger blocks from its heaps once one was freed, and a service
 * that has seen a few jobs of 16 MiB holds their room in pieces for good. Beyond the buffers of
 * ordinary jobs, a block is the kernel's and goes back when it is freed. */
#define MALLOC_MMAP_BYTES (1 << 20)
#define MALLOC_TRIM_BYTES (4 << 20)

struct options {
    const char *home, *file;
    bool check;
};

static error_t on_option(int key, char *arg, struct argp_state *state)
{
    struct options *o = state->input;
    switch (key) {
    case 'H':
        o->home = arg;
        return 0;
    case 'c':
        o->file = arg;
        return 0;
    case 'n':
        o->check = true;
        return 0;
    case ARGP_KEY_ARG:
        argp_error(state, "unexpected argument %s", arg);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_option option_rows[] = {
    { "home", 'H', "DIR", 0, "home folder (default: $BROOD_HOME, else /var/lib/brood or ~/.brood)",
      0 },
    { "config", 'c', "FILE", 0, "INI file read after HOME/brood.ini", 0 },
    { "check", 'n', NULL, 0, "check the configuration, print what is in force, and exit", 0 },
    { 0 },
};

void program_files_max(void)
{
    struct rlimit l;
    if (getrlimit(RLIMIT_NOFILE, &l) == 0) {
        l.rlim_cur = l.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &l);
    }
}

int program_begin(const struct program *p, int argc, char **argv, struct config *ret_config,
                  bool *ret_check)
{
    const struct argp arguments = { .options = option_rows, .parser = on_option, .doc = p->doc };
    static char version[64];
    struct options o = { 0 };
    struct err err;
    (void)snprintf(version, sizeof version, "brood-%s " BROOD_VERSION, p->name);
    argp_program_version = version;
    (void)argp_parse(&arguments, argc, argv, 0, NULL, &o);
    (void)setenv("RES_OPTIONS", RESOLVER_OPTIONS, 0);
    (void)mallopt(M_MMAP_THRESHOLD, MALLOC_MMAP_BYTES);
    (void)mallopt(M_TRIM_THRESHOLD, MALLOC_TRIM_BYTES);
    program_files_max();
    if (config_load(ret_config, o.home, o.file, &err) < 0) {
        (void)fprintf(stderr, "brood-%s: %s\n", p->name, err.text);
        return EXIT_WRONG_SETTINGS;
    }
    int level = log_level_parse(ret_config->log_level);
    if (level < 0) {
        (void)fprintf(stderr, "brood-%s: log.level: \"%s\" is none of debug, info, warn, error\n",
                      p->name, ret_config->log_level);
        return EXIT_WRONG_SETTINGS;
    }
    log_init(p->name, (enum log_level)level, STDERR_FILENO);
    *ret_check = o.check;
    return 0;
}
