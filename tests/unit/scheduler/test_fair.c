/* Everyone served: the real choice (scheduler/pick.c) in a simulated world of tenants, slots and a
 * ready stream, on a clock of its own. Seeded: the same run every time. BROOD_CURVES=1 prints the
 * tables of docs/scheduling.md. */
#include <criterion/criterion.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "scheduler/pick.h"

#define MS 1000 /* the world's clock counts microseconds */
#define SECOND (1000 * MS)
#define SLOTS_MAX 64
#define READY_MAX 1024
#define TENANTS_MAX 64
#define POLL_US (10 * MS) /* the scheduler looks at least this often while jobs wait */
#define NEVER INT64_MAX

struct job {
    int tenant, priority;
};

struct line_world {
    int64_t waiting, mean_us; /* jobs take mean_us x (0.5 to 1.5), or exactly when fixed */
    int64_t started, slot_us, first_start_us, last_start_us, gap_us, in_flight_most;
};

struct world {
    struct pick *pick;
    uint64_t rng;
    int64_t now_us, arrives_us; /* when the newcomer's jobs come; NEVER: there is none */
    int n_slots, n_tenants, newcomer;
    bool fixed;
    int64_t ends_us[SLOTS_MAX], took_us[SLOTS_MAX];
    struct job runs[SLOTS_MAX];
    struct job ready[READY_MAX];
    int n_ready;
    int64_t in_flight[TENANTS_MAX], newcomer_jobs;
    struct line_world lines[TENANTS_MAX][PRIORITY_COUNT];
    int64_t measure_from_us;
};

static uint64_t next_random(struct world *w)
{
    w->rng ^= w->rng << 13; /* xorshift64 */
    w->rng ^= w->rng >> 7;
    w->rng ^= w->rng << 17;
    return w->rng;
}

static void name_of(int tenant, char out[16])
{
    (void)snprintf(out, 16, "t%d", tenant);
}

static struct world *world_new(int slots, uint64_t seed)
{
    struct world *w = calloc(1, sizeof *w);
    cr_assert(w && slots <= SLOTS_MAX);
    w->pick = pick_new();
    w->rng = seed * 0x9e3779b97f4a7c15u + 1;
    w->n_slots = slots;
    w->arrives_us = NEVER;
    for (int i = 0; i < slots; i++) {
        w->ends_us[i] = NEVER;
    }
    return w;
}

static void world_free(struct world *w)
{
    pick_free(w->pick);
    free(w);
}

static int add_tenant(struct world *w, int64_t weight, int64_t cap)
{
    char name[16];
    name_of(w->n_tenants, name);
    int place = pick_tenant(w->pick, name);
    cr_assert_eq(place, w->n_tenants);
    pick_set_terms(w->pick, place, &(struct pick_terms){ .weight = weight, .in_flight_max = cap });
    return w->n_tenants++;
}

static void add_jobs(struct world *w, int tenant, enum job_priority p, int64_t n, int64_t mean_us)
{
    w->lines[tenant][p].waiting += n;
    w->lines[tenant][p].mean_us = mean_us;
    pick_add_waiting(w->pick, tenant, p, n);
}

static void scheduler_turn(struct world *w, int64_t depth)
{
    struct pick_share shares[PICK_TURN_MAX];
    int order[PICK_TURN_MAX], n_jobs, busy = 0;
    for (int i = 0; i < w->n_slots; i++) {
        busy += w->ends_us[i] != NEVER;
    }
    struct pick_input in = { .slots = w->n_slots,
                             .ready_depth = depth,
                             .unclaimed = w->n_ready,
                             .claimed = busy,
                             .mean_us = pick_mean_us(w->pick) };
    int room = pick_room(&in);
    if (room == 0) {
        return;
    }
    int n = pick_turn(w->pick, room, shares, order, &n_jobs);
    for (int i = 0; i < n_jobs; i++) {
        const struct pick_share *s = &shares[order[i]];
        struct line_world *l = &w->lines[s->tenant][s->priority];
        cr_assert_gt(l->waiting, 0, "picked what does not wait");
        l->waiting--;
        cr_assert_lt(w->n_ready, READY_MAX);
        w->ready[w->n_ready++] = (struct job){ s->tenant, (int)s->priority };
        int64_t fly = ++w->in_flight[s->tenant];
        l->in_flight_most = fly > l->in_flight_most ? fly : l->in_flight_most;
    }
    for (int i = 0; i < n; i++) {
        pick_taken(w->pick, &shares[i], shares[i].n);
    }
}

