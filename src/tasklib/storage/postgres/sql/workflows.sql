-- name: load_steps
-- Everything a task has recorded, with the seconds that are left until each step's moment.
SELECT s.key, s.number, s.kind, s.state, s.version, s.digest, s.value::text AS value, s.error::text AS error, s.tries,
    extract(epoch FROM s.until - coalesce(:now::timestamptz, now()))::float8 AS left, s.note, s.started_at, s.ended_at,
    s.until, s.ask::text AS ask, s.undo IS NOT NULL AS has_undo, s.undo ->> 'name' AS undo,
    CASE WHEN s.kind = 'wait' AND s.state = 'open' THEN {its_events} END AS events
FROM {schema}.tasklib_steps AS s
WHERE s.task_id = :id::uuid
ORDER BY s.number, s.key;

-- name: record_steps
-- Record steps of running attempts; one of an attempt that is not the current one changes nothing and is left out of the
-- answer.  What is done stays as it is, unless the same attempt writes it again; one that somebody has
-- filled is never opened again.
-- A step that is done starts the task's retries anew.
WITH {steps_given},
mine AS MATERIALIZED (
    SELECT t.id, t.version, coalesce(t.marks, 0) & 4 = 0 OR t.retry_count > 0 OR t.marks & 2 = 0 AND EXISTS (
            SELECT FROM batch AS b WHERE b.task_id = t.id AND b.undo IS NOT NULL
        ) AS changes
    {their_attempts}
),
marked AS (
    UPDATE {schema}.tasks AS t
    SET marks = coalesce(t.marks, 0) | 4 | CASE WHEN EXISTS (
            SELECT FROM batch AS b WHERE b.task_id = t.id AND b.undo IS NOT NULL
        ) THEN 2 ELSE 0 END,
        retry_count = CASE WHEN EXISTS (SELECT FROM batch AS b WHERE b.task_id = t.id AND b.state = 'done') THEN 0
            ELSE t.retry_count END
    -- By id: a row that somebody else has just written has an address that this statement does not see.
    WHERE t.id = ANY (ARRAY(SELECT m.id FROM mine AS m WHERE m.changes))
)
{steps_stored};

-- name: record_more_steps
-- The same for attempts whose rows say already that they have steps, no retries and what undos there are: most steps are
-- such, and most of recording one is the making ready of an update that has nothing to do.
-- Only here: SQLite makes statements ready in no time.
WITH {steps_given},
mine AS MATERIALIZED (SELECT t.id, t.version {their_attempts})
{steps_stored};

-- fragment: steps_given
batch AS MATERIALIZED (
    SELECT b.* FROM jsonb_to_recordset(:batch::jsonb) AS b (
        task_id uuid, version bigint, key text, number integer, kind text, state text, digest text, value jsonb,
        error jsonb, until_in double precision, tries integer, note text, ask jsonb, undo jsonb, started_ago double precision, ended boolean
    )
)

-- fragment: their_attempts
FROM {schema}.tasks AS t
    WHERE t.id = ANY (ARRAY(SELECT b.task_id FROM batch AS b)) AND t.state = 'running'
        AND t.version = ANY (ARRAY(SELECT b.version FROM batch AS b))
    ORDER BY t.id
    FOR NO KEY UPDATE

-- fragment: steps_stored
INSERT INTO {schema}.tasklib_steps AS s (
    task_id, key, number, kind, state, version, digest, value, error, until, tries, note, ask, undo, started_at, ended_at
)
SELECT b.task_id, b.key, b.number, b.kind, b.state, b.version, b.digest, b.value, b.error,
    c.now + make_interval(secs => b.until_in), b.tries, b.note, b.ask, b.undo, c.now - make_interval(secs => b.started_ago),
    CASE WHEN b.ended THEN c.now END
FROM (SELECT coalesce(:now::timestamptz, now()) AS now) AS c, batch AS b JOIN mine AS m ON m.id = b.task_id AND m.version = b.version
ORDER BY b.task_id, b.key
ON CONFLICT (task_id, key) DO UPDATE
SET state = excluded.state, version = excluded.version, digest = excluded.digest, value = excluded.value,
    error = excluded.error, until = excluded.until, tries = excluded.tries, note = excluded.note,
    ended_at = excluded.ended_at, undo = coalesce(s.undo, excluded.undo)
WHERE (s.state <> 'done' OR s.version = excluded.version) AND (excluded.state <> 'open' OR s.state = 'open')
RETURNING s.task_id, s.key

-- name: reopen_steps
-- Let steps that failed run again: of each task the one named, or all.  A wait that was given up begins anew.
WITH waits AS (
    DELETE FROM {schema}.tasklib_steps AS s
    USING jsonb_to_recordset(:batch::jsonb) AS b (id uuid, key text)
    WHERE s.task_id = b.id AND s.state = 'failed' AND s.kind IN ('wait', 'ask') AND (b.key IS NULL OR s.key = b.key)
)
UPDATE {schema}.tasklib_steps AS s
SET state = 'open', tries = 0, until = NULL, ended_at = NULL
FROM jsonb_to_recordset(:batch::jsonb) AS b (id uuid, key text)
WHERE s.task_id = b.id AND s.state = 'failed' AND s.kind NOT IN ('wait', 'ask') AND (b.key IS NULL OR s.key = b.key);

