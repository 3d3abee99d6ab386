-- The work queue and who works. A queue row is run under a lease: `lease` names it, and a claim carries the lease's
-- epoch. A claim of an older epoch is void, so the keys of a lost worker become claimable when its lease changes hands.
CREATE TABLE leases (
    name       text PRIMARY KEY,
    epoch      bigint NOT NULL,
    holder     uuid,
    expires_at timestamptz NOT NULL,
    -- Makes the epoch a key column: a change of holder conflicts with the FOR KEY SHARE that a fenced transaction
    -- takes, a renewal does not.
    UNIQUE (name, epoch)
) WITH (fillfactor = 50);
-- Serves renewal and the claims of one worker.
CREATE INDEX leases_by_holder ON leases (holder);

CREATE TABLE workers (
    id           uuid PRIMARY KEY,
    role         text NOT NULL,
    host         text NOT NULL,
    pid          integer NOT NULL,
    pid_namespace text,
    started_at   timestamptz NOT NULL DEFAULT compute_now(),
    heartbeat_at timestamptz NOT NULL DEFAULT compute_now(),
    expires_at   timestamptz NOT NULL
) WITH (fillfactor = 50);

CREATE TABLE work_queue (
    kind        text NOT NULL,
    key         text NOT NULL,
    lease       text NOT NULL,
    generation  bigint NOT NULL DEFAULT 1,
    due_at      timestamptz NOT NULL DEFAULT compute_now(),
    attempts    integer NOT NULL DEFAULT 0,
    claimed_by  uuid,
    claim_epoch bigint,
    PRIMARY KEY (kind, key),
    CHECK ((claimed_by IS NULL) = (claim_epoch IS NULL))
) WITH (fillfactor = 70);
-- Serves claims and the next due time. The claim's columns are not in it, so claiming stays within its page.
CREATE INDEX work_queue_due ON work_queue (due_at);

-- The last outcome per key, written when it changes: why something is not done yet, since when, and where the code
-- said so.
CREATE TABLE outcomes (
    kind    text NOT NULL,
    key     text NOT NULL,
    state   text NOT NULL CHECK (state IN ('done', 'again', 'wait', 'error')),
    reason  text NOT NULL DEFAULT '',
    message text NOT NULL DEFAULT '',
    place   text NOT NULL,
    since   timestamptz NOT NULL DEFAULT compute_now(),
    PRIMARY KEY (kind, key)
);
-- Serves `why`: every outcome of one key.
CREATE INDEX outcomes_by_key ON outcomes (key);
-- Serves `status`: everything that is not done.
CREATE INDEX outcomes_open ON outcomes (state, since) WHERE state <> 'done';
