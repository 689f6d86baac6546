-- What the table of states costs each job.

-- Before an update a trigger has its row locked: a WAL record more, for a job that is dispatched and ended two of them. After it the
-- condition is evaluated all the same, with the row that was written, and whoever takes a step that is none loses the whole statement.
DROP TRIGGER jobs_step ON jobs;
CREATE TRIGGER jobs_step AFTER UPDATE ON jobs FOR EACH ROW WHEN (OLD.state <> NEW.state AND NOT (
    (OLD.state = 'queued' AND NEW.state IN ('scheduled','cancelled','expired'))
    OR (OLD.state = 'retrying' AND NEW.state IN ('scheduled','cancelled'))
    OR (OLD.state = 'scheduled' AND NEW.state IN ('running','completed','cancelled','retrying','dead'))
    OR (OLD.state = 'running' AND NEW.state IN ('completed','cancelled','retrying','dead'))
    OR (OLD.state = 'completed' AND NEW.state = 'retrying' AND NEW.tries = OLD.tries + 1 AND NEW.tries <= NEW.retries)))
    EXECUTE FUNCTION refuse_step();
