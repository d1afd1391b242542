-- fragment: audit_entries
INSERT INTO tasklib_audit (at, actor, role, action, target, detail, remote, request_id)
SELECT
    :now, e.value ->> 'actor', e.value ->> 'role', e.value ->> 'action', e.value ->> 'target', e.value -> 'detail',
    e.value ->> 'remote', e.value ->> 'request_id'
FROM json_each(:entries) AS e

-- name: write_audit
-- Add entries to the audit log.
{audit_entries};

-- name: list_audit
-- Entries of the audit log, the newest first, from before a position on; without the first one of long work that has
-- another at its end, which is looked for among the next hundred thousand.
SELECT a.seq, a.at, a.actor, a.role, a.action, a.target, a.detail, a.remote, a.request_id
FROM tasklib_audit AS a
WHERE (:before IS NULL OR a.seq < :before) AND (a.detail ->> 'begun' IS NULL OR NOT EXISTS (
    SELECT 1 FROM tasklib_audit AS e
    WHERE e.seq > a.seq AND e.seq <= a.seq + 100000 AND e.request_id = a.request_id AND e.action = a.action
))
ORDER BY a.seq DESC
LIMIT :limit;
