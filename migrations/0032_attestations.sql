-- What vouches for machines besides tokens: what they prove.

-- Whose identity is whose: one that was proven for a node is no other node's while that node is there.
CREATE TABLE attestation_uses (
    kind       text NOT NULL,
    subject    text NOT NULL,
    node_id    uuid NOT NULL REFERENCES nodes (id) ON DELETE CASCADE,
    first_used timestamptz NOT NULL DEFAULT compute_now(),
    last_used  timestamptz NOT NULL DEFAULT compute_now(),
    PRIMARY KEY (kind, subject)
);
-- Serves what a node was attested as.
CREATE INDEX attestation_uses_by_node ON attestation_uses (node_id);

-- What a machine at the door proved.
ALTER TABLE joins ADD COLUMN attested text[] NOT NULL DEFAULT '{}';

-- The answer to a request that came without a token.
ALTER TABLE token_uses ALTER COLUMN token_id DROP NOT NULL;