-- fragment: its_events
(
        SELECT jsonb_agg(w.event)::text FROM {schema}.tasklib_waits AS w WHERE w.task_id = s.task_id AND w.key = s.key
    )

-- name: renew_wait
-- Let an open step wait for something else from now on.
WITH gone AS (
    DELETE FROM {schema}.tasklib_waits AS w
    WHERE w.task_id = :id::uuid AND w.key = :key::text
        AND w.event NOT IN (SELECT jsonb_array_elements_text(:events::jsonb))
)
UPDATE {schema}.tasklib_steps AS s
SET ask = :ask::jsonb,
    until = coalesce(:now::timestamptz, now()) + make_interval(secs => :seconds::double precision)
WHERE s.task_id = :id::uuid AND s.key = :key::text AND s.state = 'open'
RETURNING s.key;

-- name: prefer_asked
-- Let messages come to the steps that workflows wait on rather than to those of the same events that the code does not ask
-- for any more.  What those have taken is delivered again.
WITH given AS MATERIALIZED (
    SELECT b.id, b.keys, b.unasked FROM jsonb_to_recordset(:batch::jsonb) AS b (id uuid, keys jsonb, unasked jsonb)
),
asked AS MATERIALIZED (
    SELECT g.id, g.unasked, w.event FROM given AS g JOIN {schema}.tasklib_waits AS w ON w.task_id = g.id AND g.keys ? w.key
),
left_open AS (
    DELETE FROM {schema}.tasklib_waits AS w USING asked AS a
    WHERE w.task_id = a.id AND w.event = a.event AND a.unasked ? w.key
),
taken AS MATERIALIZED (
    SELECT e.id, e.task_id, e.taken_by FROM asked AS a
    JOIN {schema}.tasklib_events AS e ON e.task_id = a.id AND e.name = a.event AND a.unasked ? e.taken_by
),
returned AS (
    UPDATE {schema}.tasklib_events AS e SET taken_by = NULL, delivered_at = NULL FROM taken AS t WHERE e.id = t.id
)
DELETE FROM {schema}.tasklib_steps AS s USING taken AS t WHERE s.task_id = t.task_id AND s.key = t.taken_by;

-- name: renew_patience
-- Give an open step that was opened again, and so has no moment, as many seconds as it had.
UPDATE {schema}.tasklib_steps AS s SET until = coalesce(:now::timestamptz, now()) + make_interval(secs => :seconds::double precision)
WHERE s.task_id = :id::uuid AND s.key = :key::text AND s.state = 'open' AND s.until IS NULL;

-- name: forget_steps
-- Forget what workflows have recorded, and what they wait for.
WITH waits AS (
    DELETE FROM {schema}.tasklib_waits AS w
    WHERE w.task_id = ANY (ARRAY(SELECT jsonb_array_elements_text(:ids::jsonb)::uuid))
)
DELETE FROM {schema}.tasklib_steps AS s
WHERE s.task_id = ANY (ARRAY(SELECT jsonb_array_elements_text(:ids::jsonb)::uuid));

-- name: return_messages
-- Let messages that tasks have taken come to them again; all of them, or those of the steps given.
UPDATE {schema}.tasklib_events AS e SET taken_by = NULL
WHERE e.task_id = ANY (ARRAY(SELECT jsonb_array_elements_text(:ids::jsonb)::uuid)) AND e.taken_by IS NOT NULL
    AND (:keys::jsonb IS NULL OR e.taken_by = ANY (ARRAY(SELECT jsonb_array_elements_text(:keys::jsonb))));

-- name: drop_steps
-- Forget a step of a workflow and those that came after it; says which.
WITH gone AS (
    DELETE FROM {schema}.tasklib_steps AS s WHERE s.task_id = :id::uuid AND s.number >= :number::integer
    RETURNING s.key, s.undo
),
waits AS (
    DELETE FROM {schema}.tasklib_waits AS w WHERE w.task_id = :id::uuid AND w.key IN (SELECT g.key FROM gone AS g)
)
SELECT g.key, g.undo IS NOT NULL AS has_undo FROM gone AS g;

-- name: find_skipped
-- Which of these tasks never got what they wait for in their flow, and what was skipped after any of them, however far.
WITH RECURSIVE given AS (SELECT jsonb_array_elements_text(:ids::jsonb)::uuid AS id),
skipped AS (
    SELECT t.id FROM {schema}.tasks AS t WHERE t.id = ANY (ARRAY(SELECT i.id FROM given AS i))
        AND ({was_skipped} OR {never_released})
    UNION
    SELECT t.id FROM given AS f CROSS JOIN LATERAL {skipped_after} AS t
),
following AS (
    SELECT s.id FROM skipped AS s
    UNION
    SELECT t.id FROM following AS f CROSS JOIN LATERAL {skipped_after} AS t
)
SELECT f.id FROM following AS f;

-- fragment: skipped_after
-- Looked up one by one: no plan, however old the statistics, can then read the whole table.
(
        SELECT n.id
        FROM (SELECT e.group_id FROM {schema}.tasklib_edges AS e WHERE e.task_id = f.id OFFSET 0) AS e
        CROSS JOIN LATERAL (SELECT g.task_id FROM {schema}.tasklib_groups AS g WHERE g.id = e.group_id LIMIT 1) AS g
        CROSS JOIN LATERAL (
            SELECT t.id FROM {schema}.tasks AS t WHERE t.id = g.task_id AND {was_skipped} LIMIT 1
        ) AS n
    )

