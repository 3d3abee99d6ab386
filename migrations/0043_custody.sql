-- What a thief of this database cannot write: each row here is signed, or tagged, with keys that are held outside of it.

-- What a revision consists of, signed by the process that verified its commit. Specs are composed only from what such a
-- manifest names.
CREATE TABLE manifests (
    revision   uuid PRIMARY KEY REFERENCES revisions (id),
    source     text NOT NULL,
    -- Canonical JSON, as it is signed.
    body       bytea NOT NULL,
    signature  bytea NOT NULL,
    -- Whose signature it is, for whoever replaces that key.
    key        bytea NOT NULL CHECK (octet_length(key) = 32),
    -- Whether it gives names to something that had others.
    renames    boolean NOT NULL,
    written_at timestamptz NOT NULL DEFAULT compute_now()
);
CREATE INDEX manifests_by_key ON manifests (key);
CREATE INDEX manifests_with_renames ON manifests (source) WHERE renames;

-- One pool's share of manifests: kept once for all revisions that leave the pool as it is.
CREATE TABLE manifest_parts (
    digest bytea PRIMARY KEY CHECK (octet_length(digest) = 32),
    body   bytea NOT NULL
);

-- Where to look for a target. Says nothing by itself.
CREATE TABLE manifest_targets (
    target   bytea NOT NULL CHECK (octet_length(target) = 32),
    part     bytea NOT NULL REFERENCES manifest_parts (digest),
    manifest uuid NOT NULL REFERENCES manifests (revision),
    PRIMARY KEY (target, part)
);

-- Tags over what a machine is called and where it belongs, and over what was queued for it.
ALTER TABLE nodes ADD COLUMN placement bytea;
ALTER TABLE commands ADD COLUMN mark bytea;

-- The certificates themselves, the node's first: who has a result that a node signed can check by them who that was.
ALTER TABLE node_certs ADD COLUMN chain bytea[];

-- The audit log as a chain: each row binds the one before it. It is chained by one writer in the order in which rows became
-- visible, so that nobody waits for anybody else to write one; what is not chained yet stands in the tail.
CREATE TABLE audit_tail (
    seq bigint PRIMARY KEY
);
INSERT INTO audit_tail (seq) SELECT seq FROM audit;

CREATE FUNCTION audit_joins_tail() RETURNS trigger
    LANGUAGE plpgsql
    AS $$ BEGIN INSERT INTO audit_tail (seq) VALUES (NEW.seq); RETURN NULL; END $$;

CREATE TRIGGER audit_tail_follows
    AFTER INSERT ON audit
    FOR EACH ROW EXECUTE FUNCTION audit_joins_tail();

CREATE TABLE audit_chain (
    pos  bigint PRIMARY KEY CHECK (pos >= 0),
    seq  bigint NOT NULL UNIQUE REFERENCES audit (seq),
    link bytea NOT NULL CHECK (octet_length(link) = 32)
);

CREATE TABLE audit_checkpoints (
    n         bigint PRIMARY KEY CHECK (n >= 0),
    -- How many rows it stands by.
    rows      bigint NOT NULL,
    body      bytea NOT NULL,
    signature bytea NOT NULL,
    at        timestamptz NOT NULL DEFAULT compute_now()
);

-- A worker's word for a key that signs checkpoints, so that whoever knows the anchor of this control plane knows the key.
CREATE TABLE audit_keys (
    key   bytea PRIMARY KEY CHECK (octet_length(key) = 32),
    vouch bytea NOT NULL,
    at    timestamptz NOT NULL DEFAULT compute_now()
);

CREATE TRIGGER audit_chain_append_only
    BEFORE UPDATE OR DELETE OR TRUNCATE ON audit_chain
    FOR EACH STATEMENT EXECUTE FUNCTION audit_is_append_only();
CREATE TRIGGER audit_checkpoints_append_only
    BEFORE UPDATE OR DELETE OR TRUNCATE ON audit_checkpoints
    FOR EACH STATEMENT EXECUTE FUNCTION audit_is_append_only();

-- Serves the latest rows of all subjects, and those of one actor.
CREATE INDEX audit_by_actor ON audit (actor, seq DESC);
