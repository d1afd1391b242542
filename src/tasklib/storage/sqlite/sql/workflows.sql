-- name: load_steps
-- Everything a task has recorded, with the seconds that are left until each step's moment.
SELECT s.key, s.number, s.kind, s.state, s.version, s.digest, s.value, s.error, s.tries,
    (julianday(s.until) - julianday(:now)) * 86400.0 AS left, s.note, s.started_at, s.ended_at, s.until,
    s.ask, s.undo IS NOT NULL AS has_undo, s.undo ->> 'name' AS undo,
    CASE WHEN s.kind = 'wait' AND s.state = 'open' THEN {its_events} END AS events
FROM tasklib_steps AS s
WHERE s.task_id = :id
ORDER BY s.number, s.key;

-- name: record_steps
-- Record steps of running attempts; one of an attempt that is not the current one changes nothing and is left out of the
-- answer.  What is done stays as it is, unless the same attempt writes it again; one that somebody has
-- filled is never opened again.
-- A step that is done starts the task's retries anew.
UPDATE tasks
SET marks = coalesce(marks, 0) | 4 | iif({binds_undo}, 2, 0),
    retry_count = CASE WHEN id IN (
        SELECT b.value ->> 'task_id' FROM json_each(:batch) AS b WHERE b.value ->> 'state' = 'done'
    ) THEN 0 ELSE retry_count END
WHERE id IN (SELECT b.value ->> 'task_id' FROM json_each(:batch) AS b)
    AND version IN (SELECT b.value ->> 'version' FROM json_each(:batch) AS b)
    AND state = 'running' AND (coalesce(marks, 0) & 4 = 0 OR retry_count > 0 OR marks & 2 = 0 AND {binds_undo});
INSERT INTO tasklib_steps (
    task_id, key, number, kind, state, version, digest, value, error, until, tries, note, ask, undo, started_at, ended_at
)
SELECT b.value ->> 'task_id', b.value ->> 'key', b.value ->> 'number', b.value ->> 'kind', b.value ->> 'state',
    b.value ->> 'version', b.value ->> 'digest', b.value -> 'value', nullif(b.value -> 'error', 'null'),
    CASE WHEN b.value ->> 'until_in' IS NOT NULL
        THEN strftime('%Y-%m-%d %H:%M:%f000', :now, printf('%+.3f seconds', b.value ->> 'until_in')) END,
    b.value ->> 'tries', b.value ->> 'note', nullif(b.value -> 'ask', 'null'), nullif(b.value -> 'undo', 'null'),
    strftime('%Y-%m-%d %H:%M:%f000', :now, printf('%+.3f seconds', -(b.value ->> 'started_ago'))),
    CASE WHEN b.value ->> 'ended' THEN :now END
FROM json_each(:batch) AS b CROSS JOIN tasks AS t ON t.id = b.value ->> 'task_id'
WHERE t.version = b.value ->> 'version' AND t.state = 'running'
ON CONFLICT (task_id, key) DO UPDATE
SET state = excluded.state, version = excluded.version, digest = excluded.digest, value = excluded.value,
    error = excluded.error, until = excluded.until, tries = excluded.tries, note = excluded.note,
    ended_at = excluded.ended_at, undo = coalesce(undo, excluded.undo)
WHERE (state <> 'done' OR version = excluded.version) AND (excluded.state <> 'open' OR state = 'open')
RETURNING task_id, key;

-- fragment: binds_undo
(id IN (SELECT u.value ->> 'task_id' FROM json_each(:batch) AS u WHERE u.value ->> 'undo' IS NOT NULL))

-- name: reopen_steps
-- Let steps that failed run again: of each task the one named, or all.  A wait that was given up begins anew.
DELETE FROM tasklib_steps
WHERE state = 'failed' AND kind IN ('wait', 'ask') AND EXISTS (
    SELECT 1 FROM json_each(:batch) AS b
    WHERE tasklib_steps.task_id = b.value ->> 'id' AND (b.value ->> 'key' IS NULL OR tasklib_steps.key = b.value ->> 'key')
);
UPDATE tasklib_steps
SET state = 'open', tries = 0, until = NULL, ended_at = NULL
FROM json_each(:batch) AS b
WHERE task_id = b.value ->> 'id' AND state = 'failed' AND (b.value ->> 'key' IS NULL OR tasklib_steps.key = b.value ->> 'key');

