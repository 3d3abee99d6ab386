-- A database that was restored to another server or to an earlier moment counts its transactions anew. What was written
-- before is of an earlier life, and comes before whatever is written since. A life is told by the server that it is on.
CREATE TABLE outbox_lives (
    life     integer PRIMARY KEY,
    -- System identifier and timeline; NULL until the first process said it.
    server   text,
    began_at timestamptz NOT NULL DEFAULT compute_now()
);
INSERT INTO outbox_lives (life) VALUES (0);
CREATE FUNCTION outbox_life() RETURNS integer LANGUAGE sql STABLE AS 'SELECT max(life) FROM outbox_lives';
ALTER TABLE outbox ADD COLUMN life integer NOT NULL DEFAULT 0;
ALTER TABLE outbox ALTER COLUMN life SET DEFAULT outbox_life();
ALTER TABLE outbox DROP CONSTRAINT outbox_pkey, ADD PRIMARY KEY (life, xid, id);