-- fragment: was_skipped
t.state = 'cancelled' AND t.error LIKE 'Skipped: %'

-- fragment: never_released
-- Cancelled, by a person or with its workflow, while it waited for what is before it.
(t.state = 'cancelled' AND t.started_at IS NULL AND t.marks IS NOT NULL AND EXISTS (
        SELECT FROM {schema}.tasklib_groups AS w WHERE w.task_id = t.id AND w.kind = 'after'
    ))

-- name: wait_again
-- Let skipped tasks wait again for what is before them; each is looked at by the next fold.
WITH groups AS (
    UPDATE {schema}.tasklib_groups AS g SET fired_at = NULL
    WHERE g.task_id = ANY (ARRAY(SELECT jsonb_array_elements_text(:ids::jsonb)::uuid)) AND g.kind = 'after'
    RETURNING g.id
),
looked AS (INSERT INTO {schema}.tasklib_tallies (group_id) SELECT g.id FROM groups AS g)
UPDATE {schema}.tasks AS t
SET state = 'pending', completed_at = NULL, error = NULL, fingerprint = NULL, cancel_requested_at = NULL, finished_by = NULL,
    waits_for = left('prerequisites ' || (
        SELECT coalesce(string_agg(DISTINCT p.name, ', '), 'a task') FROM {schema}.tasklib_groups AS g
        JOIN {schema}.tasklib_edges AS e ON e.group_id = g.id JOIN {schema}.tasks AS p ON p.id = e.task_id
        WHERE g.task_id = t.id AND g.kind = 'after'
    ), 200),
    updated_at = coalesce(:now::timestamptz, now())
WHERE t.id = ANY (ARRAY(SELECT jsonb_array_elements_text(:ids::jsonb)::uuid)) AND ({was_skipped} OR {never_released})
RETURNING t.id, t.marks;

-- name: look_at_undos
-- Whether a workflow has undos, whether they were submitted, and whether some of those tasks live.
SELECT w.marks & 2 > 0 AS bound, g.id IS NOT NULL AS begun, {undo_lives} AS living
FROM {schema}.tasks AS w LEFT JOIN {schema}.tasklib_groups AS g ON g.task_id = w.id AND g.kind = 'undo'
WHERE w.id = :id::uuid;

-- name: find_undone
-- Which of these workflows were undone, with no undo task that lives.
SELECT g.task_id AS id FROM {schema}.tasklib_groups AS g
WHERE g.task_id = ANY (ARRAY(SELECT jsonb_array_elements_text(:ids::jsonb)::uuid)) AND g.kind = 'undo'
    AND NOT {undo_lives};

-- fragment: undo_lives
-- With LIMIT, so that no plan reads the whole table.
((
        SELECT t.seq FROM {schema}.tasks AS t WHERE {of_group} AND t.completed_at IS NULL ORDER BY t.id LIMIT 1
    ) IS NOT NULL)

-- fragment: of_group
-- Ids of members count up from their group's (core/member_ids.py): they are a range of the primary key, which a claim
-- leaves as it is, where an entry in an index of members would be made again by each.
t.id BETWEEN (left(g.id::text, 30) || '000000')::uuid AND (left(g.id::text, 30) || 'ffffff')::uuid AND t.group_id = g.id

-- name: restart_tasks
-- Let tasks that were just released continue as new, with other arguments; one that was cancelled stays so.
UPDATE {schema}.tasks AS t
SET kwargs = coalesce(b.kwargs, 'null'), attempts = 0, retry_count = 0, lost_count = 0, error = NULL, fingerprint = NULL,
    marks = nullif(t.marks & ~22, 0)
FROM jsonb_to_recordset(:batch::jsonb) AS b (id uuid, version bigint, kwargs jsonb)
WHERE t.id = ANY (ARRAY(SELECT e.id FROM jsonb_to_recordset(:batch::jsonb) AS e (id uuid)))
    AND t.id = b.id AND t.version = b.version AND t.state = 'pending'
RETURNING t.id;

-- name: lock_groups_of
-- Lock the groups of workflows in the order of their ids.
SELECT g.id FROM {schema}.tasklib_groups AS g
WHERE g.task_id = ANY (ARRAY(SELECT jsonb_array_elements_text(:ids::jsonb)::uuid))
ORDER BY g.id
FOR NO KEY UPDATE;

-- name: leave_groups
-- Wait for no children of these workflows any more, or only not for those of the steps given: groups that have ended are forgotten, what lives of others is to be
-- cancelled first.
WITH gone AS (
    DELETE FROM {schema}.tasklib_groups AS g
    WHERE g.task_id = ANY (ARRAY(SELECT jsonb_array_elements_text(:ids::jsonb)::uuid)) AND g.kind <> 'after'
        AND g.sealed AND g.ended >= g.total
        AND (:keys::jsonb IS NULL OR g.key = ANY (ARRAY(SELECT jsonb_array_elements_text(:keys::jsonb))))
)
UPDATE {schema}.tasklib_groups AS g
SET kind = 'left', sealed = true, fired_at = coalesce(g.fired_at, :now::timestamptz, now()),
    stopped_at = coalesce(g.stopped_at, :now::timestamptz, now()), cleared_at = NULL
