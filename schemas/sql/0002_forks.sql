-- Branches of a job, artifacts, kept snapshots, uploads. docs/forks.md says what they mean.

-- One row a node below the job, from index 1 on; node 0 is the job's own row in results. Only rows of the attempt that
-- committed are there.
CREATE TABLE branch_results (
    job_id       uuid   NOT NULL REFERENCES jobs (id),
    attempt      int    NOT NULL,
    node         int    NOT NULL CHECK (node > 0),  -- index in depth-first order
    parent       int    NOT NULL CHECK (parent >= 0 AND parent < node),
    path         text   NOT NULL,                   -- root/2/0
    name_path    text   NOT NULL,                   -- build/fast
    leaf         boolean NOT NULL,
    verdict      text   NOT NULL,
    score_micro  int    NOT NULL CHECK (score_micro BETWEEN 0 AND 1000000),
    weight       bigint NOT NULL CHECK (weight >= 0),
    tries        int    NOT NULL CHECK (tries >= 0), -- forks started for it
    cpu_us       bigint NOT NULL,
    wall_us      bigint NOT NULL,
    memory_peak_bytes bigint NOT NULL,
    detail       text   NOT NULL,                   -- job_result_detail(), as in results
    stdout_head  bytea  NOT NULL,
    stdout_tail  bytea  NOT NULL,
    stderr_head  bytea  NOT NULL,
    stderr_tail  bytea  NOT NULL,
    setup_stdout bytea  NOT NULL,
    setup_stderr bytea  NOT NULL,
    PRIMARY KEY (job_id, attempt, node)
);

CREATE TABLE artifacts (
    job_id     uuid   NOT NULL REFERENCES jobs (id),
    node       int    NOT NULL CHECK (node >= 0),
    ord        int    NOT NULL CHECK (ord >= 0),    -- place in the node's manifest
    path       bytea  NOT NULL,                     -- relative, clean; bytes, since names need not be UTF-8
    sha256     text,                                -- of a stored file
    size_bytes bigint NOT NULL CHECK (size_bytes >= 0),
    mode       int    NOT NULL,
    type       text   NOT NULL CHECK (type IN ('file','link','other')),
    target     bytea,                               -- of a link
    stored     boolean NOT NULL,
    reason     text   NOT NULL,                     -- why not stored, as in a manifest; '' when it is
    change     int    NOT NULL,                     -- what happened while it was read: enum artifact_change
    PRIMARY KEY (job_id, node, ord),
    CHECK (stored = (reason = '')),
    CHECK (NOT (stored AND type = 'file') OR sha256 IS NOT NULL)
);
CREATE INDEX artifacts_by_object ON artifacts (sha256) WHERE sha256 IS NOT NULL;

CREATE TABLE snapshots (
    id              uuid PRIMARY KEY,
    tenant          text NOT NULL,
    name            text,                           -- NULL: another took the name; lives on for its children
    parent          uuid,                           -- the snapshot it was started from; NULL: a template
    digest          text NOT NULL,                  -- SHA-256 of its manifest
    layers          text[] NOT NULL,                -- every object that loading it needs, the manifest first
    template        text NOT NULL,                  -- at the root of its line
    template_digest text NOT NULL,
    engine          text NOT NULL,                  -- what it can only be loaded with: refused when one differs
    engine_version  text NOT NULL,
    cpu_model       text NOT NULL,
    kernel_digest   text NOT NULL,
    vcpus           int  NOT NULL CHECK (vcpus > 0),
    memory_mib      int  NOT NULL CHECK (memory_mib > 0),
    ram_bytes       bigint NOT NULL CHECK (ram_bytes >= 0),   -- of the image in memory
    layer_bytes     bigint NOT NULL CHECK (layer_bytes >= 0), -- of its own layer, as stored
    job_id          uuid REFERENCES jobs (id),      -- the job that kept it
    node            int NOT NULL DEFAULT 0,
    ttl_s           bigint NOT NULL CHECK (ttl_s >= 0),       -- 0: pinned
    pinned          boolean NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    used_at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at      timestamptz,                    -- NULL: pinned
    CHECK (pinned = (expires_at IS NULL)),
    UNIQUE (tenant, name),
    UNIQUE (tenant, id),
    FOREIGN KEY (tenant, parent) REFERENCES snapshots (tenant, id) -- no tenant builds on another's; children refuse deletion
);
CREATE INDEX snapshots_children ON snapshots (tenant, parent) WHERE parent IS NOT NULL;
CREATE INDEX snapshots_expiry ON snapshots (expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX snapshots_layers ON snapshots USING gin (layers);

-- Objects that a tenant has put there itself, so that a job may name them by digest and nobody else's.
CREATE TABLE uploads (
    tenant     text   NOT NULL,
    sha256     text   NOT NULL,
    size_bytes bigint NOT NULL CHECK (size_bytes >= 0),
    expires_at timestamptz NOT NULL,
    PRIMARY KEY (tenant, sha256)
);
CREATE INDEX uploads_by_object ON uploads (sha256);
CREATE INDEX uploads_expiry ON uploads (expires_at);
