-- A batch acts as a command does: whoever has no key writes none. The mark is made over everything of it that acts, machines
-- and pace included.
ALTER TABLE batches ADD COLUMN mark bytea;

-- Why a command that waits is not signed, as people read it; what was signed keeps what was said before.
ALTER TABLE commands ADD COLUMN withheld text;
