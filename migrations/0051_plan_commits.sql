-- The commits that batches were planned at, as they are in the repository: a receipt shows them, and whoever checks it needs no
-- repository. Each proves itself: a batch binds the name of the commit, which follows from its bytes.
CREATE TABLE plan_commits (
    commit  text PRIMARY KEY,
    raw     bytea NOT NULL,
    kept_at timestamptz NOT NULL DEFAULT compute_now()
);