-- fragment: its_events
(SELECT json_group_array(w.event) FROM tasklib_waits AS w WHERE w.task_id = s.task_id AND w.key = s.key)

-- name: renew_wait
-- Let an open step wait for something else from now on.
DELETE FROM tasklib_waits
WHERE task_id = :id AND key = :key AND event NOT IN (SELECT e.value FROM json_each(:events) AS e);
UPDATE tasklib_steps
SET ask = :ask,
    until = CASE WHEN :seconds IS NOT NULL THEN strftime('%Y-%m-%d %H:%M:%f000', :now, printf('%+.3f seconds', :seconds)) END
WHERE task_id = :id AND key = :key AND state = 'open'
RETURNING key;

-- name: prefer_asked
-- Let messages come to the steps that workflows wait on rather than to those of the same events that the code does not ask
-- for any more.  What those have taken is delivered again.
DELETE FROM tasklib_waits
WHERE (task_id, event, key) IN (SELECT a.id, a.event, a.unasked FROM ({asked}) AS a);
DELETE FROM tasklib_steps
WHERE (task_id, key) IN (
    SELECT a.id, a.unasked FROM ({asked}) AS a
    JOIN tasklib_events AS e ON e.task_id = a.id AND e.name = a.event AND e.taken_by = a.unasked
);
UPDATE tasklib_events SET taken_by = NULL, delivered_at = NULL
WHERE task_id IN (SELECT b.value ->> 'id' FROM json_each(:batch) AS b)
    AND (task_id, name, taken_by) IN (SELECT a.id, a.event, a.unasked FROM ({asked}) AS a);

-- fragment: asked
SELECT w.task_id AS id, w.event, u.value AS unasked
    FROM json_each(:batch) AS g
    CROSS JOIN tasklib_waits AS w ON w.task_id = g.value ->> 'id'
        AND w.key IN (SELECT k.value FROM json_each(g.value -> 'keys') AS k)
    CROSS JOIN json_each(g.value -> 'unasked') AS u

-- name: renew_patience
-- Give an open step that was opened again, and so has no moment, as many seconds as it had.
UPDATE tasklib_steps SET until = strftime('%Y-%m-%d %H:%M:%f000', :now, printf('%+.3f seconds', :seconds))
WHERE task_id = :id AND key = :key AND state = 'open' AND until IS NULL;

-- name: forget_steps
-- Forget what workflows have recorded, and what they wait for.
DELETE FROM tasklib_waits WHERE task_id IN (SELECT i.value FROM json_each(:ids) AS i);
DELETE FROM tasklib_steps WHERE task_id IN (SELECT i.value FROM json_each(:ids) AS i);

-- name: return_messages
-- Let messages that tasks have taken come to them again; all of them, or those of the steps given.
UPDATE tasklib_events SET taken_by = NULL
WHERE task_id IN (SELECT i.value FROM json_each(:ids) AS i) AND taken_by IS NOT NULL
    AND (:keys IS NULL OR taken_by IN (SELECT k.value FROM json_each(:keys) AS k));

-- name: drop_steps
-- Forget a step of a workflow and those that came after it; says which.  What RETURNING calls NULL, SQLite 3.40 gets wrong.
DELETE FROM tasklib_waits
WHERE task_id = :id AND key IN (SELECT s.key FROM tasklib_steps AS s WHERE s.task_id = :id AND s.number >= :number);
DELETE FROM tasklib_steps WHERE task_id = :id AND number >= :number
RETURNING key, coalesce(undo, '') <> '' AS has_undo;

