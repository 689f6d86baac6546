#include "scheduler/pick.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define BUCKETS 32768 /* a power of two */
#define SCALE 64      /* virtual time is microseconds times this, divided by the weight */
#define NONE (-1)
#define COST_US_MAX                                                                                \
    ((int64_t)1000 * 366 * 86400 * 1000000) /* of one notice; a thousand slots for a year */

static const int64_t priority_weights[PRIORITY_COUNT] = PICK_PRIORITY_WEIGHTS;

/* What waits and runs of one tenant in one priority. */
struct line {
    int64_t waiting, in_flight;
    int64_t charged_n,
        charged_us; /* picked and not settled by pick_done, and what it was charged */
    int64_t vtime;
    bool parked; /* the database had nothing due */
    int64_t from_us;
    unsigned turn;
    int share; /* of that turn */
};

struct tenant {
    char name[JOB_TENANT_MAX + 1]; /* "": a free place */
    int next;                      /* in its bucket */
    int at;                        /* in the heap, or NONE */
    uint64_t came;                 /* order of joining the heap: ties go to who came first */
    int64_t vtime;
    int64_t cost_us; /* smoothed; 0: unknown */
    struct pick_terms terms;
    struct line lines[PRIORITY_COUNT];
    int64_t done_jobs, done_us;
};

struct pick {
    struct tenant *tenants; /* PICK_TENANTS_MAX; untouched pages cost nothing */
    int n_tenants;          /* places ever used */
    int buckets[BUCKETS];
    int heap[PICK_TENANTS_MAX];
    int n_heap;
    int64_t last; /* virtual time at which the last one was served: where newcomers start */
    int64_t mean_us;
    struct pick_terms new_terms;
    uint64_t joins;
    unsigned turn;
};

int pick_room(const struct pick_input *in)
{
    assert(in->slots >= 0 && in->ready_depth > 0 && in->unclaimed >= 0 && in->claimed >= 0 &&
           in->mean_us > 0);
    int64_t slots = in->slots > 0 ? in->slots : PICK_SLOTS_WHEN_NONE;
    int64_t idle = in->claimed < slots ? slots - in->claimed : 0, most = in->ready_depth * slots;
    int64_t want = idle + (slots * PICK_AHEAD_MS * 1000 + in->mean_us - 1) / in->mean_us;
    int64_t room = (want < most ? want : most) - in->unclaimed;
    return room <= 0 ? 0 : room > PICK_TURN_MAX ? PICK_TURN_MAX : (int)room;
}

/* ---- the heap: tenants that could be served, the one furthest behind on top ---- */

static bool before(const struct pick *p, int a, int b)
{
    const struct tenant *x = &p->tenants[a], *y = &p->tenants[b];
    return x->vtime != y->vtime ? x->vtime < y->vtime : x->came < y->came;
}

static void put(struct pick *p, int at, int tenant)
{
    p->heap[at] = tenant;
    p->tenants[tenant].at = at;
}

/* The tenant at this place of the heap has changed. */
static void sift(struct pick *p, int at)
{
    int t = p->heap[at];
    while (at > 0 && before(p, t, p->heap[(at - 1) / 2])) {
        put(p, at, p->heap[(at - 1) / 2]);
        at = (at - 1) / 2;
    }
    for (int child; (child = 2 * at + 1) < p->n_heap; at = child) {
        if (child + 1 < p->n_heap && before(p, p->heap[child + 1], p->heap[child])) {
            child++;
        }
        if (!before(p, p->heap[child], t)) {
            break;
        }
        put(p, at, p->heap[child]);
    }
    put(p, at, t);
}

static bool line_open(const struct line *l)
{
    return l->waiting > 0 && !l->parked;
}

static int64_t all_in_flight(const struct tenant *t)
{
    int64_t n = 0;
    for (int i = 0; i < PRIORITY_COUNT; i++) {
        n += t->lines[i].in_flight;
    }
    return n;
}

static bool can_be_served(const struct tenant *t)
{
    if (t->terms.stopped ||
        (t->terms.in_flight_max > 0 && all_in_flight(t) >= t->terms.in_flight_max)) {
        return false;
    }
    for (int i = 0; i < PRIORITY_COUNT; i++) {
        if (line_open(&t->lines[i])) {
            return true;
        }
    }
    return false;
}