WHERE g.task_id = ANY (ARRAY(SELECT jsonb_array_elements_text(:ids::jsonb)::uuid)) AND g.kind <> 'after'
    AND NOT (g.sealed AND g.ended >= g.total)
    AND (:keys::jsonb IS NULL OR g.key = ANY (ARRAY(SELECT jsonb_array_elements_text(:keys::jsonb))));

-- name: lock_tasks
-- Lock tasks in the order of their ids, so that what follows in the transaction sees what others have done to them.
SELECT t.id FROM {schema}.tasks AS t
WHERE t.id = ANY (ARRAY(SELECT jsonb_array_elements_text(:ids::jsonb)::uuid))
ORDER BY t.id
FOR NO KEY UPDATE;

-- name: wake_parked
-- Let tasks run again that wait for other code than this.
UPDATE {schema}.tasks AS t
SET waits_for = NULL, next_retry_at = NULL, updated_at = coalesce(:now::timestamptz, now())
FROM jsonb_to_recordset(:batch::jsonb) AS b (name text, code text)
WHERE t.name = b.name AND t.waits_for LIKE 'code %' AND t.waits_for <> 'code ' || b.code
RETURNING t.seq;

-- name: list_parked
-- Tasks that wait for other code, by name, among the first that wait without an end.
SELECT w.name, count(*) AS count, min(w.updated_at) AS since, (array_agg(w.id ORDER BY w.updated_at))[1] AS example
FROM (
    SELECT t.id, t.name, t.waits_for, t.updated_at FROM {schema}.tasks AS t
    WHERE t.waits_for IS NOT NULL AND t.due_at IS NULL
    ORDER BY t.name, t.seq
    LIMIT :limit::integer
) AS w
WHERE w.waits_for LIKE 'code %'
GROUP BY w.name
ORDER BY w.name;

-- name: note_step
-- Keep what was odd about a step when it was found.
UPDATE {schema}.tasklib_steps AS s SET note = :note::text WHERE s.task_id = :id::uuid AND s.key = :key::text;

-- name: open_waits
-- Note which events an open step waits for.
INSERT INTO {schema}.tasklib_waits (event, task_id, key)
SELECT e.name, :id::uuid, :key::text FROM jsonb_array_elements_text(:events::jsonb) AS e (name)
ON CONFLICT DO NOTHING;

-- name: lock_attempt
-- Lock the task of an attempt; no row means that the attempt is not the current one.
SELECT t.id FROM {schema}.tasks AS t
WHERE t.id = :id::uuid AND t.version = :version::bigint AND t.state = 'running'
FOR NO KEY UPDATE;

-- name: get_step
-- One step, with the seconds that are left until its moment.
SELECT s.key, s.number, s.kind, s.state, s.value::text AS value, s.error::text AS error, s.ask::text AS ask,
    extract(epoch FROM s.until - coalesce(:now::timestamptz, now()))::float8 AS left, {its_events} AS events
FROM {schema}.tasklib_steps AS s WHERE s.task_id = :id::uuid AND s.key = :key::text;

-- name: find_questions
-- The question of a task under this key; else those to which its function gave it, of whatever name.
SELECT s.key, s.state, s.value::text AS value, s.note, s.ask::text AS ask FROM {schema}.tasklib_steps AS s
WHERE s.task_id = :id::uuid AND s.kind = 'ask' AND (
    s.key = :key::text
    OR (
        substr(s.key, length(s.key) - length(:key::text)) = ':' || :key::text
        AND NOT EXISTS (
            SELECT FROM {schema}.tasklib_steps AS e WHERE e.task_id = :id::uuid AND e.kind = 'ask' AND e.key = :key::text
        )
    )
);

-- name: find_event
-- The event that a step of a task gets: the oldest message that nobody took, else a fact.
SELECT e.id, e.name, e.payload::text AS payload, e.task_id IS NOT NULL AS is_message
FROM {schema}.tasklib_events AS e
WHERE e.name = ANY (ARRAY(SELECT jsonb_array_elements_text(:events::jsonb)))
    AND (e.task_id IS NULL OR e.task_id = :id::uuid AND e.taken_by IS NULL)
ORDER BY e.task_id IS NULL, e.id
LIMIT 1;

-- name: fill_steps
-- End open steps with a value or an error; those that are open no more stay as they are.
WITH filled AS (
    UPDATE {schema}.tasklib_steps AS s
    SET state = :state::text, value = :value::jsonb, error = :error::jsonb, note = coalesce(:note::text, s.note),
        ended_at = coalesce(:now::timestamptz, now())
    FROM jsonb_to_recordset(:batch::jsonb) AS b (id uuid, key text)
    WHERE s.task_id = b.id AND s.key = b.key AND s.state = 'open'
    RETURNING s.task_id, s.key
),
gone AS (
    DELETE FROM {schema}.tasklib_waits AS w USING jsonb_to_recordset(:batch::jsonb) AS b (id uuid, key text)
    WHERE w.task_id = b.id AND w.key = b.key
)
SELECT f.task_id, f.key FROM filled AS f;