static void start(struct world *w, int slot)
{
    struct job j = w->ready[0];
    memmove(w->ready, w->ready + 1, (size_t)--w->n_ready * sizeof *w->ready);
    struct line_world *l = &w->lines[j.tenant][j.priority];
    int64_t us =
        w->fixed ? l->mean_us : l->mean_us / 2 + (int64_t)(next_random(w) % (uint64_t)l->mean_us);
    if (l->started++ == 0) {
        l->first_start_us = w->now_us;
    } else if (w->now_us - l->last_start_us > l->gap_us) {
        l->gap_us = w->now_us - l->last_start_us;
    }
    l->last_start_us = w->now_us;
    w->runs[slot] = j;
    w->took_us[slot] = us;
    w->ends_us[slot] = w->now_us + us;
}

static void end(struct world *w, int slot)
{
    struct job j = w->runs[slot];
    char name[16];
    name_of(j.tenant, name);
    w->in_flight[j.tenant]--;
    if (w->now_us >= w->measure_from_us) {
        w->lines[j.tenant][j.priority].slot_us += w->took_us[slot];
    }
    pick_done(w->pick, name, (enum job_priority)j.priority, 1, w->took_us[slot]);
    w->ends_us[slot] = NEVER;
}

static void run_until(struct world *w, int64_t until_us)
{
    while (w->now_us < until_us) {
        int64_t next = w->now_us + POLL_US;
        for (int i = 0; i < w->n_slots; i++) {
            next = w->ends_us[i] < next ? w->ends_us[i] : next;
        }
        next = w->arrives_us > w->now_us && w->arrives_us < next ? w->arrives_us : next;
        w->now_us = next;
        for (int i = 0; i < w->n_slots; i++) {
            if (w->ends_us[i] <= w->now_us) {
                end(w, i);
            }
        }
        if (w->now_us >= w->arrives_us) {
            w->arrives_us = NEVER;
            add_jobs(w, w->newcomer, PRIORITY_NORMAL, w->newcomer_jobs,
                     w->lines[w->newcomer][PRIORITY_NORMAL].mean_us);
        }
        for (int i = 0; i < w->n_slots; i++) {
            if (w->ends_us[i] == NEVER && w->n_ready > 0) {
                start(w, i);
            }
        }
        scheduler_turn(w, 64);
        for (int i = 0; i < w->n_slots; i++) { /* what was made ready just now */
            if (w->ends_us[i] == NEVER && w->n_ready > 0) {
                start(w, i);
            }
        }
    }
}

/* A world with one tenant's flood; the newcomer's delay until its first start. */
static int64_t newcomer_delay(int slots, int64_t job_us, int64_t at_us, uint64_t seed)
{
    struct world *w = world_new(slots, seed);
    w->fixed = true;
    int flood = add_tenant(w, 1, 0);
    w->newcomer = add_tenant(w, 1, 0);
    w->newcomer_jobs = 1;
    w->lines[w->newcomer][PRIORITY_NORMAL].mean_us = job_us;
    add_jobs(w, flood, PRIORITY_NORMAL, 100000, job_us);
    w->arrives_us = at_us;
    run_until(w, at_us + 20 * job_us);
    const struct line_world *l = &w->lines[w->newcomer][PRIORITY_NORMAL];
    cr_assert_eq(l->started, 1, "%d slots, seed %d: it never started", slots, (int)seed);
    int64_t delay = l->first_start_us - at_us;
    world_free(w);
    return delay;
}

static void __attribute__((format(printf, 1, 2))) curve(const char *format, ...)
{
    va_list ap;
    if (getenv("BROOD_CURVES")) {
        va_start(ap, format);
        (void)vfprintf(stderr, format, ap);
        va_end(ap);
    }
}

#define SEEDS 40

/* B131 of the field cases, the half of it that is the scheduler's: who fills the queue does not
 * decide when others start. */
Test(fair, b131_a_flood_of_100000_delays_a_newcomer_by_at_most_two_job_lengths)
{
    for (int slots = 1; slots <= 16; slots *= 2) {
        double most = 0, sum = 0;
        for (uint64_t seed = 1; seed <= SEEDS; seed++) {
            int64_t job_us = (int64_t)(20 + seed * 37) * MS;
            int64_t at_us = 5 * SECOND + (int64_t)seed * 7919 * 13;
            int64_t delay = newcomer_delay(slots, job_us, at_us, seed);
            cr_assert_leq(delay, 2 * job_us + POLL_US, "%d slots, jobs of %lld us: %lld us", slots,
                          (long long)job_us, (long long)delay);
            double lengths = (double)delay / (double)job_us;
            most = lengths > most ? lengths : most;
            sum += lengths;
        }
        curve("| %d | %.2f | %.2f |\n", slots, sum / SEEDS, most);
    }
}

