-- A join token may say which kinds of commands the machines that come in by it accept; NULL for every kind.
ALTER TABLE join_tokens ADD COLUMN kinds text[];

-- What the newest certificate of a node's present identity allows; NULL for everything. A node whose certificates all ended with
-- their identity accepts nothing; one that never had any is in no session either.
CREATE OR REPLACE FUNCTION node_allowed_kinds(node uuid) RETURNS text[]
    LANGUAGE sql STABLE PARALLEL SAFE
    AS $$
        SELECT CASE WHEN c.counts THEN c.allowed_kinds ELSE '{}' END
        FROM (SELECT c.allowed_kinds, c.issued_at, c.not_after,
                     c.identity_generation = n.identity_generation AND c.revoked_at IS NULL AS counts
              FROM node_certs c
              JOIN nodes n ON n.id = c.node_id
              WHERE c.node_id = node) AS c
        ORDER BY c.counts DESC, c.issued_at DESC, c.not_after DESC
        LIMIT 1
    $$;
