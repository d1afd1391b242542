-- name: look_at_waiting
-- How many tasks of each name are due, and since when the first of them.
SELECT t.name, count(*) AS count,
    extract(epoch FROM coalesce(:now::timestamptz, now()) - min(t.due_at))::float8 AS behind
FROM {schema}.tasks AS t
WHERE t.due_at <= coalesce(:now::timestamptz, now())
GROUP BY t.name
ORDER BY t.name;

-- name: look_for_orphans
-- How many running tasks no worker holds although their lease has passed; reads the whole table.
SELECT count(*) AS count
FROM {schema}.tasks AS t
WHERE t.state = 'running' AND t.locked_until < coalesce(:now::timestamptz, now()) AND NOT EXISTS (
    SELECT FROM {schema}.tasklib_claims AS h CROSS JOIN unnest(h.seqs, h.versions) AS held (seq, version)
    WHERE held.seq = t.seq AND held.version = t.version
);

-- name: look_at_parts
-- The indexes and triggers of the task table that are there and in use.
SELECT c.relname AS name
FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid
WHERE i.indrelid = '{schema}.tasks'::regclass AND i.indisvalid
UNION ALL
SELECT g.tgname FROM pg_trigger AS g WHERE g.tgrelid = '{schema}.tasks'::regclass AND g.tgenabled <> 'D';

-- name: look_for_alembic
-- Whether Alembic keeps its version beside our tables.
SELECT count(*) AS count
FROM pg_class AS c JOIN pg_class AS ours ON ours.relnamespace = c.relnamespace
WHERE ours.oid = '{schema}.tasks'::regclass AND c.relname = 'alembic_version' AND c.relkind = 'r';

-- name: look_at_server
-- What the server and the table are set to, and what is in the way of vacuum.
-- Only here: SQLite runs in this process and has one file.
SELECT
    extract(epoch FROM clock_timestamp())::float8 AS clock,
    current_setting('autovacuum') = 'on' AND NOT coalesce(
        (SELECT o.option_value = 'false' OR o.option_value = 'off' FROM pg_options_to_table(c.reloptions) AS o
            WHERE o.option_name = 'autovacuum_enabled'), false
    ) AS autovacuum,
    current_setting('fsync') = 'on' AND current_setting('synchronous_commit') <> 'off' AS durable,
    c.relpersistence = 'p' AS logged,
    coalesce(s.n_dead_tup, 0)::bigint AS dead,
    coalesce(s.n_live_tup, 0)::bigint AS live,
    (
        SELECT max(extract(epoch FROM clock_timestamp() - a.xact_start))::float8 FROM pg_stat_activity AS a
        WHERE a.backend_type = 'client backend' AND a.pid <> pg_backend_pid() AND a.datname = current_database()
    ) AS oldest_transaction,
    (
        SELECT a.pid FROM pg_stat_activity AS a
        WHERE a.backend_type = 'client backend' AND a.pid <> pg_backend_pid() AND a.datname = current_database()
            AND a.xact_start IS NOT NULL
        ORDER BY a.xact_start LIMIT 1
    ) AS oldest_pid
FROM pg_class AS c LEFT JOIN pg_stat_all_tables AS s ON s.relid = c.oid
WHERE c.oid = '{schema}.tasks'::regclass;