static int64_t slot_time(const struct world *w, int tenant)
{
    int64_t us = 0;
    for (int p = 0; p < PRIORITY_COUNT; p++) {
        us += w->lines[tenant][p].slot_us;
    }
    return us;
}

/* Tenants with jobs of very different lengths, over a minute of saturation. */
Test(fair, shares_of_slot_time_are_within_5_percent_of_the_weights)
{
    static const int64_t weights[] = { 1, 2, 5, 10 };
    static const int64_t means[] = { 900 * MS, 80 * MS, 2000 * MS, 300 * MS };
    double worst[4] = { 0 }, shares[4] = { 0 };
    for (uint64_t seed = 1; seed <= 10; seed++) {
        struct world *w = world_new(32, seed);
        for (int i = 0; i < 4; i++) {
            int t = add_tenant(w, weights[i], 0);
            add_jobs(w, t, PRIORITY_NORMAL, 1000000, means[(i + (int)seed) % 4]);
        }
        w->measure_from_us = 30 * SECOND; /* the estimates are learned by then */
        run_until(w, 90 * SECOND);
        int64_t all = 0;
        for (int i = 0; i < 4; i++) {
            all += slot_time(w, i);
        }
        for (int i = 0; i < 4; i++) {
            double want = (double)weights[i] / 18, have = (double)slot_time(w, i) / (double)all;
            cr_assert_float_eq(have, want, 0.05 * want, "seed %d: weight %d has %.4f, not %.4f",
                               (int)seed, (int)weights[i], have, want);
            double off = have > want ? have / want - 1 : 1 - have / want;
            worst[i] = off > worst[i] ? off : worst[i];
            shares[i] += have / 10;
        }
        world_free(w);
    }
    for (int i = 0; i < 4; i++) {
        curve("| %d | %.2f | %.2f | %.2f |\n", (int)weights[i], 100.0 * (double)weights[i] / 18,
              100 * shares[i], 100 * worst[i]);
    }
}

Test(fair, priorities_divide_a_tenants_share_and_none_starves)
{
    static const double want[] = { 16.0 / 21, 4.0 / 21, 1.0 / 21 };
    struct world *w = world_new(8, 3);
    int mine = add_tenant(w, 1, 0), other = add_tenant(w, 1, 0);
    for (int p = 0; p < PRIORITY_COUNT; p++) {
        add_jobs(w, mine, (enum job_priority)p, 1000000, 100 * MS);
    }
    add_jobs(w, other, PRIORITY_BULK, 1000000, 100 * MS);
    w->measure_from_us = 5 * SECOND;
    run_until(w, 65 * SECOND);
    double mine_us = (double)slot_time(w, mine);
    for (int p = 0; p < PRIORITY_COUNT; p++) {
        const struct line_world *l = &w->lines[mine][p];
        cr_assert_float_eq((double)l->slot_us / mine_us, want[p], 0.05 * want[p] + 0.003, "%s: %f",
                           job_priority_word((enum job_priority)p), (double)l->slot_us / mine_us);
        cr_assert_lt(l->gap_us, 3 * SECOND, "%s waited %lld us between two starts",
                     job_priority_word((enum job_priority)p), (long long)l->gap_us);
    }
    /* Priorities are a tenant's own affair: calling everything high takes nothing from others. */
    cr_assert_float_eq((double)slot_time(w, other) / (mine_us + (double)slot_time(w, other)), 0.5,
                       0.025);
    world_free(w);
}

Test(fair, a_cap_on_what_is_in_flight_holds_and_leaves_the_rest_to_others)
{
    struct world *w = world_new(16, 5);
    int capped = add_tenant(w, 1000, 3), other = add_tenant(w, 1, 0);
    add_jobs(w, capped, PRIORITY_NORMAL, 100000, 200 * MS);
    add_jobs(w, other, PRIORITY_NORMAL, 100000, 200 * MS);
    run_until(w, 30 * SECOND);
    cr_assert_eq(w->lines[capped][PRIORITY_NORMAL].in_flight_most, 3);
    cr_assert_gt(slot_time(w, capped), 2 * 25 * (int64_t)SECOND, "it has nearly three slots");
    cr_assert_gt(slot_time(w, other), 12 * 28 * (int64_t)SECOND, "and the other all others");
    world_free(w);
}

