-- fragment: audit_entries
INSERT INTO {schema}.tasklib_audit (at, actor, role, action, target, detail, remote, request_id)
SELECT coalesce(:now::timestamptz, now()), e.actor, e.role, e.action, e.target, e.detail, e.remote, e.request_id
FROM jsonb_to_recordset(:entries::jsonb) AS e (
    actor text, role text, action text, target text, detail jsonb, remote text, request_id text
)

-- name: write_audit
-- Add entries to the audit log.
{audit_entries};

-- name: list_audit
-- Entries of the audit log, the newest first, from before a position on; without the first one of long work that has
-- another at its end, which is looked for among the next hundred thousand.
SELECT a.seq, a.at, a.actor, a.role, a.action, a.target, a.detail::text AS detail, a.remote, a.request_id
FROM {schema}.tasklib_audit AS a
WHERE (:before::bigint IS NULL OR a.seq < :before::bigint) AND (a.detail ->> 'begun' IS NULL OR NOT EXISTS (
    SELECT FROM {schema}.tasklib_audit AS e
    WHERE e.seq > a.seq AND e.seq <= a.seq + 100000 AND e.request_id = a.request_id AND e.action = a.action
))
ORDER BY a.seq DESC
LIMIT :limit::integer;
