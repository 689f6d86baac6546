-- Tenants' shares and caps, priorities, deadlines, retries on request, cancelling what runs. docs/scheduling.md says what they mean.

-- A value that is NULL, or a tenant without a row, has that of the row '*'.
CREATE TABLE tenants (
    name                  text PRIMARY KEY CHECK (name = '*' OR name ~ '^[a-z0-9][a-z0-9_-]{0,63}$'),
    weight                int    CHECK (weight BETWEEN 1 AND 1000),
    in_flight_max         int    CHECK (in_flight_max >= 0),          -- 0: no cap
    queued_max            bigint CHECK (queued_max >= 0),
    submit_per_minute_max bigint CHECK (submit_per_minute_max >= 0),
    stopped               text,                                       -- why no new work is taken and none is dispatched
    stopped_until         timestamptz,                                -- NULL: until somebody says otherwise
    updated_at            timestamptz NOT NULL DEFAULT clock_timestamp(),
    CHECK (name <> '*' OR (weight IS NOT NULL AND in_flight_max IS NOT NULL AND queued_max IS NOT NULL
                           AND submit_per_minute_max IS NOT NULL))
);
INSERT INTO tenants (name, weight, in_flight_max, queued_max, submit_per_minute_max) VALUES ('*', 1, 0, 2000000, 0);

-- Who gets no new work now, and why. Everything that stops a tenant is a row here: somebody's word, a budget that is spent
-- (until its day or month is over).
CREATE VIEW tenant_stops AS
    SELECT name, stopped, stopped_until FROM tenants
    WHERE stopped IS NOT NULL AND (stopped_until IS NULL OR stopped_until > clock_timestamp())
    UNION ALL
    SELECT tenant, 'the budget of its ' || CASE period WHEN 'total' THEN 'whole time' ELSE period END || ' is spent', until FROM (
        SELECT tenant, period, (since AT TIME ZONE 'UTC' + CASE period WHEN 'day' THEN interval '1 day' WHEN 'month' THEN
            interval '1 month' END) AT TIME ZONE 'UTC' AS until FROM budgets WHERE state = 'stopped') b
    WHERE until IS NULL OR until > clock_timestamp();

ALTER TABLE jobs
    ADD COLUMN priority  smallint NOT NULL DEFAULT 1 CHECK (priority BETWEEN 0 AND 2), -- high, normal, bulk
    ADD COLUMN deadline  timestamptz,                             -- not dispatched by then: expired
    ADD COLUMN retries   smallint NOT NULL DEFAULT 0 CHECK (retries >= 0), -- asked for by the submitter
    ADD COLUMN tries     smallint NOT NULL DEFAULT 0 CHECK (tries >= 0),   -- that have ended with a verdict of the program
    ADD COLUMN cancel_at timestamptz;                             -- asked for while it was in flight

-- One probe finds the next job of one tenant and priority, however many others wait.
DROP INDEX jobs_waiting;
CREATE INDEX jobs_waiting ON jobs (tenant, priority, not_before, id) WHERE state IN ('queued','retrying');
-- What becomes due later: not_before of ordinary jobs is their submission.
CREATE INDEX jobs_delayed ON jobs (not_before) WHERE state IN ('queued','retrying') AND not_before > submitted_at;
CREATE INDEX jobs_deadline ON jobs (deadline) WHERE state IN ('queued','retrying') AND deadline IS NOT NULL;
CREATE INDEX jobs_cancelling ON jobs (cancel_at)
    WHERE state IN ('queued','scheduled','running','retrying') AND cancel_at IS NOT NULL;

-- How many jobs wait: the sum of n by tenant and priority. Whoever moves jobs into or out of queued and retrying appends what
-- changed in the same transaction; the scheduler folds the lines. No line is ever waited for, unlike one counter that all update.
CREATE TABLE queue_counts (
    tenant   text     NOT NULL,
    priority smallint NOT NULL,
    n        bigint   NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
CREATE INDEX queue_counts_tenant ON queue_counts (tenant);
INSERT INTO queue_counts (tenant, priority, n)
    SELECT tenant, priority, count(*) FROM jobs WHERE state IN ('queued','retrying') GROUP BY tenant, priority;

-- When the next submission of a tenant with a cap on its rate conforms (GCRA).
CREATE TABLE submit_rates (
    tenant text PRIMARY KEY,
    tat    timestamptz NOT NULL
);

-- What the scheduler last saw of the tenants that had work: for brood status and for "come back in". Lost with a crash.
CREATE UNLOGGED TABLE tenant_activity (
    tenant          text PRIMARY KEY,
    in_flight       bigint NOT NULL,
    jobs_per_minute bigint NOT NULL,
    slot_ms         bigint NOT NULL, -- during the last minute
    share_milli     int    NOT NULL, -- of all slot time of that minute
    updated_at      timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- Every try that ended is visible: one that a retry on request followed has its own verdict and output.
ALTER TABLE attempts DROP CONSTRAINT attempts_outcome_check;
ALTER TABLE attempts
    ADD CONSTRAINT attempts_outcome_check CHECK (outcome IN ('committed','retried','infra','lost','given_back')),
    ADD COLUMN verdict     text,
    ADD COLUMN detail      text,
    ADD COLUMN stdout_head bytea,
    ADD COLUMN stderr_head bytea;

-- The table of states (common/model/job_step.def), so that no statement can take a job where none may go. The condition is
-- evaluated without calling the function. completed -> retrying: a try that is followed by another on request ends and goes on
-- within one transaction, and its result goes with it: nobody sees it as ended (common/store/jobs_again.c).
CREATE FUNCTION refuse_step() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'job %: from % to % is no step of a job''s life', OLD.id, OLD.state, NEW.state
        USING ERRCODE = 'restrict_violation';
END $$;
CREATE TRIGGER jobs_step BEFORE UPDATE ON jobs FOR EACH ROW WHEN (OLD.state <> NEW.state AND NOT (
    (OLD.state IN ('queued','retrying') AND NEW.state IN ('scheduled','cancelled','expired'))
    OR (OLD.state = 'scheduled' AND NEW.state IN ('running','completed','cancelled','retrying','dead'))
    OR (OLD.state = 'running' AND NEW.state IN ('completed','cancelled','retrying','dead'))
    OR (OLD.state = 'completed' AND NEW.state = 'retrying' AND NEW.tries = OLD.tries + 1 AND NEW.tries <= NEW.retries)))
    EXECUTE FUNCTION refuse_step();
