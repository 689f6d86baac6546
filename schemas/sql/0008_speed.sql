-- Cheaper rows on the path of every job.

-- A job of no batch has no place in this index: three entries less in its life.
DROP INDEX jobs_batch;
CREATE INDEX jobs_batch ON jobs (batch_id, seq) INCLUDE (state, verdict) WHERE batch_id IS NOT NULL;
-- A row is written three times (submitted, dispatched, ended). Room on its page for that: the next version goes beside the last
-- (otherwise the old one is locked first, which is a WAL record more, and another page is looked for), and what is dead is pruned there.
ALTER TABLE jobs SET (fillfactor = 50);

-- Tries that a retry on request followed: the check of the ledger asks for the next of them page by page, and without this walked over all
-- attempts for every page.
CREATE INDEX attempts_retried ON attempts (job_id, attempt) WHERE outcome = 'retried';