-- name: find_skipped
-- Which of these tasks never got what they wait for in their flow, and what was skipped after any of them, however far.
WITH RECURSIVE following (id) AS (
    SELECT t.id FROM json_each(:ids) AS i CROSS JOIN tasks AS t ON t.id = i.value WHERE {was_skipped} OR {never_released}
    UNION
    SELECT t.id
    FROM json_each(:ids) AS i CROSS JOIN tasklib_edges AS e ON e.task_id = i.value
    CROSS JOIN tasklib_groups AS g ON g.id = e.group_id CROSS JOIN tasks AS t ON t.id = g.task_id
    WHERE {was_skipped}
    UNION
    SELECT t.id
    FROM following AS f CROSS JOIN tasklib_edges AS e ON e.task_id = f.id
    CROSS JOIN tasklib_groups AS g ON g.id = e.group_id CROSS JOIN tasks AS t ON t.id = g.task_id
    WHERE {was_skipped}
)
SELECT f.id FROM following AS f;

-- fragment: was_skipped
t.state = 'cancelled' AND t.error LIKE 'Skipped: %'

-- fragment: never_released
-- Cancelled, by a person or with its workflow, while it waited for what is before it.
(t.state = 'cancelled' AND t.started_at IS NULL AND t.marks IS NOT NULL AND EXISTS (
        SELECT 1 FROM tasklib_groups AS w WHERE w.task_id = t.id AND w.kind = 'after'
    ))

-- name: wait_again
-- Let skipped tasks wait again for what is before them; each is looked at by the next fold.
INSERT INTO tasklib_tallies (group_id)
SELECT g.id FROM tasklib_groups AS g WHERE g.task_id IN (SELECT i.value FROM json_each(:ids) AS i) AND g.kind = 'after';
UPDATE tasklib_groups SET fired_at = NULL
WHERE task_id IN (SELECT i.value FROM json_each(:ids) AS i) AND kind = 'after';
UPDATE tasks AS t
SET state = 'pending', completed_at = NULL, error = NULL, fingerprint = NULL, cancel_requested_at = NULL, finished_by = NULL,
    waits_for = substr('prerequisites ' || (
        SELECT coalesce(group_concat(n.name, ', '), 'a task') FROM (
            SELECT DISTINCT p.name FROM tasklib_groups AS g CROSS JOIN tasklib_edges AS e ON e.group_id = g.id
            CROSS JOIN tasks AS p ON p.id = e.task_id
            WHERE g.task_id = t.id AND g.kind = 'after'
        ) AS n
    ), 1, 200),
    updated_at = :now
WHERE t.id IN (SELECT i.value FROM json_each(:ids) AS i) AND ({was_skipped} OR {never_released})
RETURNING id, marks;

-- name: look_at_undos
-- Whether a workflow has undos, whether they were submitted, and whether some of those tasks live.
SELECT w.marks & 2 > 0 AS bound, g.id IS NOT NULL AS begun, EXISTS (
        SELECT 1 FROM tasks AS t WHERE {of_group} AND t.completed_at IS NULL
    ) AS living
FROM tasks AS w LEFT JOIN tasklib_groups AS g ON g.task_id = w.id AND g.kind = 'undo'
WHERE w.id = :id;

-- name: find_undone
-- Which of these workflows were undone, with no undo task that lives.
SELECT g.task_id AS id FROM tasklib_groups AS g
WHERE g.task_id IN (SELECT i.value FROM json_each(:ids) AS i) AND g.kind = 'undo'
    AND NOT EXISTS (SELECT 1 FROM tasks AS t WHERE {of_group} AND t.completed_at IS NULL);

-- fragment: of_group
-- Ids of members count up from their group's (core/member_ids.py): they are a range of the index of ids, which a claim
-- leaves as it is, where an entry in an index of members would be made again by each.
t.id BETWEEN substr(g.id, 1, 30) || '000000' AND substr(g.id, 1, 30) || 'ffffff' AND t.group_id = g.id

-- name: restart_tasks
-- Let tasks that were just released continue as new, with other arguments; one that was cancelled stays so.
UPDATE tasks
SET kwargs = b.value -> 'kwargs', attempts = 0, retry_count = 0, lost_count = 0, error = NULL, fingerprint = NULL,
    marks = nullif(marks & ~22, 0)
FROM json_each(:batch) AS b
WHERE tasks.id = b.value ->> 'id' AND tasks.version = b.value ->> 'version' AND tasks.state = 'pending'
RETURNING tasks.id;

