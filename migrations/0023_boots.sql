-- The boot and the journal that a node last named in a status report of its own signature, and since when it names them: by
-- its own clock, and when that was verified here. Both are NULL while nothing was known before. What a reconnect proves about
-- a command in flight is proved by this, and not by what a gateway heard.
CREATE TABLE node_boots (
    node_id      uuid PRIMARY KEY REFERENCES nodes (id) ON DELETE CASCADE,
    boot_id      uuid NOT NULL,
    boot_said    timestamptz,
    boot_seen    timestamptz,
    journal_id   uuid NOT NULL,
    journal_said timestamptz,
    journal_seen timestamptz,
    -- Of the report that changed either; an older one changes nothing.
    said_at      timestamptz NOT NULL
);

-- The kinds of commands that the holder of a certificate accepts; NULL for every kind.
ALTER TABLE node_certs ADD COLUMN allowed_kinds text[];

-- What the newest certificate of a node's present identity allows; NULL for everything.
CREATE FUNCTION node_allowed_kinds(node uuid) RETURNS text[]
    LANGUAGE sql STABLE PARALLEL SAFE
    AS $$
        SELECT c.allowed_kinds
        FROM node_certs c
        JOIN nodes n ON n.id = c.node_id AND n.identity_generation = c.identity_generation
        WHERE c.node_id = node AND c.revoked_at IS NULL
        ORDER BY c.issued_at DESC, c.not_after DESC
        LIMIT 1
    $$;
