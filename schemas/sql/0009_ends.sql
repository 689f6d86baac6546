-- A deadline is for the first dispatch: what was dispatched in time runs to its end, in as many tries as that takes.

DROP INDEX jobs_deadline;
CREATE INDEX jobs_deadline ON jobs (deadline) WHERE state = 'queued' AND deadline IS NOT NULL;
CREATE OR REPLACE TRIGGER jobs_step BEFORE UPDATE ON jobs FOR EACH ROW WHEN (OLD.state <> NEW.state AND NOT (
    (OLD.state = 'queued' AND NEW.state IN ('scheduled','cancelled','expired'))
    OR (OLD.state = 'retrying' AND NEW.state IN ('scheduled','cancelled'))
    OR (OLD.state = 'scheduled' AND NEW.state IN ('running','completed','cancelled','retrying','dead'))
    OR (OLD.state = 'running' AND NEW.state IN ('completed','cancelled','retrying','dead'))
    OR (OLD.state = 'completed' AND NEW.state = 'retrying' AND NEW.tries = OLD.tries + 1 AND NEW.tries <= NEW.retries)))
    EXECUTE FUNCTION refuse_step();

-- The end of a job that was taken back while it waited is of no attempt: 0. It had the number of the last, which may be a try that was
-- followed by this end instead of another.
UPDATE results r SET attempt = 0 FROM attempts a WHERE a.job_id = r.job_id AND a.attempt = r.attempt AND a.outcome = 'retried';

-- Lines that begin a job's second or later try: `brood usage` counts the job by the first. Few.
CREATE INDEX usage_again ON usage_records (job_id)
    WHERE attempt > 1 AND meter = 'vcpu_seconds' AND branch = '' AND part = 0 AND kind = 'usage';

-- Budgets that are spent, until their day or month is over: also before the keeper has looked again. What stops a tenant and what takes
-- its running work back is the same.
CREATE VIEW budgets_spent AS
    SELECT tenant, period, cancel_running, until FROM (
        SELECT *, (since AT TIME ZONE 'UTC' + CASE period WHEN 'day' THEN interval '1 day' WHEN 'month' THEN interval '1 month' END)
            AT TIME ZONE 'UTC' AS until FROM budgets WHERE state = 'stopped') b
    WHERE until IS NULL OR until > clock_timestamp();
CREATE OR REPLACE VIEW tenant_stops AS
    SELECT name, stopped, stopped_until FROM tenants
    WHERE stopped IS NOT NULL AND (stopped_until IS NULL OR stopped_until > clock_timestamp())
    UNION ALL
    SELECT tenant, 'the budget of its ' || CASE period WHEN 'total' THEN 'whole time' ELSE period END || ' is spent', until FROM budgets_spent;
