-- The ledger: price book, chained usage lines, storage by the hour, closed months, budgets. docs/billing.md is the contract.

-- ---- nothing of this is ever changed or removed ----

CREATE FUNCTION ledger_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% is append-only: % refused; a correction is a new record', TG_TABLE_NAME, TG_OP
        USING ERRCODE = 'restrict_violation';
END $$;
-- Row and statement triggers that fire for everyone, the owner, a superuser and a replica's apply process included.
CREATE FUNCTION ledger_protect(tab text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('CREATE TRIGGER ledger_rows BEFORE UPDATE OR DELETE ON %I FOR EACH ROW EXECUTE FUNCTION ledger_refuse()', tab);
    EXECUTE format('CREATE TRIGGER ledger_whole BEFORE UPDATE OR DELETE OR TRUNCATE ON %I FOR EACH STATEMENT EXECUTE FUNCTION ledger_refuse()', tab);
    EXECUTE format('ALTER TABLE %I ENABLE ALWAYS TRIGGER ledger_rows, ENABLE ALWAYS TRIGGER ledger_whole', tab);
    EXECUTE format('REVOKE UPDATE, DELETE, TRUNCATE ON %I FROM PUBLIC', tab);
END $$;

-- ---- prices ----

CREATE TABLE rates (
    id          int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, -- in the order of commits: cards are added under a lock
    tenant      text,                                         -- NULL: everyone without a card of their own
    valid_from  timestamptz NOT NULL CHECK (date_trunc('second', valid_from) = valid_from),
    vcpu_second_nanousd       bigint NOT NULL CHECK (vcpu_second_nanousd BETWEEN 0 AND 1000000000000),
    gib_second_nanousd        bigint NOT NULL CHECK (gib_second_nanousd BETWEEN 0 AND 1000000000000),
    snapshot_gib_hour_nanousd bigint NOT NULL CHECK (snapshot_gib_hour_nanousd BETWEEN 0 AND 1000000000000),
    artifact_gib_hour_nanousd bigint NOT NULL CHECK (artifact_gib_hour_nanousd BETWEEN 0 AND 1000000000000),
    rounding_ms int NOT NULL CHECK (rounding_ms BETWEEN 1 AND 3600000),
    minimum_ms  int NOT NULL CHECK (minimum_ms BETWEEN 0 AND 3600000),
    note        text NOT NULL DEFAULT '',
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp()
);
INSERT INTO rates (valid_from, vcpu_second_nanousd, gib_second_nanousd, snapshot_gib_hour_nanousd, artifact_gib_hour_nanousd,
                   rounding_ms, minimum_ms, note)
    VALUES ('1970-01-01 00:00:00+00', 14000, 4500, 108000, 108000, 1000, 1000, 'built in');

-- ---- usage lines ----

DROP TRIGGER usage_append_only ON usage_records;
DROP TRIGGER usage_no_truncate ON usage_records;
DROP FUNCTION refuse_change();

CREATE SEQUENCE usage_pos;
-- A line outlives its job: no foreign key (and none of its cost at each insertion); `brood usage --check` looks for lines without jobs.
ALTER TABLE usage_records
    DROP CONSTRAINT usage_records_job_id_fkey,
    DROP CONSTRAINT usage_records_meter_check,
    ALTER COLUMN job_id DROP NOT NULL,
    ADD CONSTRAINT usage_meter CHECK (meter IN ('vcpu_seconds','gib_seconds','snapshot_gib_hours','artifact_gib_hours')),
    ADD COLUMN kind     text NOT NULL DEFAULT 'usage' CHECK (kind IN ('usage','adjustment')),
    ADD COLUMN part     int NOT NULL DEFAULT 0 CHECK (part >= 0),
    ADD COLUMN period   int,      -- month it is billed in, yyyymm
    ADD COLUMN rate_id  int,      -- NULL: priced before there was a price book, or an adjustment
    ADD COLUMN batch_id uuid,
    ADD COLUMN verdict  text,     -- of the job
    ADD COLUMN resource text,     -- what is stored, on lines of storage
    ADD COLUMN corrects uuid,     -- the line that an adjustment corrects
    ADD COLUMN reason   text,     -- of an adjustment
    -- Place in the order that seals follow. The transaction's id is taken before the number is, so that whoever waits for
    -- all transactions of a moment to end has seen every line with a number given out until then (ledger_seal.c).
    ADD COLUMN pos      bigint NOT NULL DEFAULT (CASE WHEN pg_current_xact_id() IS NOT NULL THEN nextval('usage_pos') END);
ALTER SEQUENCE usage_pos OWNED BY usage_records.pos;
UPDATE usage_records SET period = to_char(from_ts AT TIME ZONE 'UTC', 'YYYYMM')::int;
UPDATE usage_records u SET batch_id = j.batch_id, verdict = j.verdict FROM jobs j WHERE j.id = u.job_id;
ALTER TABLE usage_records
    ALTER COLUMN period SET NOT NULL,
    ADD CONSTRAINT usage_adjustment CHECK ((kind = 'adjustment') = (corrects IS NOT NULL AND reason IS NOT NULL)),
    ADD CONSTRAINT usage_not_negative CHECK (kind = 'adjustment' OR cost_nanousd >= 0);
DROP INDEX usage_by_job;
CREATE INDEX usage_by_job ON usage_records (job_id) WHERE job_id IS NOT NULL;
CREATE UNIQUE INDEX usage_by_pos ON usage_records (pos);
CREATE INDEX usage_corrections ON usage_records (corrects) WHERE corrects IS NOT NULL;

-- A commit calls this first: it is to price with the book and the closed months it knows, and no month may be closed while it writes.
CREATE FUNCTION ledger_guard(rates_known int, closed_known int) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    LOCK TABLE usage_records IN ROW EXCLUSIVE MODE;
    IF rates_known <> (SELECT coalesce(max(id), 0) FROM rates)
       OR closed_known <> (SELECT coalesce(max(period), 0) FROM usage_periods) THEN
        RAISE EXCEPTION 'the price book or the closed months have changed' USING ERRCODE = 'serialization_failure';
    END IF;
END $$;

-- ---- the chain: of each tenant, blocks of lines in the order of pos ----

CREATE TABLE usage_seals (
    tenant       text   NOT NULL,
    seal         bigint NOT NULL CHECK (seal > 0),
    first_pos    bigint NOT NULL,
    last_pos     bigint NOT NULL CHECK (last_pos >= first_pos),
    lines        int    NOT NULL CHECK (lines > 0),
    cost_nanousd bigint NOT NULL,
    content      bytea  NOT NULL, -- of each line 16 bytes of its id, 32 of the SHA-256 of its canonical form
    prev_hash    bytea  NOT NULL,
    hash         bytea  NOT NULL,
    sealed_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (tenant, seal),
    CHECK (octet_length(content) = 48 * lines AND octet_length(prev_hash) = 32 AND octet_length(hash) = 32)
);
ALTER TABLE usage_seals ALTER COLUMN content SET STORAGE EXTERNAL;
CREATE INDEX usage_sealed ON usage_seals (last_pos);
-- Sums of what is sealed, by the day of the lines: what budgets look at. Derived; `brood usage --check` compares.
CREATE TABLE usage_days (
    tenant       text   NOT NULL,
    day          date   NOT NULL,
    lines        bigint NOT NULL,
    cost_nanousd bigint NOT NULL,
    PRIMARY KEY (tenant, day)
);

-- ---- closed months ----

CREATE TABLE usage_periods (
    period       int PRIMARY KEY,
    lines        bigint NOT NULL,
    cost_nanousd bigint NOT NULL,
    digest       bytea NOT NULL, -- SHA-256 over the tenants' digests
    closed_at    timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE TABLE usage_period_totals (
    period       int    NOT NULL REFERENCES usage_periods (period),
    tenant       text   NOT NULL,
    lines        bigint NOT NULL,
    cost_nanousd bigint NOT NULL,
    digest       bytea  NOT NULL, -- SHA-256 over the canonical forms' hashes, by pos
    PRIMARY KEY (period, tenant)
);

-- ---- storage ----

-- What was kept and is not any more; the hours before are charged from here.
CREATE TABLE storage_ended (
    meter      text   NOT NULL,
    tenant     text   NOT NULL,
    resource   text   NOT NULL,
    template   text   NOT NULL,
    job_id     uuid,
    bytes      bigint NOT NULL,
    from_ts    timestamptz NOT NULL,
    to_ts      timestamptz NOT NULL
);
CREATE INDEX storage_ended_to ON storage_ended (to_ts);
CREATE FUNCTION snapshot_ended() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO storage_ended VALUES ('snapshot_gib_hours', OLD.tenant, OLD.id::text, OLD.template, OLD.job_id, OLD.layer_bytes, OLD.created_at,
                                      clock_timestamp());
    RETURN NULL;
END $$;
CREATE TRIGGER snapshot_ended AFTER DELETE ON snapshots FOR EACH ROW EXECUTE FUNCTION snapshot_ended();
CREATE FUNCTION artifacts_ended() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO storage_ended
        SELECT 'artifact_gib_hours', j.tenant, coalesce(j.batch_id, j.id)::text || '/' || o.sha256, j.template, j.id, max(o.size_bytes), j.finished_at,
               clock_timestamp()
        FROM gone o JOIN jobs j ON j.id = o.job_id WHERE o.sha256 IS NOT NULL AND o.stored AND j.finished_at IS NOT NULL
        GROUP BY j.id, o.sha256;
    RETURN NULL;
END $$;
CREATE TRIGGER artifacts_ended AFTER DELETE ON artifacts REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION artifacts_ended();
-- The hours that were charged, each once.
CREATE TABLE storage_hours (
    hour       timestamptz PRIMARY KEY CHECK (date_trunc('hour', hour AT TIME ZONE 'UTC') = hour AT TIME ZONE 'UTC'),
    lines      int NOT NULL,
    charged_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- ---- what is not billed ----

ALTER TABLE attempts ADD COLUMN overhead_ms bigint NOT NULL DEFAULT 0 CHECK (overhead_ms >= 0); -- of a fault of ours: dispatch to end

-- ---- budgets ----

CREATE TABLE budgets (
    tenant          text PRIMARY KEY,
    period          text   NOT NULL CHECK (period IN ('day','month','total')),
    limit_nanousd   bigint NOT NULL CHECK (limit_nanousd >= 0),
    warn_percent    int    NOT NULL CHECK (warn_percent BETWEEN 1 AND 100),
    cancel_running  boolean NOT NULL,
    long_running_ms bigint NOT NULL CHECK (long_running_ms >= 0), -- 0: no alerts
    -- kept by the scheduler:
    state           text   NOT NULL DEFAULT 'ok' CHECK (state IN ('ok','warned','stopped')),
    spent_nanousd   bigint NOT NULL DEFAULT 0,
    since           timestamptz NOT NULL DEFAULT 'epoch',         -- start of the period that state and spent are of
    looked_at       timestamptz
);
CREATE TABLE budget_events (
    id            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant        text NOT NULL,
    kind          text NOT NULL CHECK (kind IN ('budget.warned','budget.stopped','budget.resumed','job.long_running')),
    since         timestamptz NOT NULL,
    job_id        uuid,
    attempt       int,
    spent_nanousd bigint NOT NULL,
    limit_nanousd bigint NOT NULL,
    at            timestamptz NOT NULL DEFAULT clock_timestamp(),
    told          boolean NOT NULL DEFAULT false -- put on the events' stream
);
CREATE UNIQUE INDEX budget_events_once ON budget_events (tenant, kind, since, limit_nanousd, job_id, attempt) NULLS NOT DISTINCT
    WHERE kind <> 'budget.resumed';
CREATE INDEX budget_events_untold ON budget_events (id) WHERE NOT told;

SELECT ledger_protect(t) FROM unnest(ARRAY['usage_records','rates','usage_seals','usage_periods','usage_period_totals','storage_ended','storage_hours']) t;

-- Where we may: the tables' definitions are refused too, so that a trigger is not switched off in passing. Who means it says
-- SET LOCAL brood.ledger_change = 'on' first, as the runner of migrations does. The chain is what finds whoever does.
CREATE FUNCTION ledger_refuse_ddl() RETURNS event_trigger LANGUAGE plpgsql AS $$
DECLARE
    hit text;
BEGIN
    IF current_setting('brood.ledger_change', true) = 'on' THEN
        RETURN;
    END IF;
    IF TG_EVENT = 'sql_drop' THEN
        SELECT object_identity INTO hit FROM pg_event_trigger_dropped_objects()
            WHERE object_identity ~ '(usage_records|usage_seals|usage_period|storage_ended|storage_hours|\mrates\M|ledger_)' LIMIT 1;
    ELSE
        SELECT c.object_identity INTO hit FROM pg_event_trigger_ddl_commands() c
            WHERE c.object_identity ~ 'ledger_' OR EXISTS (SELECT FROM pg_trigger t WHERE t.tgrelid = c.objid AND t.tgname = 'ledger_rows') LIMIT 1;
    END IF;
    IF hit IS NOT NULL THEN
        RAISE EXCEPTION '% belongs to the ledger: % refused', hit, TG_TAG USING ERRCODE = 'restrict_violation';
    END IF;
END $$;
DO $$
BEGIN
    IF (SELECT rolsuper FROM pg_roles WHERE rolname = current_user) THEN
        CREATE EVENT TRIGGER ledger_alter ON ddl_command_end WHEN TAG IN ('ALTER TABLE', 'ALTER FUNCTION', 'CREATE FUNCTION')
            EXECUTE FUNCTION ledger_refuse_ddl();
        CREATE EVENT TRIGGER ledger_drop ON sql_drop EXECUTE FUNCTION ledger_refuse_ddl();
        ALTER EVENT TRIGGER ledger_alter ENABLE ALWAYS;
        ALTER EVENT TRIGGER ledger_drop ENABLE ALWAYS;
    END IF;
END $$;
