-- How machines come in. A token is consumed in the transaction that issues the certificate, keyed by the digest of the
-- certificate request: a retry of the same request gets the same answer.
CREATE TABLE join_tokens (
    id         uuid PRIMARY KEY,
    hash       bytea NOT NULL CHECK (octet_length(hash) = 32),
    pool       text NOT NULL,
    uses_max   integer NOT NULL CHECK (uses_max > 0),
    uses_left  integer NOT NULL CHECK (uses_left BETWEEN 0 AND uses_max),
    expires_at timestamptz NOT NULL,
    revoked_at timestamptz,
    expect     jsonb NOT NULL DEFAULT '{}',
    created_by text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT compute_now()
);

CREATE TABLE token_uses (
    csr_hash   bytea PRIMARY KEY CHECK (octet_length(csr_hash) = 32),
    token_id   uuid NOT NULL REFERENCES join_tokens (id),
    node_id    uuid NOT NULL REFERENCES nodes (id) ON DELETE CASCADE,
    answer     bytea NOT NULL,
    created_at timestamptz NOT NULL DEFAULT compute_now()
);

CREATE TABLE joins (
    id            uuid PRIMARY KEY,
    state         text NOT NULL CHECK (state IN ('waiting', 'held', 'refused', 'admitted')),
    reason        text NOT NULL,
    message       text NOT NULL,
    pool          text,
    token_id      uuid,
    csr_hash      bytea NOT NULL UNIQUE CHECK (octet_length(csr_hash) = 32),
    hardware_key  bytea CHECK (octet_length(hardware_key) = 32),
    claims        jsonb NOT NULL,
    node_id       uuid REFERENCES nodes (id) ON DELETE SET NULL,
    conflict_with uuid REFERENCES nodes (id) ON DELETE SET NULL,
    peer          text,
    attempts      integer NOT NULL DEFAULT 1,
    created_at    timestamptz NOT NULL DEFAULT compute_now(),
    updated_at    timestamptz NOT NULL DEFAULT compute_now()
);
-- Serves the list of joins that wait for somebody.
CREATE INDEX joins_by_state ON joins (state, updated_at DESC);

CREATE TABLE node_certs (
    serial              bytea PRIMARY KEY,
    node_id             uuid NOT NULL REFERENCES nodes (id) ON DELETE CASCADE,
    public_key          bytea NOT NULL,
    identity_generation bigint NOT NULL,
    not_before          timestamptz NOT NULL,
    not_after           timestamptz NOT NULL,
    issued_at           timestamptz NOT NULL DEFAULT compute_now(),
    revoked_at          timestamptz,
    revoked_reason      text
);
-- Serves the keys that a node's reports may be signed with.
CREATE INDEX node_certs_by_node ON node_certs (node_id, not_after DESC);