-- name: take_message
-- Note which step took a message.
UPDATE {schema}.tasklib_events AS e
SET taken_by = :key::text, delivered_at = coalesce(e.delivered_at, :now::timestamptz, now())
WHERE e.id = :event_id::bigint;

-- name: wake_tasks
-- Let suspended tasks run again because something they wait for has come, and notify workers of them as notify_woken does;
-- those that wait for other code stay.
WITH woken AS (
    UPDATE {schema}.tasks AS t
    SET waits_for = NULL, next_retry_at = NULL, retry_count = 0, updated_at = coalesce(:now::timestamptz, now())
    WHERE t.id = ANY (ARRAY(SELECT jsonb_array_elements_text(:ids::jsonb)::uuid))
        AND t.waits_for IS NOT NULL AND t.waits_for NOT LIKE 'code%'
    RETURNING t.seq
),
pages AS (
    SELECT string_agg(p.seq::text, ',') AS seqs
    FROM (SELECT w.seq, (row_number() OVER (ORDER BY w.seq) - 1) / :page::integer AS page FROM woken AS w) AS p
    GROUP BY p.page
)
SELECT count(pg_notify('{channel}', 'woken:' || p.seqs)::text) AS notified FROM pages AS p;

-- name: notify_woken
-- Notify every worker that listens which tasks have been woken: one in the middle of its claims would not come by them.
SELECT pg_notify('{channel}', 'woken:' || :seqs::text)::text AS notified;

-- name: insert_event
-- Store an event; no row if a fact of this name is known already, or this very event.
INSERT INTO {schema}.tasklib_events (name, task_id, payload, sender, token, created_at)
VALUES (:name::text, :task_id::uuid, :payload::jsonb, :sender::text, :token::uuid, coalesce(:now::timestamptz, now()))
ON CONFLICT DO NOTHING
RETURNING id;

-- name: find_own_event
-- The event that an earlier try of the same call has stored.
SELECT e.id FROM {schema}.tasklib_events AS e WHERE e.token = :token::uuid;

-- name: withdraw_event
-- Forget a fact; who had it keeps it.
DELETE FROM {schema}.tasklib_events AS e WHERE e.task_id IS NULL AND e.name = :name::text RETURNING e.id;

-- name: find_new_events
-- Events that were not delivered yet, the oldest first.
SELECT e.id FROM {schema}.tasklib_events AS e WHERE e.delivered_at IS NULL ORDER BY e.id LIMIT :limit::integer;

-- name: get_event
-- One event.
SELECT e.name, e.task_id, e.payload::text AS payload, e.taken_by FROM {schema}.tasklib_events AS e WHERE e.id = :id::bigint;

-- name: find_waits
-- Open steps that wait for an event, in the order of their tasks; of one task only, if given.
SELECT w.task_id, w.key
FROM {schema}.tasklib_waits AS w
WHERE w.event = :name::text AND (:task_id::uuid IS NULL OR w.task_id = :task_id::uuid)
ORDER BY w.task_id, w.key
LIMIT :limit::integer;

-- name: mark_delivered
-- Note that everybody who waited for an event has it.  The commit need not wait for the disk: after a crash of the server
-- the event is there as before, and is delivered again.
UPDATE {schema}.tasklib_events AS e SET delivered_at = coalesce(:now::timestamptz, now()) WHERE e.id = :id::bigint
RETURNING set_config('synchronous_commit', 'off', true) AS commits;

-- name: list_questions
-- Open questions to people, the oldest first.
SELECT s.task_id, s.key, s.ask::text AS ask, s.started_at, s.until, t.name
FROM {schema}.tasklib_steps AS s JOIN {schema}.tasks AS t ON t.id = s.task_id
WHERE s.kind = 'ask' AND s.state = 'open' AND t.waits_for IS NOT NULL
ORDER BY s.started_at, s.task_id, s.key
LIMIT :limit::integer;

-- name: insert_members
-- Store children of a group in the order given; one that is stored already is left out of the answer.
INSERT INTO {schema}.tasks (
    {new_columns}, group_id, marks, waits_for
)
SELECT
    {new_values}, :group_id::uuid, coalesce(n.marks, 1), n.waits_for
FROM
    (SELECT coalesce(:now::timestamptz, now()) AS now) AS c,
    jsonb_to_recordset(:batch::jsonb) AS n (
        {new_fields},
        marks smallint, waits_for text
    )
ON CONFLICT DO NOTHING
RETURNING id, created_at;

-- name: insert_group
-- Store a group of children, and note that its workflow has some; nothing happens, and no row is given, if it is there.
WITH marked AS (
    UPDATE {schema}.tasks AS t SET marks = t.marks | 16 WHERE t.id = :task_id::uuid AND t.marks & 16 = 0
)
INSERT INTO {schema}.tasklib_groups (id, task_id, key, kind, total, sealed, max_failures)
VALUES (:id::uuid, :task_id::uuid, :key::text, :kind::text, :total::bigint, :sealed::boolean, :max_failures::bigint)
ON CONFLICT (id) DO NOTHING
RETURNING id;

-- name: lock_groups
-- Lock groups that nobody else works on, in the order of their ids.  The commit of what follows need not wait for the disk:
-- after a crash of the server the tallies are there as before, and are added up again.
SELECT g.id, set_config('synchronous_commit', 'off', true) AS commits FROM {schema}.tasklib_groups AS g
WHERE g.id = ANY (ARRAY(SELECT jsonb_array_elements_text(:ids::jsonb)::uuid))
ORDER BY g.id
FOR NO KEY UPDATE SKIP LOCKED;

