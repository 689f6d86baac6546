-- brood's first schema: batches, jobs, results, attempts, usage. Postgres is the truth; Redis only an index of it.
-- Applied by `brood migrate` inside one transaction under an advisory lock; the runner keeps schema_migrations.

CREATE TABLE templates (
    name       text PRIMARY KEY,
    digest     text NOT NULL,
    memory_mib int  NOT NULL CHECK (memory_mib > 0),
    vcpus      int  NOT NULL CHECK (vcpus > 0),
    updated_at timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE batches (
    id         uuid PRIMARY KEY,
    tenant     text NOT NULL,
    name       text,
    jobs       int  NOT NULL DEFAULT 0,
    created_at timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE jobs (
    id              uuid PRIMARY KEY,          -- version 7: sorts by submission
    tenant          text NOT NULL,
    batch_id        uuid REFERENCES batches (id),
    seq             int  NOT NULL DEFAULT 0,   -- order inside the batch, from 0
    template        text NOT NULL,
    name            text,
    spec            text NOT NULL,             -- canonical ASCII JSON, may hold \u0000: therefore text, not jsonb
    spec_hash       bytea NOT NULL,            -- BLAKE2b-256 of spec
    labels          jsonb NOT NULL DEFAULT '{}',
    idempotency_key text,
    state           text NOT NULL DEFAULT 'queued'
        CHECK (state IN ('queued','scheduled','running','retrying','completed','dead','cancelled','expired')),
    verdict         text,
    attempt         int  NOT NULL DEFAULT 0,   -- number of the attempt that may commit; 0 = never dispatched
    not_before      timestamptz NOT NULL DEFAULT now(), -- retries wait until then
    submitted_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    scheduled_at    timestamptz,
    finished_at     timestamptz,
    last_error      text,                      -- of the last failed attempt of ours
    CHECK ((verdict IS NOT NULL) = (state IN ('completed','dead','cancelled','expired')))
);
CREATE UNIQUE INDEX jobs_idempotency ON jobs (tenant, idempotency_key) WHERE idempotency_key IS NOT NULL;
CREATE INDEX jobs_waiting ON jobs (not_before, id) WHERE state IN ('queued','retrying');
CREATE INDEX jobs_in_flight ON jobs (scheduled_at) WHERE state IN ('scheduled','running');
CREATE INDEX jobs_batch ON jobs (batch_id, seq) INCLUDE (state, verdict);

CREATE TABLE results (
    job_id       uuid PRIMARY KEY REFERENCES jobs (id),
    attempt      int    NOT NULL,
    verdict      text   NOT NULL,
    detail       text   NOT NULL,              -- job_result_detail(): everything but the output bytes
    stdout_head  bytea  NOT NULL,
    stdout_tail  bytea  NOT NULL,
    stderr_head  bytea  NOT NULL,
    stderr_tail  bytea  NOT NULL,
    setup_stdout bytea  NOT NULL DEFAULT '',   -- head only
    setup_stderr bytea  NOT NULL DEFAULT '',
    created_at   timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- Every attempt that ended, also those that did not count.
CREATE TABLE attempts (
    job_id   uuid NOT NULL REFERENCES jobs (id),
    attempt  int  NOT NULL,
    worker   text NOT NULL,
    outcome  text NOT NULL CHECK (outcome IN ('committed','infra','lost')),
    error    text,
    ended_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (job_id, attempt)
);

CREATE TABLE usage_records (
    id                 uuid PRIMARY KEY,       -- derived from job, attempt, branch, meter: cannot be written twice
    tenant             text   NOT NULL,
    job_id             uuid   NOT NULL REFERENCES jobs (id),
    attempt            int    NOT NULL,
    branch             text   NOT NULL DEFAULT '',
    meter              text   NOT NULL CHECK (meter IN ('vcpu_seconds','gib_seconds')),
    template           text   NOT NULL,
    labels             jsonb  NOT NULL,
    from_ts            timestamptz NOT NULL,
    to_ts              timestamptz NOT NULL,
    measured_ms        bigint NOT NULL CHECK (measured_ms >= 0),
    charged_ms         bigint NOT NULL CHECK (charged_ms >= 0),
    amount             bigint NOT NULL CHECK (amount >= 0), -- vCPUs, or MiB
    unit_price_nanousd bigint NOT NULL,
    cost_nanousd       bigint NOT NULL,
    created_at         timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX usage_by_time ON usage_records (tenant, from_ts);
CREATE INDEX usage_by_job ON usage_records (job_id);

CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'usage_records is append-only: % refused; a correction is a new record', TG_OP
        USING ERRCODE = 'restrict_violation';
END $$;
CREATE TRIGGER usage_append_only BEFORE UPDATE OR DELETE ON usage_records
    FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER usage_no_truncate BEFORE TRUNCATE ON usage_records
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
