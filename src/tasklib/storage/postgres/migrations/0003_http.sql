-- What the HTTP service keeps: tokens, the audit log, and the answers of requests that may be sent again.
-- min_compatible: 1

CREATE TABLE {schema}.tasklib_tokens (
    id           uuid        NOT NULL PRIMARY KEY,
    name         text        NOT NULL,
    role         text        NOT NULL CHECK (role IN ('producer', 'worker', 'viewer', 'operator', 'admin')),
    -- SHA-256 of the secret, in hexadecimal; the secret itself is nowhere.
    hash         text        COLLATE "C" NOT NULL UNIQUE,
    begins       text        NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT now(),
    expires_at   timestamptz,
    last_used_at timestamptz,
    revoked_at   timestamptz
);

-- Written once, never changed.
CREATE TABLE {schema}.tasklib_audit (
    seq        bigint      NOT NULL GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at         timestamptz NOT NULL DEFAULT now(),
    actor      text        NOT NULL,
    role       text        NOT NULL,
    action     text        NOT NULL,
    target     text,
    detail     jsonb       NOT NULL DEFAULT '{}',
    remote     text,
    request_id text
);

CREATE TABLE {schema}.tasklib_idempotency (
    key         text        COLLATE "C" NOT NULL PRIMARY KEY,
    -- SHA-256 of the request: the same key with another request is an error.
    fingerprint text        NOT NULL,
    answer      jsonb,
    created_at  timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX tasklib_idempotency_age ON {schema}.tasklib_idempotency (created_at);
