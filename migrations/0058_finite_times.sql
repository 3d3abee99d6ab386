-- No row says `infinity` for a time: nothing that reads it has a word for that. What a table holds already is left alone, for a
-- database that somebody wrote into has to migrate too. The audit log keeps whatever is written there.
DO $$
DECLARE
    one record;
BEGIN
    FOR one IN
        SELECT c.relname AS name, string_agg(format('isfinite(%I)', a.attname), ' AND ' ORDER BY a.attnum) AS finite
        FROM pg_class c
        JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
        WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind = 'r'
          AND a.atttypid = 'timestamptz'::regtype AND c.relname NOT IN ('audit', '_sqlx_migrations')
        GROUP BY c.relname
        ORDER BY c.relname
    LOOP
        EXECUTE format('ALTER TABLE %I ADD CONSTRAINT %I CHECK (%s) NOT VALID', one.name, one.name || '_times_check', one.finite);
    END LOOP;
END
$$;