-- name: lock_groups_of
-- Differs by necessity: whoever writes has the whole file.
SELECT g.id FROM tasklib_groups AS g WHERE false AND g.task_id IN (SELECT i.value FROM json_each(:ids) AS i);

-- name: leave_groups
-- Wait for no children of these workflows any more, or only not for those of the steps given: groups that have ended are forgotten, what lives of others is to be
-- cancelled first.
DELETE FROM tasklib_groups
WHERE task_id IN (SELECT i.value FROM json_each(:ids) AS i) AND kind <> 'after' AND sealed AND ended >= total
    AND (:keys IS NULL OR key IN (SELECT k.value FROM json_each(:keys) AS k));
UPDATE tasklib_groups
SET kind = 'left', sealed = 1, fired_at = coalesce(fired_at, :now), stopped_at = coalesce(stopped_at, :now), cleared_at = NULL
WHERE task_id IN (SELECT i.value FROM json_each(:ids) AS i) AND kind <> 'after'
    AND (:keys IS NULL OR key IN (SELECT k.value FROM json_each(:keys) AS k));

-- name: lock_tasks
-- Differs by necessity: whoever writes has the whole file, and sees everything that was done before.
SELECT t.id FROM tasks AS t WHERE false AND t.id IN (SELECT i.value FROM json_each(:ids) AS i);

-- name: wake_parked
-- Let tasks run again that wait for other code than this.
UPDATE tasks
SET waits_for = NULL, next_retry_at = NULL, updated_at = :now
FROM json_each(:batch) AS b
WHERE tasks.name = b.value ->> 'name' AND tasks.waits_for LIKE 'code %' AND tasks.waits_for <> 'code ' || (b.value ->> 'code')
RETURNING tasks.seq;

-- name: list_parked
-- Tasks that wait for other code, by name, among the first that wait without an end.
-- With min() the bare column id is of the row that has it: the one parked first.
SELECT w.name, count(*) AS count, min(w.updated_at) AS since, w.id AS example
FROM (
    SELECT t.id, t.name, t.waits_for, t.updated_at FROM tasks AS t
    WHERE t.waits_for IS NOT NULL AND t.due_at IS NULL
    ORDER BY t.name, t.seq
    LIMIT :limit
) AS w
WHERE w.waits_for LIKE 'code %'
GROUP BY w.name
ORDER BY w.name;

-- name: note_step
-- Keep what was odd about a step when it was found.
UPDATE tasklib_steps SET note = :note WHERE task_id = :id AND key = :key;

-- name: open_waits
-- Note which events an open step waits for.
INSERT INTO tasklib_waits (event, task_id, key)
SELECT e.value, :id, :key FROM json_each(:events) AS e WHERE true
ON CONFLICT DO NOTHING;

-- name: lock_attempt
-- Differs by necessity: whoever writes has the whole file.  No row means that the attempt is not the current one.
SELECT t.id FROM tasks AS t WHERE t.id = :id AND t.version = :version AND t.state = 'running';

-- name: get_step
-- One step, with the seconds that are left until its moment.
SELECT s.key, s.number, s.kind, s.state, s.value, s.error, s.ask,
    (julianday(s.until) - julianday(:now)) * 86400.0 AS left, {its_events} AS events
FROM tasklib_steps AS s WHERE s.task_id = :id AND s.key = :key;

-- name: find_questions
-- The question of a task under this key; else those to which its function gave it, of whatever name.
SELECT s.key, s.state, s.value, s.note, s.ask FROM tasklib_steps AS s
WHERE s.task_id = :id AND s.kind = 'ask' AND (
    s.key = :key
    OR (
        substr(s.key, length(s.key) - length(:key)) = ':' || :key
        AND NOT EXISTS (SELECT 1 FROM tasklib_steps AS e WHERE e.task_id = :id AND e.kind = 'ask' AND e.key = :key)
    )
);

-- name: find_event
-- The event that a step of a task gets: the oldest message that nobody took, else a fact.
SELECT e.id, e.name, e.payload, e.task_id IS NOT NULL AS is_message
FROM tasklib_events AS e
WHERE e.name IN (SELECT n.value FROM json_each(:events) AS n)
    AND (e.task_id IS NULL OR e.task_id = :id AND e.taken_by IS NULL)
