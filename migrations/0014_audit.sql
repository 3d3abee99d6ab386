-- Who did what. Append only, also for somebody who holds the application's connection.
CREATE TABLE audit (
    id      uuid PRIMARY KEY,
    seq     bigint GENERATED ALWAYS AS IDENTITY UNIQUE,
    at      timestamptz NOT NULL DEFAULT compute_now(),
    actor   text NOT NULL,
    action  text NOT NULL,
    subject text NOT NULL,
    detail  jsonb NOT NULL DEFAULT '{}'
);
-- Serves the history of one subject.
CREATE INDEX audit_by_subject ON audit (subject, seq DESC);

CREATE FUNCTION audit_is_append_only() RETURNS trigger
    LANGUAGE plpgsql
    AS $$ BEGIN RAISE EXCEPTION 'the audit log is append only'; END $$;

CREATE TRIGGER audit_append_only
    BEFORE UPDATE OR DELETE OR TRUNCATE ON audit
    FOR EACH STATEMENT EXECUTE FUNCTION audit_is_append_only();
