-- One statement may be signed by several keys of one person, and only one of them count: what an old key signed does not stand in place
-- of what the present one did. What was stored before has no key; its commit is known, and not read again.
ALTER TABLE statements ADD COLUMN key text NOT NULL DEFAULT '';
ALTER TABLE statements DROP CONSTRAINT statements_pkey, ADD PRIMARY KEY (digest, key);
CREATE INDEX statements_by_commit ON statements (commit);
