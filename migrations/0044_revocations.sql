-- The revocations that count, in the order in which they were heard, each behind the policy under which that was. Machines hear them in
-- the same order, and so come to the same policies as the control plane. What does not count is not here, so there is at most one for
-- each key of a policy; like all of it, each proves itself.
CREATE TABLE trust_revocations (
    seq    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    -- The statement's identity.
    digest text NOT NULL UNIQUE,
    -- The newest policy that machines had by then.
    epoch  bigint NOT NULL CHECK (epoch > 0),
    -- The commit that carries it.
    raw    bytea NOT NULL CHECK (octet_length(raw) <= 16384)
);

-- What was heard before went by the time at which it was first seen.
INSERT INTO trust_revocations (digest, epoch, raw)
SELECT s.digest, e.epoch, s.raw
FROM statements s
CROSS JOIN LATERAL (SELECT max(t.epoch) AS epoch FROM trust_epochs t WHERE t.at <= s.first_seen_at) e
WHERE s.kind = 'revoke/v1' AND e.epoch IS NOT NULL
ORDER BY s.first_seen_at, s.digest;

DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'bc_gateway') THEN
        GRANT SELECT ON trust_revocations TO bc_gateway;
    END IF;
END
$$;