/* After any change of a tenant: into the heap, out of it, or to its new place there. */
static void settle(struct pick *p, int tenant)
{
    struct tenant *t = &p->tenants[tenant];
    if (!can_be_served(t)) {
        if (t->at != NONE) {
            int at = t->at;
            t->at = NONE;
            if (at != --p->n_heap) {
                put(p, at, p->heap[p->n_heap]);
                sift(p, at);
            }
        }
        return;
    }
    if (t->at == NONE) {
        int64_t base = p->last; /* those with refunds may be behind it */
        if (p->n_heap > 0 && p->tenants[p->heap[0]].vtime < base) {
            base = p->tenants[p->heap[0]].vtime;
        }
        t->vtime = t->vtime > base ? t->vtime : base;
        t->came = ++p->joins;
        assert(p->n_heap < PICK_TENANTS_MAX);
        put(p, p->n_heap, tenant);
        p->n_heap++;
    }
    sift(p, t->at);
}

/* ---- tenants by name ---- */

static unsigned bucket_of(const char *name)
{
    uint32_t h = 2166136261u; /* FNV-1a */
    for (; *name; name++) {
        h = (h ^ (unsigned char)*name) * 16777619u;
    }
    return (h ^ h >> 15) & (BUCKETS - 1);
}

struct pick *pick_new(void)
{
    struct pick *p = calloc(1, sizeof *p);
    struct tenant *tenants = calloc(PICK_TENANTS_MAX, sizeof *tenants);
    if (!p || !tenants) {
        abort();
    }
    p->tenants = tenants;
    p->mean_us = PICK_COST_FIRST_US;
    p->new_terms.weight = 1;
    for (int i = 0; i < BUCKETS; i++) {
        p->buckets[i] = NONE;
    }
    return p;
}

void pick_free(struct pick *p)
{
    if (p) {
        free(p->tenants);
        free(p);
    }
}

static int find(const struct pick *p, const char *name)
{
    int i = p->buckets[bucket_of(name)];
    while (i != NONE && strcmp(p->tenants[i].name, name) != 0) {
        i = p->tenants[i].next;
    }
    return i;
}

static bool idle(const struct tenant *t)
{
    for (int i = 0; i < PRIORITY_COUNT; i++) {
        const struct line *l = &t->lines[i];
        if (l->waiting > 0 || l->in_flight > 0 || l->charged_n > 0) {
            return false;
        }
    }
    return true;
}

/* A place of a tenant that has nothing, the one that owes least; NONE when all have work. */
static int take_place(struct pick *p)
{
    if (p->n_tenants < PICK_TENANTS_MAX) {
        return p->n_tenants++;
    }
    int best = NONE;
    for (int i = 0; i < p->n_tenants; i++) {
        if (idle(&p->tenants[i]) &&
            (best == NONE || p->tenants[i].vtime < p->tenants[best].vtime)) {
            best = i;
        }
    }
    if (best != NONE) {
        int *link = &p->buckets[bucket_of(p->tenants[best].name)];
        while (*link != best) {
            link = &p->tenants[*link].next;
        }
        *link = p->tenants[best].next;
    }
    return best;
}

int pick_tenant(struct pick *p, const char *name)
{
    assert(*name && strlen(name) <= JOB_TENANT_MAX);
    int i = find(p, name);
    if (i != NONE || (i = take_place(p)) == NONE) {
        return i;
    }
    int *bucket = &p->buckets[bucket_of(name)];
    p->tenants[i] = (struct tenant){ .at = NONE, .next = *bucket, .terms = p->new_terms };
    memcpy(p->tenants[i].name, name, strlen(name) + 1);
    *bucket = i;
    return i;
}

static struct tenant *at(struct pick *p, int tenant)
{
    assert(tenant >= 0 && tenant < p->n_tenants && p->tenants[tenant].name[0]);
    return &p->tenants[tenant];
}

const char *pick_name(const struct pick *p, int tenant)
{
    assert(tenant >= 0 && tenant < p->n_tenants);
    return p->tenants[tenant].name;
}

int pick_places(const struct pick *p)
{
    return p->n_tenants;
}

/* ---- what is known of a tenant ---- */

