-- name: find_oldest_waiting
-- The task that has been due the longest: the head of every name and priority, and of every key among the first 10,000.
WITH RECURSIVE
head AS (
    SELECT t.seq, t.id, t.name, t.priority, t.due_at FROM {schema}.tasks AS t
    WHERE t.seq = (
        SELECT f.seq FROM {schema}.tasks AS f WHERE f.due_at IS NOT NULL AND f.concurrency_key IS NULL
        ORDER BY f.name, f.priority DESC, f.due_at, f.seq LIMIT 1
    )
    UNION ALL
    SELECT t.seq, t.id, t.name, t.priority, t.due_at FROM head AS h JOIN {schema}.tasks AS t ON t.seq = coalesce(
        (
            SELECT n.seq FROM {schema}.tasks AS n
            WHERE n.due_at IS NOT NULL AND n.concurrency_key IS NULL AND n.name = h.name AND n.priority < h.priority
            ORDER BY n.priority DESC, n.due_at, n.seq LIMIT 1
        ),
        (
            SELECT n.seq FROM {schema}.tasks AS n
            WHERE n.due_at IS NOT NULL AND n.concurrency_key IS NULL AND n.name > h.name
            ORDER BY n.name, n.priority DESC, n.due_at, n.seq LIMIT 1
        )
    )
),
keyed AS (
    SELECT t.seq, t.id, t.name, t.concurrency_key, t.due_at, 1 AS place FROM {schema}.tasks AS t
    WHERE t.seq = (
        SELECT f.seq FROM {schema}.tasks AS f WHERE f.due_at IS NOT NULL AND f.concurrency_key IS NOT NULL
        ORDER BY f.concurrency_key, f.name, f.priority DESC, f.due_at, f.seq LIMIT 1
    )
    UNION ALL
    SELECT t.seq, t.id, t.name, t.concurrency_key, t.due_at, k.place + 1
    FROM keyed AS k JOIN {schema}.tasks AS t ON t.seq = (
        SELECT n.seq FROM {schema}.tasks AS n
        WHERE n.due_at IS NOT NULL AND n.concurrency_key IS NOT NULL AND n.concurrency_key > k.concurrency_key
        ORDER BY n.concurrency_key, n.name, n.priority DESC, n.due_at, n.seq LIMIT 1
    )
    WHERE k.place < 10000
)
SELECT w.id, w.name, w.due_at FROM (
    SELECT h.id, h.name, h.due_at FROM head AS h
    UNION ALL
    SELECT k.id, k.name, k.due_at FROM keyed AS k
) AS w
WHERE w.due_at <= coalesce(:now::timestamptz, now())
ORDER BY w.due_at LIMIT 1;
