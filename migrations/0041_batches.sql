-- Batches: destructive commands for some machines, as a document, a proposal, a call or an emergency asked for them. What is
-- here lets nothing happen: each node judges the approvals that come with its command by itself.
CREATE TABLE batches (
    id            uuid PRIMARY KEY,
    -- Used once and never again.
    name          text NOT NULL UNIQUE,
    origin        text NOT NULL CHECK (origin IN ('document', 'proposal', 'api', 'breakglass')),
    state         text NOT NULL CHECK (state IN
                      ('proposed', 'approved', 'dispatching', 'done', 'expired', 'void', 'rejected', 'cancelled')),
    -- Why it is there: a stable word, and the same for people.
    reason        text,
    message       text,
    -- Whether people's approvals let it go; false: it is written down for audit only.
    quorum        boolean NOT NULL,
    kind          text NOT NULL,
    -- The document's text, canonical JSON, and its digest.
    doc           text NOT NULL,
    document      bytea NOT NULL CHECK (octet_length(document) = 32),
    place         text,
    why           text NOT NULL,
    tier          text,
    plan_commit   text,
    plan_tree     text,
    -- What people sign the digest of.
    header        bytea,
    digest        bytea CHECK (octet_length(digest) = 32),
    trust_epoch   bigint,
    proposer      text,
    -- What the approvals of a break-glass statement are made of.
    evidence      bytea,
    created_by    text NOT NULL,
    leaf_count    integer NOT NULL,
    not_before    timestamptz NOT NULL,
    expires       timestamptz NOT NULL,
    max_in_flight integer NOT NULL CHECK (max_in_flight > 0),
    max_failures  integer NOT NULL CHECK (max_failures >= 0),
    spread        text,
    created_at    timestamptz NOT NULL DEFAULT compute_now(),
    resolved_at   timestamptz NOT NULL DEFAULT compute_now(),
    decided_at    timestamptz,
    ended_at      timestamptz,
    -- Somebody looked at an emergency afterwards.
    closed_at     timestamptz,
    closed_by     text,
    closed_note   text,
    CHECK ((header IS NULL) = (digest IS NULL)),
    CONSTRAINT batches_ended CHECK ((ended_at IS NOT NULL) = (state IN ('done', 'expired', 'void', 'rejected', 'cancelled')))
);
CREATE INDEX batches_open ON batches (name) WHERE ended_at IS NULL;
CREATE INDEX batches_by_creation ON batches (created_at);
CREATE INDEX batches_to_review ON batches (created_at) WHERE origin = 'breakglass' AND closed_at IS NULL;

-- One machine of a batch. What was resolved once does not change; where it is does.
CREATE TABLE batch_leaves (
    batch_id   uuid NOT NULL REFERENCES batches (id) ON DELETE CASCADE,
    index      integer NOT NULL,
    node_id    uuid NOT NULL,
    node       text NOT NULL,
    -- Canonical JSON, as its hash in the tree of the batch covers it; NULL where no quorum is asked.
    leaf       bytea,
    payload    text NOT NULL,
    state      text NOT NULL DEFAULT 'waiting' CHECK (state IN ('waiting', 'sent', 'succeeded', 'failed', 'left')),
    reason     text,
    command_id uuid,
    attempt    integer NOT NULL DEFAULT 0,
    began_at   timestamptz,
    ended_at   timestamptz,
    PRIMARY KEY (batch_id, index)
);
CREATE INDEX batch_leaves_by_command ON batch_leaves (command_id) WHERE command_id IS NOT NULL;
CREATE INDEX batch_leaves_by_node ON batch_leaves (node_id);

-- The proof that people agreed, as it goes to the node beside the command.
ALTER TABLE commands ADD COLUMN approval bytea;

-- The last report of each node that named its serial numbers, exactly as the node signed it: whoever approves checks it.
CREATE TABLE node_identities (
    node_id     uuid PRIMARY KEY REFERENCES nodes (id) ON DELETE CASCADE,
    payload     bytea NOT NULL,
    signature   bytea NOT NULL,
    received_at timestamptz NOT NULL DEFAULT compute_now()
);

DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'bc_gateway') THEN
        GRANT SELECT (approval) ON commands TO bc_gateway;
    END IF;
END
$$;
