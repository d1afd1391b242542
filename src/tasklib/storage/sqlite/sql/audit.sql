-- name: write_audit
-- Add entries to the audit log.
INSERT INTO tasklib_audit (at, actor, role, action, target, detail, remote, request_id)
SELECT
    :now, e.value ->> 'actor', e.value ->> 'role', e.value ->> 'action', e.value ->> 'target', e.value -> 'detail',
    e.value ->> 'remote', e.value ->> 'request_id'
FROM json_each(:batch) AS e;

-- name: list_audit
-- Entries of the audit log, the newest first, from before a position on.
SELECT a.seq, a.at, a.actor, a.role, a.action, a.target, a.detail, a.remote, a.request_id
FROM tasklib_audit AS a
WHERE :before IS NULL OR a.seq < :before
ORDER BY a.seq DESC
LIMIT :limit;

-- name: take_key
-- Take an idempotency key; no row means that it is taken already.
INSERT INTO tasklib_idempotency (key, fingerprint, created_at)
VALUES (:key, :fingerprint, :now)
ON CONFLICT (key) DO NOTHING
RETURNING key;

-- name: get_key
-- What was answered under an idempotency key.
SELECT k.fingerprint, k.answer FROM tasklib_idempotency AS k WHERE k.key = :key;

-- name: answer_key
-- Keep what was answered.
UPDATE tasklib_idempotency SET answer = :answer WHERE key = :key;

-- name: forget_keys
-- Forget idempotency keys that nobody will send again.
DELETE FROM tasklib_idempotency
WHERE created_at < :before;
