-- One row per machine. The axes are independent: each has one writer and none implies another.
-- `cordoned` mirrors "a hold exists" and `no_schedule_reasons` mirrors every cause, both written in the transaction of
-- their cause, so that a placer locks one row and reads one row.
CREATE TABLE nodes (
    id                   uuid PRIMARY KEY,
    name                 text NOT NULL UNIQUE,
    site                 text,
    pool                 text,
    owner_tenant         text,
    role                 text NOT NULL CHECK (role IN ('host', 'dedicated', 'site', 'unassigned')),
    trust                text NOT NULL CHECK (trust IN ('platform', 'tenant-owned', 'tenant-controlled')),
    adapter              text NOT NULL DEFAULT 'bcd/v1',
    labels               jsonb NOT NULL DEFAULT '{}',
    declared             boolean NOT NULL DEFAULT false,
    hardware_key         bytea CHECK (octet_length(hardware_key) = 32),
    hardware_key_trusted boolean NOT NULL DEFAULT false,

    provision_state      text NOT NULL,
    failed_from          text,
    maintenance          boolean NOT NULL DEFAULT false,
    maintenance_reason   text,
    cordoned             boolean NOT NULL DEFAULT false,
    power                text NOT NULL DEFAULT 'unknown' CHECK (power IN ('on', 'off', 'unknown')),
    connectivity         text NOT NULL DEFAULT 'disconnected'
                         CHECK (connectivity IN ('connected', 'disconnected', 'unreachable', 'lost')),
    connectivity_since   timestamptz NOT NULL DEFAULT compute_now(),
    conditions           jsonb NOT NULL DEFAULT '[]',
    no_schedule_reasons  text[] NOT NULL DEFAULT '{}',
    inventory_wanted     text[] NOT NULL DEFAULT '{}',

    generation           bigint NOT NULL DEFAULT 0,
    observed_generation  bigint NOT NULL DEFAULT 0,
    applied_generation   bigint NOT NULL DEFAULT 0,
    identity_generation  bigint NOT NULL DEFAULT 1,
    version              bigint NOT NULL DEFAULT 1,
    next_cmd_seq         bigint NOT NULL DEFAULT 1,
    shard                smallint NOT NULL CHECK (shard BETWEEN 0 AND 255),

    spec                 bytea,
    spec_digest          bytea CHECK (octet_length(spec_digest) = 32),
    spec_signature       bytea,
    spec_signed_at       timestamptz,
    spec_changed_at      timestamptz,
    -- What the spec was last composed from: equal to the assignment once the spec caught up with it.
    spec_from_digest     bytea REFERENCES targets (digest),
    spec_from_overlay    text,

    target_digest        bytea REFERENCES targets (digest),
    target_overlay       text NOT NULL DEFAULT '{}',
    assigned_digest      bytea REFERENCES targets (digest),
    assigned_overlay     text NOT NULL DEFAULT '{}',

    created_at           timestamptz NOT NULL DEFAULT compute_now(),
    updated_at           timestamptz NOT NULL DEFAULT compute_now(),
    adopted_at           timestamptz,
    CHECK ((spec IS NULL) = (spec_digest IS NULL)),
    CHECK ((spec IS NULL) = (generation = 0))
) WITH (fillfactor = 70);

-- Two machines never share a trusted hardware key; the second is held.
CREATE UNIQUE INDEX nodes_hardware_key ON nodes (hardware_key) WHERE hardware_key_trusted AND provision_state <> 'retired';
-- Serves lists and assignments by pool, and resync by shard.
CREATE INDEX nodes_by_pool ON nodes (pool, name);
CREATE INDEX nodes_by_shard ON nodes (shard);

-- A cordon is a hold: one per node and source. The node is cordoned while any exists.
CREATE TABLE node_holds (
    id         uuid PRIMARY KEY,
    node_id    uuid NOT NULL REFERENCES nodes (id) ON DELETE CASCADE,
    source     text NOT NULL CHECK (source IN ('git', 'api', 'health')),
    owner      text NOT NULL,
    reason     text NOT NULL,
    place      text,
    until      timestamptz,
    created_at timestamptz NOT NULL DEFAULT compute_now(),
    UNIQUE (node_id, source)
);
-- Serves the expiry of holds that have an end.
CREATE INDEX node_holds_by_end ON node_holds (until) WHERE until IS NOT NULL;
