/* One job's way through claim, heartbeat, take-over and commit: two workers, one scheduler, a Redis that may lose its data, and
 * every process may be killed between any two steps. Each atomic block is one command of Redis, or one transaction of Postgres,
 * as docs/protocol.md lists them. How to run it: docs/model/README.md.
 *
 *   safety     an attempt number commits at most once, and a job in all at most once (the assertions in commit)
 *   liveness   the job ends, whatever happens (ltl ends): faults are bounded, attempts too
 */
#define ATTEMPTS 3   /* the fault with this number ends the job as dead */
#define ENTRIES 3    /* entries that can be on the ready stream at once */
#ifndef KILLS
#define KILLS 1      /* of any process, in all */
#endif
#define LOSSES 1     /* of all that Redis knows */

#define NOBODY 0
#define W1 1
#define W2 2
#define SCHED 3

mtype = { queued, scheduled, retrying, completed, dead };

/* ---- Postgres: the row in jobs, the rows in results ---- */
mtype state = queued;
byte attempt = 0;            /* the number that may commit */
byte faults = 0;
byte commits[12];            /* rows written by that attempt */
byte results = 0;

/* ---- Redis: the ready stream with its claims ---- */
typedef entry_t { byte id; byte of_attempt; byte owner };
entry_t entry[ENTRIES];      /* id 0: free */
byte last_id = 0;

byte kills = KILLS, losses = LOSSES;

/* ---- the worker's disk: an end that could not be committed before ---- */
byte spooled[4];             /* attempt, by worker; 0: none */

#define ENDED (state == completed || state == dead)

/* Postgres: the guarded UPDATE that feeds the INSERTs. Repeating it writes nothing. */
inline commit(a) {
    atomic {
        if
        :: state == scheduled && attempt == a ->
            state = completed;
            assert(a == attempt); /* only the attempt in force */
            commits[a]++;
            results++;
            assert(commits[a] == 1);
            assert(results == 1)
        :: else -> skip
        fi
    }
}

/* Postgres: a fault of ours in attempt a. */
inline fail_attempt(a) {
    atomic {
        if
        :: state == scheduled && attempt == a ->
            faults++;
            if
            :: faults >= ATTEMPTS -> state = dead; results++; assert(results == 1)
            :: else -> state = retrying
            fi
        :: else -> skip
        fi
    }
}

/* Redis: XACK and XDEL of one id, whoever owns it. */
inline ack(the_id) {
    atomic {
        if
        :: entry[0].id == the_id -> entry[0].id = 0; entry[0].owner = NOBODY; entry[0].of_attempt = 0
        :: entry[1].id == the_id -> entry[1].id = 0; entry[1].owner = NOBODY; entry[1].of_attempt = 0
        :: entry[2].id == the_id -> entry[2].id = 0; entry[2].owner = NOBODY; entry[2].of_attempt = 0
        :: else -> skip
        fi
    }
}

#define NO_ENTRY (entry[0].id == 0 && entry[1].id == 0 && entry[2].id == 0)
#define UNCLAIMED(i) (entry[i].id != 0 && entry[i].owner == NOBODY)
/* Silent for a lease: at any time, since a worker may be slow, stopped or dead. SCHED: taken over by a scheduler that was killed. */
#define SILENT(i) (entry[i].id != 0 && entry[i].owner != NOBODY)
#define FREE(i) (entry[i].id == 0)

active proctype scheduler() {
    byte a = 0, id = 0;
waits:
    a = 0; id = 0;
    if
    /* dispatch: the row first, then the stream */
    :: atomic { (state == queued || state == retrying) && (FREE(0) || FREE(1) || FREE(2)) ->
           state = scheduled; attempt++; a = attempt }
       if
       :: atomic { kills > 0 -> kills--; goto waits }
       :: atomic {
              if
              :: FREE(0) -> last_id++; entry[0].id = last_id; entry[0].of_attempt = a
              :: !FREE(0) && FREE(1) -> last_id++; entry[1].id = last_id; entry[1].of_attempt = a
              :: else -> last_id++; entry[2].id = last_id; entry[2].of_attempt = a
              fi }
       fi
    /* a claim whose delivery number stood still: take it over, fail the attempt, acknowledge */
    :: atomic {
           (SILENT(0) || SILENT(1) || SILENT(2)) ->
           if
           :: SILENT(0) -> id = entry[0].id; a = entry[0].of_attempt; entry[0].owner = SCHED
           :: SILENT(1) -> id = entry[1].id; a = entry[1].of_attempt; entry[1].owner = SCHED
           :: SILENT(2) -> id = entry[2].id; a = entry[2].of_attempt; entry[2].owner = SCHED
           fi }
       if
       :: atomic { kills > 0 -> kills--; goto waits }
       :: true -> fail_attempt(a)
       fi;
       if
       :: atomic { kills > 0 -> kills--; goto waits }
       :: true -> ack(id)
       fi
    /* a dispatched job without an entry: Redis lost it, or a scheduler was killed before its XADD */
    :: atomic { state == scheduled && NO_ENTRY -> state = retrying }
    :: atomic { ENDED && NO_ENTRY -> goto done }
    fi;
    goto waits;
done:
    skip
}

proctype worker(byte me) {
    byte a = 0, id = 0;
waits:
    a = 0; id = 0;
    if
    :: atomic { spooled[me] != 0 -> a = spooled[me] }
       commit(a);
       atomic { spooled[me] = 0; goto waits }
    :: atomic {
           spooled[me] == 0 && (UNCLAIMED(0) || UNCLAIMED(1) || UNCLAIMED(2)) ->
           if
           :: UNCLAIMED(0) -> id = entry[0].id; a = entry[0].of_attempt; entry[0].owner = me
           :: UNCLAIMED(1) -> id = entry[1].id; a = entry[1].of_attempt; entry[1].owner = me
           :: UNCLAIMED(2) -> id = entry[2].id; a = entry[2].of_attempt; entry[2].owner = me
           fi }
    :: atomic { ENDED && NO_ENTRY && spooled[me] == 0 -> goto done }
    fi;
    /* it runs: killed, or a fault of ours, or an end */
    if
    :: atomic { kills > 0 -> kills--; goto waits }
    :: /* the end is brought to Postgres; the claim may have been lost and not be noticed yet */
       if
       :: atomic { kills > 0 -> kills--; goto waits }
       :: true -> commit(a)
       fi
    :: /* Postgres is away: on disk, durable, then killed or not; committed later, maybe twice */
       atomic { spooled[me] = a };
       if
       :: atomic { kills > 0 -> kills--; goto waits }
       :: true -> commit(a);
          if
          :: atomic { kills > 0 -> kills--; goto waits } /* and commits it a second time */
          :: true -> spooled[me] = 0
          fi
       fi
    :: true -> fail_attempt(a)
    fi;
    if
    :: atomic { kills > 0 -> kills--; goto waits }
    :: true -> ack(id)
    fi;
    goto waits;
done:
    skip
}

/* Redis is emptied, at any moment. */
active proctype loss() {
    do
    :: atomic { losses > 0 -> losses--;
           entry[0].id = 0; entry[0].owner = NOBODY; entry[0].of_attempt = 0;
           entry[1].id = 0; entry[1].owner = NOBODY; entry[1].of_attempt = 0;
           entry[2].id = 0; entry[2].owner = NOBODY; entry[2].of_attempt = 0 }
    :: break
    od
}

init {
    atomic { run worker(W1); run worker(W2) }
}

ltl ends { <> (state == completed || state == dead) }
