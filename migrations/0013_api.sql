-- Who may call the API, and which mutations it has already answered.
CREATE TABLE api_tokens (
    id           uuid PRIMARY KEY,
    hash         bytea NOT NULL CHECK (octet_length(hash) = 32),
    name         text NOT NULL,
    scopes       text[] NOT NULL,
    expires_at   timestamptz,
    revoked_at   timestamptz,
    last_used_at timestamptz,
    created_by   text NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT compute_now()
);

CREATE TABLE idempotency (
    identity     text NOT NULL,
    key          text NOT NULL,
    method       text NOT NULL,
    request_hash bytea NOT NULL CHECK (octet_length(request_hash) = 32),
    response     text,
    created_at   timestamptz NOT NULL DEFAULT compute_now(),
    PRIMARY KEY (identity, key)
);
-- Serves the removal of old rows.
CREATE INDEX idempotency_by_age ON idempotency (created_at);
