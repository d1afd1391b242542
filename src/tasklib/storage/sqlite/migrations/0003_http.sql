-- What the HTTP service keeps: tokens, the audit log, and the answers of requests that may be sent again.
-- min_compatible: 1

CREATE TABLE tasklib_tokens (
    id           TEXT NOT NULL PRIMARY KEY,
    name         TEXT NOT NULL,
    role         TEXT NOT NULL CHECK (role IN ('producer', 'worker', 'viewer', 'operator', 'admin')),
    -- SHA-256 of the secret, in hexadecimal; the secret itself is nowhere.
    hash         TEXT NOT NULL UNIQUE,
    begins       TEXT NOT NULL,
    created_at   TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now')),
    expires_at   TEXT,
    last_used_at TEXT,
    revoked_at   TEXT
);

-- Written once, never changed.
CREATE TABLE tasklib_audit (
    seq        INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    at         TEXT    NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now')),
    actor      TEXT    NOT NULL,
    role       TEXT    NOT NULL,
    action     TEXT    NOT NULL,
    target     TEXT,
    detail     TEXT    NOT NULL DEFAULT '{}' CHECK (json_valid(detail)),
    remote     TEXT,
    request_id TEXT
);

CREATE TABLE tasklib_idempotency (
    key         TEXT NOT NULL PRIMARY KEY,
    -- SHA-256 of the request: the same key with another request is an error.
    fingerprint TEXT NOT NULL,
    answer      TEXT CHECK (answer IS NULL OR json_valid(answer)),
    created_at  TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now'))
) WITHOUT ROWID;
CREATE INDEX tasklib_idempotency_age ON tasklib_idempotency (created_at);