ORDER BY e.task_id IS NULL, e.id
LIMIT 1;

-- name: fill_steps
-- End open steps with a value or an error; those that are open no more stay as they are.
DELETE FROM tasklib_waits
WHERE EXISTS (
    SELECT 1 FROM json_each(:batch) AS b
    WHERE tasklib_waits.task_id = b.value ->> 'id' AND tasklib_waits.key = b.value ->> 'key'
);
UPDATE tasklib_steps
SET state = :state, value = :value, error = :error, note = coalesce(:note, note), ended_at = :now
FROM json_each(:batch) AS b
WHERE tasklib_steps.task_id = b.value ->> 'id' AND tasklib_steps.key = b.value ->> 'key' AND tasklib_steps.state = 'open'
RETURNING tasklib_steps.task_id, tasklib_steps.key;

-- name: take_message
-- Note which step took a message.
UPDATE tasklib_events SET taken_by = :key, delivered_at = coalesce(delivered_at, :now) WHERE id = :event_id;

-- name: wake_tasks
-- Let suspended tasks run again because something they wait for has come; those that wait for other code stay.
-- Differs by necessity: see notify_woken.
UPDATE tasks
SET waits_for = NULL, next_retry_at = NULL, retry_count = 0, updated_at = :now
WHERE id IN (SELECT i.value FROM json_each(:ids) AS i) AND waits_for IS NOT NULL AND waits_for NOT LIKE 'code%'
    AND :page > 0;

-- name: notify_woken
-- Differs by necessity: idle workers see by themselves that the file has changed, and every claim looks at everything.
SELECT :seqs AS notified WHERE false;

-- name: insert_event
-- Store an event; no row if a fact of this name is known already, or this very event.
INSERT INTO tasklib_events (name, task_id, payload, sender, token, created_at)
VALUES (:name, :task_id, :payload, :sender, :token, :now)
ON CONFLICT DO NOTHING
RETURNING id;

-- name: find_own_event
-- The event that an earlier try of the same call has stored.
SELECT e.id FROM tasklib_events AS e WHERE e.token = :token;

-- name: withdraw_event
-- Forget a fact; who had it keeps it.
DELETE FROM tasklib_events WHERE task_id IS NULL AND name = :name RETURNING id;

-- name: find_new_events
-- Events that were not delivered yet, the oldest first.
SELECT e.id FROM tasklib_events AS e WHERE e.delivered_at IS NULL ORDER BY e.id LIMIT :limit;

-- name: get_event
-- One event.
SELECT e.name, e.task_id, e.payload, e.taken_by FROM tasklib_events AS e WHERE e.id = :id;

-- name: find_waits
-- Open steps that wait for an event, in the order of their tasks; of one task only, if given.
SELECT w.task_id, w.key
FROM tasklib_waits AS w
WHERE w.event = :name AND (:task_id IS NULL OR w.task_id = :task_id)
ORDER BY w.task_id, w.key
LIMIT :limit;

-- name: mark_delivered
-- Note that everybody who waited for an event has it.
UPDATE tasklib_events SET delivered_at = :now WHERE id = :id;

-- name: list_questions
-- Open questions to people, the oldest first.
SELECT s.task_id, s.key, s.ask, s.started_at, s.until, t.name
FROM tasklib_steps AS s INDEXED BY tasklib_steps_questions CROSS JOIN tasks AS t ON t.id = s.task_id
WHERE s.kind = 'ask' AND s.state = 'open' AND t.waits_for IS NOT NULL
ORDER BY s.started_at, s.task_id, s.key
LIMIT :limit;

-- name: insert_members
-- Store children of a group in the order given; one that is stored already is left out of the answer.
INSERT INTO tasks (
    {new_columns}, group_id, marks, waits_for
)
SELECT
    {new_values}, :group_id, coalesce(n.value ->> 'marks', 1), n.value ->> 'waits_for'
FROM json_each(:batch) AS n
WHERE true
ON CONFLICT DO NOTHING
RETURNING id, created_at;

