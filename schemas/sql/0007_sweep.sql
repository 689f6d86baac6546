-- Where the sweep of the object store stands (docs/objects.md), and what it has done. One row.
CREATE TABLE object_sweeps (
    one           boolean PRIMARY KEY DEFAULT true CHECK (one),
    after         text    NOT NULL DEFAULT '', -- the digest behind which the next pass begins; '': at the first
    passes        bigint  NOT NULL DEFAULT 0,
    rounds        bigint  NOT NULL DEFAULT 0,  -- times that the end of the store was reached
    looked        bigint  NOT NULL DEFAULT 0,  -- objects
    removed       bigint  NOT NULL DEFAULT 0,
    removed_bytes bigint  NOT NULL DEFAULT 0,
    last_at       timestamptz
);
INSERT INTO object_sweeps DEFAULT VALUES;
