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
