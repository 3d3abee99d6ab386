-- Database roles with no more rights than their process needs. Where the migrating user may not create roles they are
-- left out, and an operator grants them by hand.
DO $$
BEGIN
    BEGIN
        CREATE ROLE bc_gateway NOLOGIN;
    EXCEPTION WHEN duplicate_object OR unique_violation OR insufficient_privilege THEN NULL;
    END;
    BEGIN
        CREATE ROLE bc_control NOLOGIN;
    EXCEPTION WHEN duplicate_object OR unique_violation OR insufficient_privilege THEN NULL;
    END;
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'bc_control') THEN
        GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO bc_control;
        GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO bc_control;
        -- The tables of later migrations too.
        ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO bc_control;
        ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT USAGE ON SEQUENCES TO bc_control;
    END IF;
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'bc_gateway') THEN
        GRANT SELECT ON control_plane, nodes, node_inventory, node_certs, pools, sessions, leases TO bc_gateway;
        IF to_regclass('_sqlx_migrations') IS NOT NULL THEN
            GRANT SELECT ON _sqlx_migrations TO bc_gateway;
        END IF;
        GRANT INSERT, UPDATE ON sessions TO bc_gateway;
        GRANT UPDATE (connectivity, connectivity_since, no_schedule_reasons, version, updated_at) ON nodes TO bc_gateway;
        GRANT SELECT, INSERT ON node_reports TO bc_gateway;
        GRANT SELECT, INSERT ON outcomes, work_queue TO bc_gateway;
        GRANT UPDATE (state, reason, message, place, since) ON outcomes TO bc_gateway;
        -- It wakes keys; claims are not its own.
        GRANT UPDATE (generation, due_at) ON work_queue TO bc_gateway;
        GRANT SELECT, INSERT, UPDATE, DELETE ON workers TO bc_gateway;
    END IF;
END
$$;