void pick_set_new_terms(struct pick *p, const struct pick_terms *t)
{
    assert(t->weight >= 1 && t->weight <= PICK_WEIGHT_MAX && t->in_flight_max >= 0);
    p->new_terms = *t;
}

void pick_set_terms(struct pick *p, int tenant, const struct pick_terms *t)
{
    assert(t->weight >= 1 && t->weight <= PICK_WEIGHT_MAX && t->in_flight_max >= 0);
    at(p, tenant)->terms = *t;
    settle(p, tenant);
}

/* A line that opens starts level with the furthest behind of its tenant's open ones. */
static void open_line(struct tenant *t, struct line *l)
{
    int64_t base = INT64_MIN;
    for (int i = 0; i < PRIORITY_COUNT; i++) {
        const struct line *o = &t->lines[i];
        if (o != l && line_open(o) && (base == INT64_MIN || o->vtime < base)) {
            base = o->vtime;
        }
    }
    l->parked = false;
    l->vtime = l->vtime > base ? l->vtime : base;
}

void pick_set_waiting(struct pick *p, int tenant, enum job_priority priority, int64_t n)
{
    assert(n >= 0);
    struct tenant *t = at(p, tenant);
    struct line *l = &t->lines[priority];
    bool grown = n > l->waiting, was_open = line_open(l);
    l->waiting = n;
    if (grown && !was_open) {
        open_line(t, l);
    }
    settle(p, tenant);
}

void pick_add_waiting(struct pick *p, int tenant, enum job_priority priority, int64_t n)
{
    assert(n >= 0);
    pick_set_waiting(p, tenant, priority, at(p, tenant)->lines[priority].waiting + n);
}

/* us of slot time more (or less) than was charged. */
static void charge(struct tenant *t, struct line *l, enum job_priority priority, int64_t us)
{
    t->vtime += us * SCALE / t->terms.weight;
    l->vtime += us * SCALE / priority_weights[priority];
}

void pick_set_in_flight(struct pick *p, int tenant, enum job_priority priority, int64_t n,
                        int64_t run_us)
{
    assert(n >= 0 && run_us >= 0);
    struct tenant *t = at(p, tenant);
    struct line *l = &t->lines[priority];
    if (n == 0 && l->in_flight == 0) {
        l->charged_n = l->charged_us = 0; /* their notices are lost: the estimates stand */
    }
    l->in_flight = n;
    l->charged_n = l->charged_n > n ? l->charged_n : n; /* dispatched by a scheduler before us */
    if (run_us > l->charged_us) {
        charge(t, l, priority, run_us - l->charged_us);
        l->charged_us = run_us;
    }
    settle(p, tenant);
}

void pick_unpark(struct pick *p)
{
    for (int i = 0; i < p->n_tenants; i++) {
        struct tenant *t = &p->tenants[i];
        bool changed = false;
        for (int k = 0; t->name[0] && k < PRIORITY_COUNT; k++) {
            if (t->lines[k].parked) {
                open_line(t, &t->lines[k]);
                changed = true;
            }
        }
        if (changed) {
            settle(p, i);
        }
    }
}

/* ---- a turn ---- */

static int64_t estimate(const struct pick *p, const struct tenant *t)
{
    return t->cost_us > 0 ? t->cost_us : p->mean_us;
}

static enum job_priority choose_line(const struct tenant *t)
{
    int best = NONE;
    for (int i = 0; i < PRIORITY_COUNT; i++) {
        if (line_open(&t->lines[i]) && (best == NONE || t->lines[i].vtime < t->lines[best].vtime)) {
            best = i;
        }
    }
    assert(best != NONE);
    return (enum job_priority)best;
}

int pick_turn(struct pick *p, int room, struct pick_share ret_shares[PICK_TURN_MAX],
              int ret_order[PICK_TURN_MAX], int *ret_jobs)
{
    assert(room > 0 && room <= PICK_TURN_MAX);
    int n_shares = 0, n = 0;
    p->turn++;
    while (n < room && p->n_heap > 0) {
        int tenant = p->heap[0];
        struct tenant *t = &p->tenants[tenant];
        enum job_priority priority = choose_line(t);
        struct line *l = &t->lines[priority];
        p->last = t->vtime;
        if (l->turn != p->turn) {
            l->turn = p->turn;
            l->share = n_shares++;
            ret_shares[l->share] = (struct pick_share){ .tenant = tenant, .priority = priority };
        }
        ret_shares[l->share].n++;
        ret_order[n++] = l->share;
        int64_t cost = estimate(p, t);
        charge(t, l, priority, cost);
        l->charged_n++;
        l->charged_us += cost;
        l->in_flight++;
        l->waiting--;
        settle(p, tenant);
    }
    *ret_jobs = n;
    return n_shares;
}

