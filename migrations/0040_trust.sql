-- What was verified of the fleet's history. Nothing here is believed: policies are followed from the digest in the keys by the
-- statements beside them, statements by the signatures in them, and the checkpoint by its own. What a thief of this database can do
-- is delete, and then all of it is verified again.

-- Every policy that came into force, with what agreed to it.
CREATE TABLE trust_epochs (
    epoch      bigint PRIMARY KEY CHECK (epoch > 0),
    digest     text NOT NULL,
    -- The file.
    policy     bytea NOT NULL,
    commit     text NOT NULL,
    -- Raw commits.
    statements bytea[] NOT NULL,
    at         timestamptz NOT NULL DEFAULT compute_now()
);

-- What people said, each once, however often it was wrapped.
CREATE TABLE statements (
    digest        text PRIMARY KEY,
    kind          text NOT NULL,
    subject       text NOT NULL,
    principal     text NOT NULL,
    commit        text NOT NULL,
    raw           bytea NOT NULL CHECK (octet_length(raw) <= 16384),
    -- What people limited in time ends by this.
    first_seen_at timestamptz NOT NULL DEFAULT compute_now()
);
CREATE INDEX statements_by_subject ON statements (subject, kind);
CREATE INDEX statements_by_kind ON statements (kind, first_seen_at);

-- How far the history of a source was verified.
CREATE TABLE trust_checkpoints (
    source    text PRIMARY KEY,
    commit    text NOT NULL,
    epoch     bigint NOT NULL,
    -- Counts up with each one.
    seq       bigint NOT NULL,
    body      bytea NOT NULL,
    signature bytea NOT NULL,
    at        timestamptz NOT NULL DEFAULT compute_now()
);

DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'bc_gateway') THEN
        GRANT SELECT ON trust_epochs, statements TO bc_gateway;
    END IF;
END
$$;