/* Nobody saves up: a tenant that was away for an hour gets its share from now on, no more. */
Test(fair, who_was_away_does_not_take_everything_when_it_comes_back)
{
    struct world *w = world_new(8, 9);
    int busy = add_tenant(w, 1, 0);
    w->newcomer = add_tenant(w, 1, 0);
    w->newcomer_jobs = 100000;
    w->lines[w->newcomer][PRIORITY_NORMAL].mean_us = 100 * MS;
    add_jobs(w, busy, PRIORITY_NORMAL, 1000000, 100 * MS);
    w->arrives_us = 300 * SECOND;
    w->measure_from_us = 301 * SECOND;
    run_until(w, 331 * SECOND);
    double mine = (double)slot_time(w, w->newcomer), all = mine + (double)slot_time(w, busy);
    cr_assert_float_eq(mine / all, 0.5, 0.025, "%f", mine / all);
    world_free(w);
}

/* ---- single rules ---- */

static int pick_one(struct pick *p)
{
    struct pick_share shares[PICK_TURN_MAX];
    int order[PICK_TURN_MAX], n;
    return pick_turn(p, 1, shares, order, &n) == 0 ? -1 : shares[0].tenant;
}

Test(fair, a_stopped_tenant_is_not_picked_until_it_is_let_go)
{
    struct pick *p = pick_new();
    int a = pick_tenant(p, "a");
    pick_set_waiting(p, a, PRIORITY_HIGH, 5);
    pick_set_terms(p, a, &(struct pick_terms){ .weight = 1, .stopped = true });
    cr_assert(!pick_pending(p));
    cr_assert_eq(pick_one(p), -1);
    pick_set_terms(p, a, &(struct pick_terms){ .weight = 1 });
    cr_assert_eq(pick_one(p), a);
    pick_free(p);
}

Test(fair, jobs_that_are_not_due_are_left_alone_until_told)
{
    struct pick *p = pick_new();
    int a = pick_tenant(p, "a"), b = pick_tenant(p, "b");
    pick_set_waiting(p, a, PRIORITY_NORMAL, 3);
    struct pick_share shares[PICK_TURN_MAX];
    int order[PICK_TURN_MAX], n;
    cr_assert_eq(pick_turn(p, 3, shares, order, &n), 1);
    cr_assert_eq(n, 3);
    pick_taken(p, &shares[0], 0);
    cr_assert(!pick_pending(p), "the database has none due");
    pick_set_waiting(p, a, PRIORITY_NORMAL, 3);
    cr_assert(!pick_pending(p), "the same three");
    pick_set_waiting(p, b, PRIORITY_NORMAL, 1);
    cr_assert_eq(pick_one(p), b);
    pick_set_waiting(p, a, PRIORITY_NORMAL, 4);
    cr_assert_eq(pick_one(p), a, "one more came");
    pick_taken(p, &(struct pick_share){ a, PRIORITY_NORMAL, 1 }, 0);
    pick_unpark(p);
    cr_assert_eq(pick_one(p), a);
    pick_free(p);
}

Test(fair, a_job_that_runs_longer_than_estimated_is_charged_while_it_runs)
{
    struct pick *p = pick_new();
    int a = pick_tenant(p, "a"), b = pick_tenant(p, "b");
    pick_set_waiting(p, a, PRIORITY_NORMAL, 100);
    pick_set_waiting(p, b, PRIORITY_NORMAL, 100);
    cr_assert_eq(pick_one(p), a);
    cr_assert_eq(pick_one(p), b);
    pick_done(p, "b", PRIORITY_NORMAL, 1, PICK_COST_FIRST_US);
    pick_set_in_flight(p, a, PRIORITY_NORMAL, 1, 10 * PICK_COST_FIRST_US);
    for (int i = 0; i < 8; i++) {
        cr_assert_eq(pick_one(p), b, "turn %d", i);
        pick_done(p, "b", PRIORITY_NORMAL, 1, PICK_COST_FIRST_US);
    }
    pick_done(p, "a", PRIORITY_NORMAL, 1, 10 * PICK_COST_FIRST_US);
    cr_assert_eq(pick_one(p), b, "charged once, not twice");
    pick_done(p, "b", PRIORITY_NORMAL, 1, PICK_COST_FIRST_US);
    cr_assert_eq(pick_one(p), a);
    pick_free(p);
}

Test(fair, ten_thousand_tenants_are_each_served_in_turn)
{
    enum { N = 10000 };
    struct pick *p = pick_new();
    static unsigned char seen[N];
    for (int i = 0; i < N; i++) {
        char name[16];
        name_of(i, name);
        cr_assert_eq(pick_tenant(p, name), i);
        pick_set_waiting(p, i, PRIORITY_NORMAL, 100);
    }
    for (int i = 0; i < N; i++) {
        int t = pick_one(p);
        cr_assert(t >= 0 && !seen[t], "tenant %d twice before everyone once", t);
        seen[t] = 1;
    }
    pick_free(p);
}