-- name: lock_group
-- Lock one group, and say how far it is.
SELECT g.id, g.task_id, g.key, g.kind, g.total, g.sealed, g.ended, g.failed, g.cancelled, g.max_failures, g.fired_at,
    g.stopped_at, g.run_if, g.last_digest
FROM {schema}.tasklib_groups AS g WHERE g.id = :id::uuid
FOR NO KEY UPDATE;

-- name: lock_with_members
-- Lock a group, and what those of its members wait for that were skipped or cancelled, in the order of their ids.
SELECT g.id FROM {schema}.tasklib_groups AS g
WHERE g.id = :id::uuid OR g.id = ANY (ARRAY(
    SELECT a.id
    FROM (
        SELECT t.id FROM (SELECT :id::uuid AS id) AS g CROSS JOIN {schema}.tasks AS t
        WHERE {of_group} AND t.state = 'cancelled' OFFSET 0
    ) AS m
    CROSS JOIN LATERAL (SELECT o.id FROM {schema}.tasklib_groups AS o WHERE o.task_id = m.id) AS a
))
ORDER BY g.id
FOR NO KEY UPDATE;

-- name: grow_group
-- Note how many children a group has, of which inputs, and whether more will come.
UPDATE {schema}.tasklib_groups AS g
SET total = :total::bigint, sealed = :sealed::boolean, last_digest = :last_digest::text
WHERE g.id = :id::uuid;

-- name: fold_tallies
-- Add up what has happened to the members of groups that are locked; says how far each is.  A group whose workflow was
-- deleted has said it all, and its members are to be looked at; so are those that were waited for then, and end now.
WITH gone AS (
    DELETE FROM {schema}.tasklib_tallies AS t
    WHERE t.group_id = ANY (ARRAY(SELECT jsonb_array_elements_text(:ids::jsonb)::uuid))
    RETURNING t.group_id, t.task_id, t.ended, t.failed, t.cancelled
),
sums AS (
    SELECT g.id, coalesce(sum(t.ended), 0) AS ended, coalesce(sum(t.failed), 0) AS failed,
        coalesce(sum(t.cancelled), 0) AS cancelled, coalesce(bool_or(t.task_id IS NOT NULL), false) AS orphaned
    FROM jsonb_array_elements_text(:ids::jsonb) AS i (id) JOIN {schema}.tasklib_groups AS g ON g.id = i.id::uuid
    LEFT JOIN gone AS t ON t.group_id = g.id
    GROUP BY g.id
)
UPDATE {schema}.tasklib_groups AS g
SET ended = g.ended + s.ended, failed = g.failed + s.failed, cancelled = g.cancelled + s.cancelled,
    kind = CASE WHEN s.orphaned AND g.kind <> 'undo' THEN 'gone' ELSE g.kind END, sealed = g.sealed OR s.orphaned,
    fired_at = CASE WHEN s.orphaned THEN coalesce(g.fired_at, :now::timestamptz, now()) ELSE g.fired_at END,
    stopped_at = CASE WHEN s.orphaned THEN coalesce(g.stopped_at, :now::timestamptz, now()) ELSE g.stopped_at END,
    cleared_at = CASE WHEN NOT s.orphaned AND g.kind <> 'gone' THEN g.cleared_at END
FROM sums AS s WHERE g.id = s.id
RETURNING g.id, g.task_id, g.key, g.kind, g.total, g.sealed, g.ended, g.failed, g.cancelled, g.max_failures, g.fired_at,
    g.stopped_at, g.run_if;

-- name: mark_groups
-- Note that groups have notified their workflows, and which of them are to be stopped; or that they are to do so again.
UPDATE {schema}.tasklib_groups AS g
SET fired_at = CASE WHEN b.fired THEN coalesce(:now::timestamptz, now()) END,
    stopped_at = CASE WHEN b.stopped THEN coalesce(g.stopped_at, :now::timestamptz, now()) END,
    cleared_at = CASE WHEN b.stopped THEN g.cleared_at END
FROM jsonb_to_recordset(:batch::jsonb) AS b (id uuid, fired boolean, stopped boolean)
WHERE g.id = b.id;

-- name: empty_group
-- Count nothing of a group whose members are gone, and follow nobody for it.
WITH gone AS (DELETE FROM {schema}.tasklib_tallies AS t WHERE t.group_id = :id::uuid),
edges AS (DELETE FROM {schema}.tasklib_edges AS e WHERE e.group_id = :id::uuid)
UPDATE {schema}.tasklib_groups AS g SET ended = 0, failed = 0, cancelled = 0 WHERE g.id = :id::uuid;

-- name: lock_following
-- Let one workflow at a time follow another task, to the end of its transaction.
SELECT pg_advisory_xact_lock(hashtextextended('{channel} following', 0))::text AS locked;

-- name: lock_holder
-- Lock a workflow and the task that it would follow, in the order of their ids; says which keys they hold now.
SELECT t.id, t.live_key FROM {schema}.tasks AS t
WHERE t.id = ANY (ARRAY(SELECT jsonb_array_elements_text(:ids::jsonb)::uuid))
ORDER BY t.id
FOR NO KEY UPDATE;

