-- What something else than the daemon changed on a machine, as the node signed it: one row per field. A row goes when the
-- node no longer reports the field; first_seen never moves forward while it stays.
CREATE TABLE node_drift (
    node_id         uuid NOT NULL REFERENCES nodes (id) ON DELETE CASCADE,
    path            text NOT NULL,
    mode            text NOT NULL CHECK (mode IN ('enforce', 'warn', 'adopt')),
    kind            text NOT NULL CHECK (kind IN ('changed', 'removed', 'metadata', 'value')),
    cause           text NOT NULL CHECK (cause IN ('while-running', 'while-stopped', 'after-boot', 'unknown')),
    observed        text,
    observed_digest bytea CHECK (octet_length(observed_digest) = 32),
    observed_bytes  bigint,
    desired         text,
    first_seen      timestamptz NOT NULL,
    last_seen       timestamptz NOT NULL,
    corrected       boolean NOT NULL,
    times           bigint NOT NULL,
    PRIMARY KEY (node_id, path)
);

-- The class of what the newest generation of a spec does to its machine, by the classifier of the plan.
ALTER TABLE nodes ADD COLUMN spec_effect text
    CHECK (spec_effect IN ('none', 'live', 'service-restart', 'drain', 'reboot', 'reimage', 'wipe'));
