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
