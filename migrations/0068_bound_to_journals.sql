-- What is not safe to run twice is signed for one journal of its machine, which refuses it in every other one.

-- For which one a command was signed; NULL where it is for any.
ALTER TABLE commands ADD COLUMN for_journal uuid;

-- Whether the machine has said that it refuses what is for another journal. One that has said so once is held to it.
ALTER TABLE node_boots ADD COLUMN binds boolean NOT NULL DEFAULT false;

DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'bc_gateway') THEN
        GRANT SELECT (for_journal) ON commands TO bc_gateway;
    END IF;
END
$$;
