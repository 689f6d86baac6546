-- Events that can be replayed from a position, and no foreign keys on the path of every job.

-- Every end of a job writes exactly one row in results (commit, infra_error, cancel, expiry), in the transaction of the
-- end: so the results are the log of job.finished, complete by construction. event is the position in it. Numbers are
-- taken before the commit, and the transaction's id before the number: a reader that waits until all transactions of a moment
-- have ended has every row with a number given out until then (common/store/events.c).
CREATE SEQUENCE event_position;
ALTER TABLE results ADD COLUMN event bigint;
UPDATE results r SET event = e.n FROM (SELECT job_id, nextval('event_position') AS n FROM
    (SELECT job_id FROM results ORDER BY created_at, job_id) o) e WHERE e.job_id = r.job_id;
ALTER TABLE results
    ALTER COLUMN event SET DEFAULT (CASE WHEN pg_current_xact_id() IS NOT NULL THEN nextval('event_position') END),
    ALTER COLUMN event SET NOT NULL;
CREATE UNIQUE INDEX results_event ON results (event);

-- Rows of results, attempts and usage_records are only ever written from the row of jobs that the same statement has
-- just updated, so the keys cannot dangle; checking them again cost look-ups for each job, a fifth of a commit.
-- Jobs are never deleted while they have any.
ALTER TABLE results DROP CONSTRAINT IF EXISTS results_job_id_fkey;
ALTER TABLE attempts DROP CONSTRAINT IF EXISTS attempts_job_id_fkey;

-- A worker that ends in good order gives back what it has not finished: no fault, no wait.
ALTER TABLE attempts DROP CONSTRAINT attempts_outcome_check;
ALTER TABLE attempts ADD CONSTRAINT attempts_outcome_check CHECK (outcome IN ('committed','infra','lost','given_back'));
