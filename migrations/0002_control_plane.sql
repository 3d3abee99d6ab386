-- Who this control plane is. One row, made when the database is created; what it says never changes afterwards,
-- except the trust domain of a fleet that had not been loaded yet.
CREATE TABLE control_plane (
    only_one     boolean PRIMARY KEY DEFAULT true CHECK (only_one),
    fleet_id     uuid NOT NULL,
    trust_domain text,
    dev          boolean NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT compute_now()
);
