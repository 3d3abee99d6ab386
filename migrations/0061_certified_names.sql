-- The name that a machine was told together with a certificate; NULL where that is not known. A machine that was renamed goes by
-- this one until it has another certificate, so that what is approved for it waits until then.
ALTER TABLE node_certs ADD COLUMN node_name text;

-- The same of the certificate that a node's session was opened with.
ALTER TABLE sessions ADD COLUMN node_name text;

-- A time that was said by a clock far ahead blinds nobody to what is said after it.
UPDATE node_boots SET said_at = LEAST(said_at, compute_now());