-- name: insert_group
-- Store a group of children, and note that its workflow has some; nothing happens, and no row is given, if it is there.
UPDATE tasks SET marks = marks | 16 WHERE id = :task_id AND marks & 16 = 0;
INSERT INTO tasklib_groups (id, task_id, key, kind, total, sealed, max_failures)
VALUES (:id, :task_id, :key, :kind, :total, :sealed, :max_failures)
ON CONFLICT (id) DO NOTHING
RETURNING id;

-- name: lock_groups
-- Differs by necessity: whoever writes has the whole file.
SELECT g.id FROM tasklib_groups AS g WHERE g.id IN (SELECT i.value FROM json_each(:ids) AS i) ORDER BY g.id;

-- name: lock_group
-- Differs by necessity: whoever writes has the whole file.
SELECT g.id, g.task_id, g.key, g.kind, g.total, g.sealed, g.ended, g.failed, g.cancelled, g.max_failures, g.fired_at,
    g.stopped_at, g.run_if, g.last_digest
FROM tasklib_groups AS g WHERE g.id = :id;

-- name: lock_with_members
-- Differs by necessity: whoever writes has the whole file.
SELECT g.id FROM tasklib_groups AS g WHERE g.id = :id;

-- name: grow_group
-- Note how many children a group has, of which inputs, and whether more will come.
UPDATE tasklib_groups SET total = :total, sealed = :sealed, last_digest = :last_digest WHERE id = :id;

-- name: fold_tallies
-- Add up what has happened to the members of groups that are locked; says how far each is.  A group whose workflow was
-- deleted has said it all, and its members are to be looked at; so are those that were waited for then, and end now.
UPDATE tasklib_groups
SET ended = tasklib_groups.ended + s.ended, failed = tasklib_groups.failed + s.failed,
    cancelled = tasklib_groups.cancelled + s.cancelled,
    kind = iif(s.orphaned AND kind <> 'undo', 'gone', kind), sealed = sealed OR s.orphaned,
    fired_at = iif(s.orphaned, coalesce(fired_at, :now), fired_at),
    stopped_at = iif(s.orphaned, coalesce(stopped_at, :now), stopped_at),
    cleared_at = iif(s.orphaned OR kind = 'gone', NULL, cleared_at)
FROM (
    SELECT t.group_id, sum(t.ended) AS ended, sum(t.failed) AS failed, sum(t.cancelled) AS cancelled,
        max(t.task_id IS NOT NULL) AS orphaned
    FROM tasklib_tallies AS t WHERE t.group_id IN (SELECT i.value FROM json_each(:ids) AS i)
    GROUP BY t.group_id
) AS s
WHERE id = s.group_id;
DELETE FROM tasklib_tallies WHERE group_id IN (SELECT i.value FROM json_each(:ids) AS i);
SELECT g.id, g.task_id, g.key, g.kind, g.total, g.sealed, g.ended, g.failed, g.cancelled, g.max_failures, g.fired_at,
    g.stopped_at, g.run_if
FROM tasklib_groups AS g WHERE g.id IN (SELECT i.value FROM json_each(:ids) AS i);

-- name: mark_groups
-- Note that groups have notified their workflows, and which of them are to be stopped; or that they are to do so again.
UPDATE tasklib_groups
SET fired_at = CASE WHEN b.value ->> 'fired' THEN :now END,
    stopped_at = CASE WHEN b.value ->> 'stopped' THEN coalesce(stopped_at, :now) END,
    cleared_at = CASE WHEN b.value ->> 'stopped' THEN cleared_at END
FROM json_each(:batch) AS b
WHERE tasklib_groups.id = b.value ->> 'id';

-- name: empty_group
-- Count nothing of a group whose members are gone, and follow nobody for it.
DELETE FROM tasklib_tallies WHERE group_id = :id;
DELETE FROM tasklib_edges WHERE group_id = :id;
UPDATE tasklib_groups SET ended = 0, failed = 0, cancelled = 0 WHERE id = :id;

-- name: lock_following
-- Differs by necessity: whoever writes has the whole file.
SELECT 1 AS locked;

-- name: lock_holder
-- Differs by necessity: whoever writes has the whole file.
SELECT t.id, t.live_key FROM tasks AS t WHERE t.id IN (SELECT i.value FROM json_each(:ids) AS i) ORDER BY t.id;

