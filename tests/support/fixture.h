/* Private servers for tests: a redis-server and a Postgres of their own, on Unix sockets in a short
 * folder under /tmp, ended with the process that started them, however it ends (PR_SET_PDEATHSIG).
 *
 * A test program that needs both links test_support and defines its main by FIXTURE_MAIN: servers
 * are started once, each Criterion test (a process of its own) asks for an empty Redis and a
 * database of its own. Needs root or any user; as root Postgres runs as the user "postgres", which
 * it insists on. */
#pragma once
#include <stdbool.h>
#include <sys/types.h>
#include "common/store/jobs.h"
#include "common/store/queue.h"

#define SERVER_DIR_MAX 64

struct server {
    pid_t pid;                /* 0: not running */
    char dir[SERVER_DIR_MAX]; /* made by us */
    char url[256];            /* redis.url; postgres: connection string without dbname */
    int size_mib;             /* of a file system of its own for dir (root, names.h); 0: none */
};

/* Each returns 0, or -1 after a line on stderr. dir is made on the first start and kept until
 * server_remove, so that a server can be ended and started again on its data. */
int redis_start(struct server *s);
int postgres_start(struct server *s);
/* kill with sig and wait. */
void server_end(struct server *s, int sig);
/* End it when it runs, and remove its folder. */
void server_remove(struct server *s);

/* Start both, run Criterion with the program's arguments, end both. The value for main to return.
 */
int fixture_main(int argc, char **argv);
/* The padding: Criterion's BoxFort writes a jump over the beginning of main in each test's process,
 * and it is longer than such a short main: it overwrote the function behind it (seen with -O1 and
 * AddressSanitizer). */
#define FIXTURE_MAIN                                                                               \
    int main(int argc, char **argv)                                                                \
    {                                                                                              \
        __asm__ volatile(".skip 256, 0x90");                                                       \
        return fixture_main(argc, argv);                                                           \
    }

/* In a test: where the program's servers are. A new database, migrated, with the template "python"
 * (256 MiB, 1 vCPU); an empty Redis. */
struct fixture {
    char pg_url[320], redis_url[256];
    struct pg pg;
    struct queue queue;
};
/* Aborts the test with a message when it cannot. */
void fixture_open(struct fixture *f);
void fixture_close(struct fixture *f);
/* The first value of a query as text into out[room] ("" for NULL or no row); aborts on an SQL
 * error. */
void fixture_value(struct fixture *f, const char *sql, char *out, size_t room);
long fixture_number(struct fixture *f, const char *sql);
/* store_dispatch of up to max jobs, of whatever tenants and priorities have some due. */
int fixture_dispatch(struct pg *pg, int max, struct dispatch_row *ret_rows, struct err *err);
/* A parsed job for the template python. command: a shell line; key: idempotency key or NULL.
 * Owned by the fixture: freed by fixture_close. */
const struct job_spec *fixture_job(const char *command, const char *key);
