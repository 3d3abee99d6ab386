-- Secrets, sealed under a key that is not in this database. The counter outlives its secret, so that a version never comes
-- back with another value. A gateway has no right on either table.
CREATE TABLE secrets (
    name    text PRIMARY KEY,
    counter bigint NOT NULL CHECK (counter > 0)
);

CREATE TABLE secret_versions (
    name       text NOT NULL REFERENCES secrets (name),
    version    bigint NOT NULL CHECK (version > 0),
    envelope   bytea NOT NULL,
    created_by text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT compute_now(),
    PRIMARY KEY (name, version)
);