-- name: find_circle
-- Whether a task waits for another, however far: its children, what it follows, what is before it in a flow.
-- Asked from the other end, because few wait for one task, and one may wait for a million.
WITH RECURSIVE waiting AS (
    SELECT :id AS id
    UNION
    SELECT g.task_id
    FROM waiting AS w
    JOIN tasklib_groups AS g ON g.fired_at IS NULL AND g.id IN (
        SELECT m.group_id FROM tasks AS m WHERE m.id = w.id AND m.group_id IS NOT NULL
        UNION ALL
        SELECT e.group_id FROM tasklib_edges AS e WHERE e.task_id = w.id
    )
    WHERE g.kind = 'after' OR EXISTS (
        SELECT 1 FROM tasklib_steps AS s WHERE s.task_id = g.task_id AND s.key = g.key AND s.state = 'open'
    )
)
SELECT w.id FROM waiting AS w WHERE w.id = :holder;

-- name: follow_task
-- Let the end of a task that is locked count for a group, though it is no member of it.
UPDATE tasks SET marks = coalesce(marks, 0) | 32 WHERE id = :id AND coalesce(marks, 0) & 32 = 0;
INSERT INTO tasklib_edges (task_id, group_id, number) VALUES (:id, :group_id, 0)
ON CONFLICT DO NOTHING;

-- name: find_followed
-- The task that a workflow follows for a group without members, with what became of it.
SELECT t.id, t.name, t.state, t.result, t.error, t.kwargs, t.attempts, t.max_retries, t.completed_at IS NULL AS lives
FROM tasklib_edges AS e JOIN tasks AS t ON t.id = e.task_id
WHERE e.group_id = :id;

-- name: find_tallied
-- Groups with something to add up.
SELECT DISTINCT t.group_id AS id FROM tasklib_tallies AS t WHERE t.group_id IS NOT NULL LIMIT :limit;

-- name: stop_groups_of
-- Stop the groups of workflows that have ended without success, and were not retried since.
UPDATE tasklib_groups SET stopped_at = :now
WHERE stopped_at IS NULL AND kind IN ('run', 'map', 'flow')
    AND task_id IN (SELECT t.task_id FROM tasklib_tallies AS t WHERE t.group_id IS NULL)
    AND NOT EXISTS (SELECT 1 FROM tasks AS o WHERE o.id = tasklib_groups.task_id AND o.completed_at IS NULL);
DELETE FROM tasklib_tallies WHERE group_id IS NULL;

-- name: find_stopped
-- Groups whose members are still to be cancelled, or removed.
SELECT g.id, g.kind FROM tasklib_groups AS g WHERE g.stopped_at IS NOT NULL AND g.cleared_at IS NULL LIMIT :limit;

-- name: find_members
-- The next members of a group in the order of the inputs, with what became of them.
SELECT t.id, t.name, t.state, t.result, t.error, t.kwargs, t.attempts, t.max_retries, t.completed_at IS NULL AS lives
FROM tasks AS t
WHERE t.id > max(:after, substr(:id, 1, 30)) AND t.id <= substr(:id, 1, 30) || 'ffffff' AND t.group_id = :id
ORDER BY t.id
LIMIT :limit;

-- name: find_failed_member
-- The first member of a group that did not succeed, other than by being skipped.
SELECT t.id, t.name, t.state, t.result, t.error, t.kwargs, t.attempts, t.max_retries
FROM (SELECT :id AS id) AS g CROSS JOIN tasks AS t
WHERE {of_group}
    AND (t.state IN ('failed', 'buried') OR t.state = 'cancelled' AND coalesce(t.error, '') NOT LIKE 'Skipped: %')
ORDER BY t.id
LIMIT 1;

-- name: clear_group
-- Note that all members of a stopped group were cancelled; a group that nobody has any more is forgotten.
DELETE FROM tasklib_groups WHERE id = :id AND kind = :kind AND kind = 'left';
UPDATE tasklib_groups SET cleared_at = :now WHERE id = :id AND kind = :kind;

