-- What nodes said. node_reports holds exact node-signed bytes that nobody has verified yet: the gateway stores them,
-- the node controller verifies them, takes over what they say and deletes them. The other tables hold verified facts.
CREATE TABLE node_reports (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    node_id     uuid NOT NULL REFERENCES nodes (id) ON DELETE CASCADE,
    kind        text NOT NULL CHECK (kind IN ('status', 'inventory')),
    seq         bigint NOT NULL,
    epoch       bigint NOT NULL,
    payload     bytea NOT NULL,
    signature   bytea NOT NULL,
    received_at timestamptz NOT NULL DEFAULT compute_now(),
    UNIQUE (node_id, kind, epoch, seq)
);

-- The newest report of each kind that was taken over, so that an older one of the same journal is not.
CREATE TABLE node_report_marks (
    node_id    uuid NOT NULL REFERENCES nodes (id) ON DELETE CASCADE,
    kind       text NOT NULL CHECK (kind IN ('status', 'inventory')),
    journal_id uuid NOT NULL,
    seq        bigint NOT NULL,
    PRIMARY KEY (node_id, kind)
);

CREATE TABLE node_sections (
    node_id    uuid NOT NULL REFERENCES nodes (id) ON DELETE CASCADE,
    section    text NOT NULL,
    digest     bytea NOT NULL CHECK (octet_length(digest) = 32),
    state      text NOT NULL CHECK (state IN ('converged', 'failed')),
    reason     text NOT NULL DEFAULT '',
    generation bigint NOT NULL,
    since      timestamptz NOT NULL DEFAULT compute_now(),
    PRIMARY KEY (node_id, section)
);

CREATE TABLE node_inventory (
    node_id     uuid NOT NULL REFERENCES nodes (id) ON DELETE CASCADE,
    section     text NOT NULL,
    digest      bytea NOT NULL CHECK (octet_length(digest) = 32),
    doc         text NOT NULL,
    observed_at timestamptz NOT NULL DEFAULT compute_now(),
    PRIMARY KEY (node_id, section)
);
