-- Pools, and what their hosts should be. A target is a whole host template, kept by digest, so that a node can be
-- composed from the one it was last assigned however long ago that was.
CREATE TABLE targets (
    digest     bytea PRIMARY KEY CHECK (octet_length(digest) = 32),
    pool       text NOT NULL,
    profile    text NOT NULL,
    doc        text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT compute_now()
);

CREATE TABLE pools (
    name          text PRIMARY KEY,
    site          text NOT NULL,
    class         text NOT NULL,
    owner_tenant  text,
    policy        jsonb NOT NULL DEFAULT '{}',
    target_digest bytea REFERENCES targets (digest),
    -- The target of each profile that a node of the pool may have instead of the pool's own.
    profile_targets jsonb NOT NULL DEFAULT '{}',
    revision      uuid REFERENCES revisions (id),
    updated_at    timestamptz NOT NULL DEFAULT compute_now()
);
