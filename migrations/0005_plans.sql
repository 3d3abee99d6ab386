-- Plans that were shown, and the holds that keep parts of one from going.
CREATE TABLE plans (
    id          uuid PRIMARY KEY,
    source      text NOT NULL,
    commit      text NOT NULL,
    base_commit text,
    digest      bytea NOT NULL CHECK (octet_length(digest) = 32),
    state       text NOT NULL CHECK (state IN ('open', 'applied', 'superseded')),
    doc         text NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT compute_now()
);
-- Serves the newest plans, and the plan of one commit.
CREATE INDEX plans_by_creation ON plans (created_at DESC);
CREATE INDEX plans_by_commit ON plans (source, commit);

CREATE TABLE holds (
    id         uuid PRIMARY KEY,
    subject    text NOT NULL,
    gate       text NOT NULL,
    source     text NOT NULL CHECK (source IN ('git', 'api', 'health')),
    owner      text NOT NULL,
    reason     text NOT NULL,
    place      text,
    until      timestamptz,
    created_at timestamptz NOT NULL DEFAULT compute_now(),
    UNIQUE (subject, gate, source)
);
