-- The body of a function in SQL is planned anew by every statement that calls it; one in PL/pgSQL once for a connection.
CREATE OR REPLACE FUNCTION node_allowed_kinds(node uuid) RETURNS text[]
    LANGUAGE plpgsql STABLE PARALLEL SAFE
    AS $$
    BEGIN
        RETURN (
            SELECT CASE WHEN c.counts THEN c.allowed_kinds ELSE '{}' END
            FROM (SELECT c.allowed_kinds, c.issued_at, c.not_after,
                         c.identity_generation = n.identity_generation AND c.revoked_at IS NULL AS counts
                  FROM node_certs c
                  JOIN nodes n ON n.id = c.node_id
                  WHERE c.node_id = node) AS c
            ORDER BY c.counts DESC, c.issued_at DESC, c.not_after DESC
            LIMIT 1
        );
    END
    $$;
