-- A gateway takes pending commands, says what it heard in between, and puts last words down unread. It may not write
-- settled_at, so that it can neither end a command nor revive one; nor what a command says, nor its signature, nor when it
-- moved.
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'bc_gateway') THEN
        GRANT SELECT (id, node_id, seq, kind, retry_safe, lane, state, not_before, not_after, min_generation, body, signature, epoch, boot_id,
                      journal_id, busy_count, cancel_requested_at, dispatched_at, acked_at, started_at, settled_at)
            ON commands TO bc_gateway;
        GRANT UPDATE (state, not_before, epoch, boot_id, journal_id, busy_count) ON commands TO bc_gateway;
        GRANT SELECT, INSERT ON command_updates TO bc_gateway;
    END IF;
END
$$;
