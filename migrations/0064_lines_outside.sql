-- Lines that are in no chain, because somebody wrote them while the log's triggers were switched off, are set aside too: the place of
-- such a one is its number, and what is kept is its id.
ALTER TABLE audit_aside DROP CONSTRAINT audit_aside_what_check;
ALTER TABLE audit_aside ADD CONSTRAINT audit_aside_what_check CHECK (what IN ('line', 'checkpoint', 'outside'));
