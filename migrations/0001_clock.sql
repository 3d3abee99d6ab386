-- One clock: every statement reads time through compute_now(), so that a test can move it.
-- The offset is a setting of the database (ALTER DATABASE … SET compute.clock_offset = '1 hour'), unset in production.
-- Statement time, not transaction time: a long transaction does not live in the past.
CREATE FUNCTION compute_now() RETURNS timestamptz
    LANGUAGE sql STABLE PARALLEL SAFE
    AS $$ SELECT statement_timestamp() + COALESCE(NULLIF(current_setting('compute.clock_offset', true), ''), '0')::interval $$;