-- name: look_at_members
-- Whether some members of a group live, and whether some have ended.
SELECT
    EXISTS (SELECT 1 FROM tasks AS t WHERE {of_group} AND t.completed_at IS NULL) AS lives,
    EXISTS (SELECT 1 FROM tasks AS t WHERE {of_group} AND t.completed_at IS NOT NULL) AS ended
FROM (SELECT :id AS id) AS g;

-- name: drop_group
-- Forget a group, and what was before its task.
DELETE FROM tasklib_edges WHERE group_id = :id;
DELETE FROM tasklib_groups WHERE id = :id;

-- name: count_children
-- How many children the groups have that a workflow waits for.
SELECT coalesce(sum(g.total), 0) AS total, coalesce(sum(g.ended), 0) AS ended, coalesce(sum(g.failed), 0) AS failed,
    coalesce(sum(g.cancelled), 0) AS cancelled
FROM tasklib_groups AS g WHERE g.task_id = :id AND g.fired_at IS NULL;

-- name: insert_after_groups
-- Store what is before tasks of a flow: one group for each task, and an edge from each that is before it.
INSERT INTO tasklib_groups (id, task_id, key, kind, total, sealed, run_if)
SELECT b.value ->> 'id', b.value ->> 'task_id', '', 'after', b.value ->> 'total', 1, b.value ->> 'run_if'
FROM json_each(:groups) AS b WHERE true
ON CONFLICT DO NOTHING;
INSERT INTO tasklib_edges (task_id, group_id, param, number)
SELECT e.value ->> 'task_id', e.value ->> 'group_id', e.value ->> 'param', e.value ->> 'number'
FROM json_each(:edges) AS e WHERE true
ON CONFLICT DO NOTHING;

-- name: find_arguments
-- The results that become arguments of a task, and what did not succeed before it.
SELECT e.param, coalesce(t.name, 'a task') AS name, coalesce(t.state, 'deleted') AS state, t.result
FROM tasklib_edges AS e LEFT JOIN tasks AS t ON t.id = e.task_id
WHERE e.group_id = :id
ORDER BY e.number;

-- name: get_kwargs
-- The arguments of a task.
SELECT t.kwargs FROM tasks AS t WHERE t.id = :id;

-- name: release_task
-- Let a task of a flow run: what is before it has ended as it must.
UPDATE tasks SET kwargs = coalesce(:kwargs, kwargs), waits_for = NULL, updated_at = :now
WHERE id = :id AND waits_for LIKE 'prerequisites%'
RETURNING id;

-- name: skip_task
-- Cancel a task of a flow: what is before it has ended otherwise.
UPDATE tasks SET state = 'cancelled', completed_at = :now, waits_for = NULL, error = :error, updated_at = :now
WHERE id = :id AND waits_for LIKE 'prerequisites%'
RETURNING id;

-- name: drop_orphan_tallies
-- Forget what has happened to members of groups that are gone with their workflows.
DELETE FROM tasklib_tallies
WHERE group_id IN (SELECT i.value FROM json_each(:ids) AS i) AND group_id NOT IN (SELECT g.id FROM tasklib_groups AS g);

-- name: list_groups
-- The groups of children of a workflow.
SELECT g.id, g.key, g.kind, g.total, g.sealed, g.ended, g.failed, g.cancelled, g.max_failures
FROM tasklib_groups AS g WHERE g.task_id = :id AND g.kind NOT IN ('after', 'left', 'gone') ORDER BY g.key, g.id;

-- name: find_parent
-- The workflow whose child a task is; no row if it is none's.
SELECT p.id, p.name, p.state
FROM tasks AS t
CROSS JOIN tasklib_groups AS g ON g.id = t.group_id
CROSS JOIN tasks AS p ON p.id = g.task_id
WHERE t.id = :id AND g.kind <> 'after';

-- name: list_before
-- The tasks that are before a task in its flow.
SELECT t.id, t.name, t.state, e.param
FROM tasklib_groups AS g
CROSS JOIN tasklib_edges AS e ON e.group_id = g.id
CROSS JOIN tasks AS t ON t.id = e.task_id
WHERE g.task_id = :id AND g.kind = 'after'
ORDER BY e.number;