-- name: find_circle
-- Whether a task waits for another, however far: its children, what it follows, what is before it in a flow.
-- Asked from the other end, because few wait for one task, and one may wait for a million.
WITH RECURSIVE waiting AS (
    SELECT :id::uuid AS id
    UNION
    SELECT n.task_id
    FROM waiting AS w
    CROSS JOIN LATERAL (
        SELECT m.group_id FROM {schema}.tasks AS m WHERE m.id = w.id AND m.group_id IS NOT NULL
        UNION ALL
        SELECT e.group_id FROM {schema}.tasklib_edges AS e WHERE e.task_id = w.id
    ) AS b
    CROSS JOIN LATERAL (
        SELECT g.task_id, g.key, g.kind FROM {schema}.tasklib_groups AS g WHERE g.id = b.group_id AND g.fired_at IS NULL LIMIT 1
    ) AS n
    WHERE n.kind = 'after' OR EXISTS (
        SELECT FROM {schema}.tasklib_steps AS s WHERE s.task_id = n.task_id AND s.key = n.key AND s.state = 'open'
    )
)
SELECT w.id FROM waiting AS w WHERE w.id = :holder::uuid;

-- name: follow_task
-- Let the end of a task that is locked count for a group, though it is no member of it.
WITH marked AS (
    UPDATE {schema}.tasks AS t SET marks = coalesce(t.marks, 0) | 32
    WHERE t.id = :id::uuid AND coalesce(t.marks, 0) & 32 = 0
)
INSERT INTO {schema}.tasklib_edges (task_id, group_id, number) VALUES (:id::uuid, :group_id::uuid, 0)
ON CONFLICT DO NOTHING;

-- name: find_followed
-- The task that a workflow follows for a group without members, with what became of it.
SELECT t.id, t.name, t.state, t.result::text AS result, t.error, t.kwargs::text AS kwargs, t.attempts, t.max_retries,
    t.completed_at IS NULL AS lives
FROM {schema}.tasklib_edges AS e CROSS JOIN LATERAL (
    SELECT x.id, x.name, x.state, x.result, x.error, x.kwargs, x.attempts, x.max_retries, x.completed_at
    FROM {schema}.tasks AS x WHERE x.id = e.task_id LIMIT 1
) AS t
WHERE e.group_id = :id::uuid;

-- name: find_tallied
-- Groups with something to add up.
SELECT DISTINCT t.group_id AS id FROM {schema}.tasklib_tallies AS t WHERE t.group_id IS NOT NULL LIMIT :limit::integer;

-- name: stop_groups_of
-- Stop the groups of workflows that have ended without success, and were not retried since.
WITH ended AS (DELETE FROM {schema}.tasklib_tallies AS t WHERE t.group_id IS NULL RETURNING t.task_id),
groups AS (
    SELECT g.id FROM {schema}.tasklib_groups AS g
    WHERE g.task_id IN (SELECT e.task_id FROM ended AS e) AND g.stopped_at IS NULL AND g.kind IN ('run', 'map', 'flow')
        AND NOT EXISTS (SELECT FROM {schema}.tasks AS o WHERE o.id = g.task_id AND o.completed_at IS NULL)
    ORDER BY g.id
    FOR NO KEY UPDATE
)
UPDATE {schema}.tasklib_groups AS g SET stopped_at = coalesce(:now::timestamptz, now())
FROM groups AS s WHERE g.id = s.id
RETURNING g.id;

-- name: find_stopped
-- Groups whose members are still to be cancelled, or removed.
SELECT g.id, g.kind FROM {schema}.tasklib_groups AS g
WHERE g.stopped_at IS NOT NULL AND g.cleared_at IS NULL LIMIT :limit::integer;

-- name: find_members
-- The next members of a group in the order of the inputs, with what became of them.
SELECT t.id, t.name, t.state, t.result::text AS result, t.error, t.kwargs::text AS kwargs, t.attempts, t.max_retries,
    t.completed_at IS NULL AS lives
FROM (SELECT :id::uuid AS id) AS g CROSS JOIN {schema}.tasks AS t
WHERE {of_group} AND t.id > :after::uuid
ORDER BY t.id
LIMIT :limit::integer;

-- name: find_failed_member
-- The first member of a group that did not succeed, other than by being skipped.
SELECT t.id, t.name, t.state, t.result::text AS result, t.error, t.kwargs::text AS kwargs, t.attempts, t.max_retries
FROM (SELECT :id::uuid AS id) AS g CROSS JOIN {schema}.tasks AS t
WHERE {of_group}
    AND (t.state IN ('failed', 'buried') OR t.state = 'cancelled' AND coalesce(t.error, '') NOT LIKE 'Skipped: %')
ORDER BY t.id
LIMIT 1;

-- name: clear_group
-- Note that all members of a stopped group were cancelled; a group that nobody has any more is forgotten.  One whose kind
-- has changed meanwhile is to be looked at again.
WITH gone AS (DELETE FROM {schema}.tasklib_groups AS g WHERE g.id = :id::uuid AND g.kind = :kind::text AND g.kind = 'left')
UPDATE {schema}.tasklib_groups AS g SET cleared_at = coalesce(:now::timestamptz, now())
WHERE g.id = :id::uuid AND g.kind = :kind::text AND g.kind <> 'left';

