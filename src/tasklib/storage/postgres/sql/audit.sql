-- name: write_audit
-- Add entries to the audit log.
INSERT INTO {schema}.tasklib_audit (at, actor, role, action, target, detail, remote, request_id)
SELECT coalesce(:now::timestamptz, now()), e.actor, e.role, e.action, e.target, e.detail, e.remote, e.request_id
FROM jsonb_to_recordset(:batch::jsonb) AS e (
    actor text, role text, action text, target text, detail jsonb, remote text, request_id text
);

-- name: list_audit
-- Entries of the audit log, the newest first, from before a position on.
SELECT a.seq, a.at, a.actor, a.role, a.action, a.target, a.detail::text AS detail, a.remote, a.request_id
FROM {schema}.tasklib_audit AS a
WHERE :before::bigint IS NULL OR a.seq < :before::bigint
ORDER BY a.seq DESC
LIMIT :limit::integer;

-- name: take_key
-- Take an idempotency key; no row means that it is taken already.
INSERT INTO {schema}.tasklib_idempotency (key, fingerprint, created_at)
SELECT :key::text, :fingerprint::text, coalesce(:now::timestamptz, now())
ON CONFLICT (key) DO NOTHING
RETURNING key;

-- name: get_key
-- What was answered under an idempotency key.
SELECT k.fingerprint, k.answer::text AS answer FROM {schema}.tasklib_idempotency AS k WHERE k.key = :key::text;

-- name: answer_key
-- Keep what was answered.
UPDATE {schema}.tasklib_idempotency AS k SET answer = :answer::jsonb WHERE k.key = :key::text;

-- name: forget_keys
-- Forget idempotency keys that nobody will send again.
DELETE FROM {schema}.tasklib_idempotency AS k
WHERE k.created_at < :before::timestamptz;