void pick_taken(struct pick *p, const struct pick_share *share, int got)
{
    assert(got >= 0 && got <= share->n);
    int missing = share->n - got;
    if (missing == 0) {
        return;
    }
    struct tenant *t = at(p, share->tenant);
    struct line *l = &t->lines[share->priority];
    int64_t back = estimate(p, t) * missing;
    back = back < l->charged_us ? back : l->charged_us;
    charge(t, l, share->priority, -back);
    l->charged_us -= back;
    l->charged_n -= missing;
    l->in_flight -= missing;
    l->waiting += missing;
    l->parked = true;
    assert(l->charged_n >= 0 && l->in_flight >= 0);
    settle(p, share->tenant);
}

int64_t pick_from(struct pick *p, const struct pick_share *share)
{
    return at(p, share->tenant)->lines[share->priority].from_us;
}

void pick_set_from(struct pick *p, const struct pick_share *share, int64_t from_us)
{
    at(p, share->tenant)->lines[share->priority].from_us = from_us;
}

void pick_forget_from(struct pick *p)
{
    for (int i = 0; i < p->n_tenants; i++) {
        for (int k = 0; k < PRIORITY_COUNT; k++) {
            p->tenants[i].lines[k].from_us = 0;
        }
    }
}

static void smooth(int64_t *mean_us, int64_t us, int64_t jobs)
{
    int64_t k = jobs < 4 ? jobs : 4; /* of eighths: a group counts for more than one job */
    *mean_us = (*mean_us * (8 - k) + us / jobs * k) / 8;
    *mean_us = *mean_us < 1 ? 1 : *mean_us;
}

void pick_done(struct pick *p, const char *tenant, enum job_priority priority, int64_t jobs,
               int64_t slot_us)
{
    assert(jobs > 0 && slot_us >= 0);
    slot_us = slot_us < COST_US_MAX ? slot_us : COST_US_MAX;
    smooth(&p->mean_us, slot_us, jobs);
    int i = find(p, tenant);
    if (i == NONE) {
        return;
    }
    struct tenant *t = &p->tenants[i];
    struct line *l = &t->lines[priority];
    int64_t n = jobs < l->charged_n ? jobs : l->charged_n;
    int64_t charged = n > 0 ? (int64_t)((__int128)l->charged_us * n / l->charged_n) : 0;
    charge(t, l, priority, slot_us - charged);
    l->charged_n -= n;
    l->charged_us -= charged;
    l->in_flight = l->in_flight < l->charged_n ? l->in_flight : l->charged_n;
    if (t->cost_us == 0) {
        t->cost_us = slot_us / jobs > 0 ? slot_us / jobs : 1;
    } else {
        smooth(&t->cost_us, slot_us, jobs);
    }
    t->done_jobs += jobs;
    t->done_us += slot_us;
    settle(p, i);
}

bool pick_pending(const struct pick *p)
{
    return p->n_heap > 0;
}

int64_t pick_mean_us(const struct pick *p)
{
    return p->mean_us;
}

bool pick_look(const struct pick *p, int tenant, struct pick_view *ret_view)
{
    assert(tenant >= 0 && tenant < p->n_tenants);
    const struct tenant *t = &p->tenants[tenant];
    if (!t->name[0]) {
        return false;
    }
    *ret_view = (struct pick_view){ .name = t->name,
                                    .weight = t->terms.weight,
                                    .in_flight = all_in_flight(t),
                                    .done_jobs = t->done_jobs,
                                    .done_us = t->done_us,
                                    .stopped = t->terms.stopped };
    for (int i = 0; i < PRIORITY_COUNT; i++) {
        ret_view->waiting += t->lines[i].waiting;
    }
    return true;
}