-- name: look_at_members
-- Whether some members of a group live, and whether some have ended.
SELECT
    EXISTS (SELECT FROM {schema}.tasks AS t WHERE {of_group} AND t.completed_at IS NULL) AS lives,
    EXISTS (SELECT FROM {schema}.tasks AS t WHERE {of_group} AND t.completed_at IS NOT NULL) AS ended
FROM (SELECT :id::uuid AS id) AS g;

-- name: drop_group
-- Forget a group, and what was before its task.
WITH edges AS (DELETE FROM {schema}.tasklib_edges AS e WHERE e.group_id = :id::uuid)
DELETE FROM {schema}.tasklib_groups AS g WHERE g.id = :id::uuid;

-- name: count_children
-- How many children the groups have that a workflow waits for.
SELECT coalesce(sum(g.total), 0)::bigint AS total, coalesce(sum(g.ended), 0)::bigint AS ended,
    coalesce(sum(g.failed), 0)::bigint AS failed, coalesce(sum(g.cancelled), 0)::bigint AS cancelled
FROM {schema}.tasklib_groups AS g WHERE g.task_id = :id::uuid AND g.fired_at IS NULL;

-- name: insert_after_groups
-- Store what is before tasks of a flow: one group for each task, and an edge from each that is before it.
WITH made AS (
    INSERT INTO {schema}.tasklib_groups (id, task_id, key, kind, total, sealed, run_if)
    SELECT b.id, b.task_id, '', 'after', b.total, true, b.run_if
    FROM jsonb_to_recordset(:groups::jsonb) AS b (id uuid, task_id uuid, total bigint, run_if text)
    ON CONFLICT DO NOTHING
)
INSERT INTO {schema}.tasklib_edges (task_id, group_id, param, number)
SELECT e.task_id, e.group_id, e.param, e.number
FROM jsonb_to_recordset(:edges::jsonb) AS e (task_id uuid, group_id uuid, param text, number integer)
ON CONFLICT DO NOTHING;

-- name: find_arguments
-- The results that become arguments of a task, and what did not succeed before it.
SELECT e.param, coalesce(t.name, 'a task') AS name, coalesce(t.state, 'deleted') AS state, t.result::text AS result
FROM {schema}.tasklib_edges AS e LEFT JOIN {schema}.tasks AS t ON t.id = e.task_id
WHERE e.group_id = :id::uuid
ORDER BY e.number;

-- name: get_kwargs
-- The arguments of a task.
SELECT t.kwargs::text AS kwargs FROM {schema}.tasks AS t WHERE t.id = :id::uuid;

-- name: release_task
-- Let a task of a flow run: what is before it has ended as it must.
UPDATE {schema}.tasks AS t
SET kwargs = coalesce(:kwargs::jsonb, t.kwargs), waits_for = NULL, updated_at = coalesce(:now::timestamptz, now())
WHERE t.id = :id::uuid AND t.waits_for LIKE 'prerequisites%'
RETURNING t.id;

-- name: skip_task
-- Cancel a task of a flow: what is before it has ended otherwise.
WITH skipped AS (
    UPDATE {schema}.tasks AS t
    SET state = 'cancelled', completed_at = coalesce(:now::timestamptz, now()), waits_for = NULL, error = :error::text,
        updated_at = coalesce(:now::timestamptz, now())
    WHERE t.id = :id::uuid AND t.waits_for LIKE 'prerequisites%'
    RETURNING t.id, t.watched
)
SELECT s.id, CASE WHEN s.watched THEN pg_notify('{channel}', 'done:' || s.id)::text END AS notified FROM skipped AS s;

-- name: drop_orphan_tallies
-- Forget what has happened to members of groups that are gone with their workflows.
DELETE FROM {schema}.tasklib_tallies AS t
WHERE t.group_id = ANY (ARRAY(SELECT jsonb_array_elements_text(:ids::jsonb)::uuid))
    AND NOT EXISTS (SELECT FROM {schema}.tasklib_groups AS g WHERE g.id = t.group_id);

-- name: list_groups
-- The groups of children of a workflow.
SELECT g.id, g.key, g.kind, g.total, g.sealed, g.ended, g.failed, g.cancelled, g.max_failures
FROM {schema}.tasklib_groups AS g WHERE g.task_id = :id::uuid AND g.kind NOT IN ('after', 'left', 'gone') ORDER BY g.key, g.id;

-- name: find_parent
-- The workflow whose child a task is; no row if it is none's.
SELECT p.id, p.name, p.state
FROM {schema}.tasks AS t
JOIN {schema}.tasklib_groups AS g ON g.id = t.group_id
JOIN {schema}.tasks AS p ON p.id = g.task_id
WHERE t.id = :id::uuid AND g.kind <> 'after';

-- name: list_before
-- The tasks that are before a task in its flow.
SELECT t.id, t.name, t.state, e.param
FROM {schema}.tasklib_groups AS g
JOIN {schema}.tasklib_edges AS e ON e.group_id = g.id
JOIN {schema}.tasks AS t ON t.id = e.task_id
WHERE g.task_id = :id::uuid AND g.kind = 'after'
ORDER BY e.number;
