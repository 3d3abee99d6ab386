-- Who works with which revision of the control plane's keys: its processes, and the gateways apart. A rotation takes its
-- next step when nobody is behind. A gateway says it over the internal service and has no right here.
CREATE TABLE key_holders (
    name       text PRIMARY KEY,
    is_gateway boolean NOT NULL,
    revision   bigint NOT NULL CHECK (revision >= 0),
    seen_at    timestamptz NOT NULL DEFAULT compute_now(),
    -- A process that is silent for longer is gone; a gateway's certificates end.
    expires_at timestamptz NOT NULL,
    -- A gateway that gets no more certificates.
    ended_by   text
);
