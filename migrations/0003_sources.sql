-- What git says and how far the control plane has followed it.
-- Each commit column is moved by compare-and-swap; applied only moves forward along the verified chain.
CREATE TABLE sources (
    name            text PRIMARY KEY,
    url             text NOT NULL,
    branch          text NOT NULL,
    path            text NOT NULL DEFAULT '',
    remote_commit   text,
    remote_at       timestamptz,
    verified_commit text,
    verified_at     timestamptz,
    planned_commit  text,
    planned_at      timestamptz,
    applied_commit  text,
    applied_at      timestamptz,
    accepted_commit text,
    state           text NOT NULL,
    reason          text,
    detail          jsonb,
    since           timestamptz NOT NULL DEFAULT compute_now(),
    checked_at      timestamptz
);