Test(fair, places_are_given_anew_when_their_tenants_have_nothing)
{
    struct pick *p = pick_new();
    char name[16];
    for (int i = 0; i < PICK_TENANTS_MAX; i++) {
        name_of(i, name);
        cr_assert_eq(pick_tenant(p, name), i);
        if (i != 7) {
            pick_set_waiting(p, i, PRIORITY_BULK, 1);
        }
    }
    cr_assert_eq(pick_tenant(p, "new"), 7);
    cr_assert_str_eq(pick_name(p, 7), "new");
    pick_set_waiting(p, 7, PRIORITY_BULK, 1);
    cr_assert_eq(pick_tenant(p, "newer"), -1, "all have work");
    cr_assert_eq(pick_tenant(p, "t8"), 8, "who has a place keeps it");
    pick_done(p, "t7", PRIORITY_BULK, 1, 1); /* forgotten: ignored */
    pick_free(p);
}

/* Any order of calls: what is picked waits, no cap is broken, nothing that can be picked is left.
 */
Test(fair, random_calls_keep_the_rules)
{
    enum { N = 12, STEPS = 60000 };
    struct pick *p = pick_new();
    int64_t waiting[N][PRIORITY_COUNT] = { 0 }, flying[N][PRIORITY_COUNT] = { 0 }, cap[N] = { 0 };
    bool stopped[N] = { 0 };
    struct world rng = { .rng = 42 };
    for (int i = 0; i < N; i++) {
        char name[16];
        name_of(i, name);
        cr_assert_eq(pick_tenant(p, name), i);
    }
    for (int step = 0; step < STEPS; step++) {
        int t = (int)(next_random(&rng) % N), k = (int)(next_random(&rng) % PRIORITY_COUNT);
        char name[16];
        name_of(t, name);
        switch (next_random(&rng) % 6) {
        case 0:
            waiting[t][k] += 3;
            pick_add_waiting(p, t, (enum job_priority)k, 3);
            break;
        case 1:
            waiting[t][k] = (int64_t)(next_random(&rng) % 4);
            pick_set_waiting(p, t, (enum job_priority)k, waiting[t][k]);
            break;
        case 2:
            if (flying[t][k] > 0) {
                flying[t][k]--;
                pick_done(p, name, (enum job_priority)k, 1, (int64_t)(next_random(&rng) % 5000000));
            }
            break;
        case 3:
            cap[t] = (int64_t)(next_random(&rng) % 4);
            stopped[t] = next_random(&rng) % 4 == 0;
            pick_set_terms(p, t,
                           &(struct pick_terms){ .weight = 1 + (int64_t)(next_random(&rng) % 1000),
                                                 .in_flight_max = cap[t],
                                                 .stopped = stopped[t] });
            break;
        case 4:
            pick_set_in_flight(p, t, (enum job_priority)k, flying[t][k],
                               (int64_t)(next_random(&rng) % 9000000));
            break;
        default: {
            struct pick_share shares[PICK_TURN_MAX];
            int order[PICK_TURN_MAX], n_jobs, room = 1 + (int)(next_random(&rng) % 8);
            int n = pick_turn(p, room, shares, order, &n_jobs);
            for (int i = 0; i < n; i++) {
                struct pick_share s = shares[i];
                int64_t fly = 0;
                waiting[s.tenant][s.priority] -= s.n;
                flying[s.tenant][s.priority] += s.n;
                for (int q = 0; q < PRIORITY_COUNT; q++) {
                    fly += flying[s.tenant][q];
                }
                cr_assert_geq(waiting[s.tenant][s.priority], 0);
                cr_assert(!stopped[s.tenant]);
                cr_assert(cap[s.tenant] == 0 || fly <= cap[s.tenant]);
                pick_taken(p, &s, s.n);
            }
            cr_assert(n_jobs == room || !pick_pending(p));
        }
        }
        bool could = false;
        for (int i = 0; i < N; i++) {
            int64_t fly = flying[i][0] + flying[i][1] + flying[i][2];
            could = could || (waiting[i][0] + waiting[i][1] + waiting[i][2] > 0 && !stopped[i] &&
                              (cap[i] == 0 || fly < cap[i]));
        }
        cr_assert_eq(pick_pending(p), could, "step %d", step);
    }
    pick_free(p);
}
