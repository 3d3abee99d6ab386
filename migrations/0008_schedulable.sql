-- The ordered schedulable predicate over one node row, the twin of the one in Rust; a property test keeps them equal.
-- It answers the first check that fails, as the bucket that capacity reports the node in, or 'schedulable'.
CREATE FUNCTION node_bucket(n nodes) RETURNS text
    LANGUAGE sql STABLE PARALLEL SAFE
    AS $$
    SELECT CASE
        WHEN n.role <> 'host' THEN 'excluded'
        -- IS NOT TRUE: a pool or an owner that is missing makes the comparison null, and null is not ours.
        WHEN (n.trust = 'platform'
              OR (n.trust = 'tenant-owned'
                  AND n.owner_tenant = (SELECT p.owner_tenant FROM pools p WHERE p.name = n.pool))) IS NOT TRUE THEN 'excluded'
        WHEN n.maintenance OR n.cordoned THEN 'maintenance'
        WHEN n.provision_state NOT IN ('adopted', 'deployed') THEN 'provisioning'
        WHEN n.observed_generation < 1 THEN 'provisioning'
        WHEN n.connectivity <> 'connected' THEN 'unreachable'
        WHEN cardinality(n.no_schedule_reasons) > 0 THEN 'unhealthy'
        ELSE 'schedulable'
    END
    $$;
