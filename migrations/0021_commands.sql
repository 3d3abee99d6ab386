-- Commands: one-shot work for one node, in order per node, with a deadline. No reference to nodes: what was done to a
-- machine outlives its row.
CREATE TABLE commands (
    id                  uuid PRIMARY KEY,
    node_id             uuid NOT NULL,
    -- From nodes.next_cmd_seq under the node's lock, so that it rises in the order of commits.
    seq                 bigint NOT NULL,
    kind                text NOT NULL,
    retry_safe          boolean NOT NULL,
    lane                text NOT NULL CHECK (lane IN ('control', 'provision', 'bulk')),
    payload             text NOT NULL,
    idempotency_key     text NOT NULL,
    state               text NOT NULL DEFAULT 'pending' CHECK (state IN
                            ('pending', 'dispatched', 'acked', 'running', 'succeeded', 'failed', 'rejected', 'expired', 'cancelled')),
    reason              text,
    message             text,
    -- NULL holds it: it waits for approvals.
    not_before          timestamptz DEFAULT compute_now(),
    not_after           timestamptz NOT NULL,
    min_generation      bigint,
    batch_id            uuid,
    -- The exact bytes that are signed and sent.
    body                bytea NOT NULL,
    signature           bytea,
    signed_at           timestamptz,
    -- Of the session that it was last sent in.
    epoch               bigint,
    boot_id             uuid,
    journal_id          uuid,
    busy_count          integer NOT NULL DEFAULT 0,
    result              text,
    -- The node's last word as it signed it, with the key that verified it, for kinds whose results are attested.
    evidence            bytea,
    evidence_signature  bytea,
    evidence_key        bytea,
    -- What a node said after the end.
    late_state          text,
    late_reason         text,
    late_at             timestamptz,
    cancel_requested_at timestamptz,
    owner               text,
    created_by          text NOT NULL,
    created_at          timestamptz NOT NULL DEFAULT compute_now(),
    dispatched_at       timestamptz,
    acked_at            timestamptz,
    started_at          timestamptz,
    settled_at          timestamptz,
    UNIQUE (node_id, seq),
    UNIQUE (node_id, idempotency_key),
    CHECK ((signature IS NULL) = (signed_at IS NULL)),
    CHECK ((evidence IS NULL) = (evidence_signature IS NULL) AND (evidence IS NULL) = (evidence_key IS NULL)),
    -- Whoever may not write settled_at can neither end a command nor revive one.
    CONSTRAINT commands_settled CHECK ((settled_at IS NOT NULL) = (state IN ('succeeded', 'failed', 'rejected', 'expired', 'cancelled')))
) WITH (fillfactor = 70);
CREATE INDEX commands_pending ON commands (node_id, lane, seq) WHERE state = 'pending';
CREATE INDEX commands_open ON commands (node_id, seq) WHERE state IN ('pending', 'dispatched', 'acked', 'running');
CREATE INDEX commands_in_flight ON commands (node_id, seq) WHERE state IN ('dispatched', 'acked', 'running');
CREATE INDEX commands_by_deadline ON commands (not_after) WHERE settled_at IS NULL;
CREATE INDEX commands_taken_back ON commands (id) WHERE state = 'pending' AND cancel_requested_at IS NOT NULL;
CREATE INDEX commands_by_end ON commands (settled_at) WHERE settled_at IS NOT NULL;

-- When a command moved, is written here, so that whoever may move it cannot say otherwise. What its node has does not wait
-- again, unless running it twice does no harm.
CREATE FUNCTION commands_move() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    IF NEW.state = 'pending' AND OLD.state <> 'pending' AND OLD.acked_at IS NOT NULL AND NOT OLD.retry_safe THEN
        RAISE EXCEPTION 'a command that its node has does not wait again';
    END IF;
    IF NEW.state = 'dispatched' AND OLD.state = 'pending' THEN
        NEW.dispatched_at := compute_now();
    END IF;
    IF NEW.state IN ('acked', 'running') AND NEW.acked_at IS NULL THEN
        NEW.acked_at := compute_now();
    END IF;
    IF NEW.state = 'running' AND NEW.started_at IS NULL THEN
        NEW.started_at := compute_now();
    END IF;
    RETURN NEW;
END
$$;
CREATE TRIGGER commands_move BEFORE UPDATE OF state ON commands FOR EACH ROW EXECUTE FUNCTION commands_move();

-- Last words of nodes as gateways received them. Nobody has verified them yet; the `command` reconciler does, and removes them.
CREATE TABLE command_updates (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    node_id     uuid NOT NULL,
    command_id  uuid NOT NULL,
    epoch       bigint NOT NULL,
    payload     bytea NOT NULL,
    signature   bytea NOT NULL,
    received_at timestamptz NOT NULL DEFAULT compute_now(),
    UNIQUE (node_id, command_id, epoch)
);
