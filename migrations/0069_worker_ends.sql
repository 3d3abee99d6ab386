-- Work that is spread over processes waits for each of them until its end: that is minutes behind its last sign of life, and never
-- more. Members beyond that are no processes; a real one joins again.
DELETE FROM workers WHERE expires_at > heartbeat_at + interval '5 minutes';
ALTER TABLE workers ADD CONSTRAINT workers_end_check CHECK (expires_at <= heartbeat_at + interval '5 minutes');

-- Whether a member is there, whatever its row says of a time to come.
CREATE FUNCTION worker_lives(member workers) RETURNS boolean
    LANGUAGE sql STABLE
    AS $$ SELECT member.expires_at > compute_now()
             AND member.expires_at <= compute_now() + interval '6 minutes'
             AND member.heartbeat_at <= compute_now() + interval '1 minute' $$;

-- A gateway is no member.
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'bc_gateway') THEN
        REVOKE ALL ON workers FROM bc_gateway;
    END IF;
END
$$;
