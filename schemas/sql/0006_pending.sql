-- Artifacts whose content waits for the object store (reason 'pending'): stored when it has come there.

ALTER TABLE artifacts ADD COLUMN stored_at timestamptz; -- NULL: with the job's end. Kept, and charged, from then on
CREATE OR REPLACE FUNCTION artifacts_ended() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO storage_ended
        SELECT 'artifact_gib_hours', j.tenant, coalesce(j.batch_id, j.id)::text || '/' || o.sha256, j.template, j.id, max(o.size_bytes),
               min(coalesce(o.stored_at, j.finished_at)), clock_timestamp()
        FROM gone o JOIN jobs j ON j.id = o.job_id WHERE o.sha256 IS NOT NULL AND o.stored AND j.finished_at IS NOT NULL
        GROUP BY j.id, o.sha256;
    RETURN NULL;
END $$;
