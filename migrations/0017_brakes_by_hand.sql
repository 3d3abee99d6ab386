-- What people stop by hand, through the API: a commit that never comes into force, a way back to a revision, and parts of
-- the fleet that stand still.
CREATE TABLE quarantined (
    source     text NOT NULL REFERENCES sources (name),
    commit     text NOT NULL,
    owner      text NOT NULL,
    reason     text NOT NULL,
    placed_by  text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT compute_now(),
    PRIMARY KEY (source, commit)
);

-- A rollback is asked for through the API and carried out by the source, in the transaction that applies it. At most one
-- waits.
CREATE TABLE rollbacks (
    id           uuid PRIMARY KEY,
    seq          bigint GENERATED ALWAYS AS IDENTITY UNIQUE,
    source       text NOT NULL REFERENCES sources (name),
    revision     uuid NOT NULL REFERENCES revisions (id),
    from_commit  text NOT NULL,
    plan         bytea CHECK (octet_length(plan) = 32),
    owner        text NOT NULL,
    reason       text NOT NULL,
    requested_by text NOT NULL,
    -- The commits that the request put in quarantine: let go again when it is refused.
    quarantined  text[] NOT NULL DEFAULT '{}',
    requested_at timestamptz NOT NULL DEFAULT compute_now(),
    state        text NOT NULL DEFAULT 'requested' CHECK (state IN ('requested', 'done', 'refused', 'withdrawn')),
    message      text NOT NULL DEFAULT '',
    ended_at     timestamptz,
    CHECK ((state = 'requested') = (ended_at IS NULL))
);
CREATE UNIQUE INDEX rollbacks_one_waits ON rollbacks (source) WHERE state = 'requested';

-- After a rollback: the commit that was in force before, and that a newer one has to follow.
ALTER TABLE sources ADD COLUMN rolled_back_from text;

-- One per scope: `fleet`, or `kind/name` of a site, a pool or a node.
CREATE TABLE suspensions (
    scope      text PRIMARY KEY,
    owner      text NOT NULL,
    reason     text NOT NULL,
    until      timestamptz,
    placed_by  text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT compute_now()
);
