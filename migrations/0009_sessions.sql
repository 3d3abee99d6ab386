-- Who holds a node's session. One row per node; the epoch rises at each open, and every write that a session causes
-- names its epoch, so that a half-dead gateway changes nothing after another one took the node.
-- last_seen has no index on purpose: the batched liveness update then stays within its page.
CREATE TABLE sessions (
    node_id             uuid PRIMARY KEY REFERENCES nodes (id) ON DELETE CASCADE,
    epoch               bigint NOT NULL,
    gateway_id          uuid NOT NULL,
    boot_id             uuid NOT NULL,
    journal_id          uuid NOT NULL,
    identity_generation bigint NOT NULL,
    version             text NOT NULL DEFAULT '',
    described           boolean NOT NULL DEFAULT false,
    connected_at        timestamptz NOT NULL DEFAULT compute_now(),
    disconnected_at     timestamptz,
    last_seen           timestamptz NOT NULL DEFAULT compute_now()
) WITH (fillfactor = 50);
