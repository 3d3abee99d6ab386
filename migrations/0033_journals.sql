-- What a gateway heard of a node's journal: that it is full, and, from what it took before, that it is not the one it was.

-- Why a node had no room the last time: `journal-full`, or nothing when its lane was full.
ALTER TABLE commands ADD COLUMN busy_reason text;

-- What may not run twice and was taken by a journal. A journal that opens a session without it is an old copy.
CREATE INDEX commands_in_journals ON commands (node_id, lane, seq) WHERE NOT retry_safe AND acked_at IS NOT NULL;

DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'bc_gateway') THEN
        GRANT SELECT (busy_reason), UPDATE (busy_reason) ON commands TO bc_gateway;
    END IF;
END
$$;
