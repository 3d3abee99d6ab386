-- Identity that lives for years: tokens that say who may use them, machines that come back, renewals that wait for somebody.

-- What a machine must show is in `expect`; `reclaim` lets a machine that is known by its hardware take its old node back.
ALTER TABLE join_tokens ADD COLUMN reclaim boolean NOT NULL DEFAULT false;

-- A person looked at a machine that waits or is held: the next try of the same request is let through, once. With
-- `approved_as` it becomes that node, in place. A renewal that came too late waits here too, under a digest of its
-- certificate.
ALTER TABLE joins
    ADD COLUMN kind text NOT NULL DEFAULT 'join' CHECK (kind IN ('join', 'renewal')),
    ADD COLUMN approved_at timestamptz,
    ADD COLUMN approved_by text,
    ADD COLUMN approved_as uuid REFERENCES nodes (id) ON DELETE CASCADE;

-- The version of the trust bundle that a node said it believes, and how often its acceptance began.
ALTER TABLE nodes
    ADD COLUMN trust_version bigint NOT NULL DEFAULT 0,
    ADD COLUMN acceptance_attempt bigint NOT NULL DEFAULT 1;

-- A challenge is good once. Rows are forgotten when the challenges are too old to count.
CREATE TABLE renewals (
    challenge  bytea PRIMARY KEY,
    node_id    uuid NOT NULL REFERENCES nodes (id) ON DELETE CASCADE,
    created_at timestamptz NOT NULL DEFAULT compute_now()
);
