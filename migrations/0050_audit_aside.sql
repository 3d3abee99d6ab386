-- What was found in the chain of the audit log that nothing signed stands by: a place whose line is not what was chained, a
-- checkpoint that no key of the control plane signed. An operator has it set aside, so that the chain goes on; it is kept here,
-- and named in a line of the log.
CREATE TABLE audit_aside (
    id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    what      text NOT NULL CHECK (what IN ('line', 'checkpoint')),
    -- Where it stood: the place of a line, the number of a checkpoint.
    place     bigint NOT NULL,
    -- Which line of the log that was.
    seq       bigint,
    -- The link, or what the checkpoint said.
    body      bytea NOT NULL,
    signature bytea,
    at        timestamptz NOT NULL DEFAULT compute_now()
);
-- Serves the question whether a line was set aside.
CREATE INDEX audit_aside_by_seq ON audit_aside (seq) WHERE seq IS NOT NULL;

CREATE TRIGGER audit_aside_append_only
    BEFORE UPDATE OR DELETE OR TRUNCATE ON audit_aside
    FOR EACH STATEMENT EXECUTE FUNCTION audit_is_append_only();

-- Nothing goes from the chain but by being set aside. A guard against mistakes: who owns the database is stopped by signatures.
CREATE FUNCTION audit_chain_is_kept() RETURNS trigger
    LANGUAGE plpgsql
    AS $$ BEGIN
        IF TG_OP = 'DELETE' AND current_setting('better_compute.sets_aside', true) = 'on' THEN RETURN NULL; END IF;
        RAISE EXCEPTION 'the audit log is append only';
    END $$;

DROP TRIGGER audit_chain_append_only ON audit_chain;
CREATE TRIGGER audit_chain_append_only
    BEFORE UPDATE OR DELETE OR TRUNCATE ON audit_chain
    FOR EACH STATEMENT EXECUTE FUNCTION audit_chain_is_kept();
DROP TRIGGER audit_checkpoints_append_only ON audit_checkpoints;
CREATE TRIGGER audit_checkpoints_append_only
    BEFORE UPDATE OR DELETE OR TRUNCATE ON audit_checkpoints
    FOR EACH STATEMENT EXECUTE FUNCTION audit_chain_is_kept();
