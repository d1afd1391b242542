-- Every table of the queue, with its indexes and triggers: tasks and workers, limits, schedules, the HTTP service, statistics.
-- min_compatible: 1

-- One row per task and everything about it.  Every column has a default, so that
-- INSERT INTO tasks (name, kwargs) VALUES (...) is a complete submission from any language.
CREATE TABLE {schema}.tasks (
    id                  uuid        NOT NULL DEFAULT gen_random_uuid() PRIMARY KEY,
    -- Insertion order, given by the database alone: one number from far away would leave no room after it, and a gap
    -- that every walk through the table has to cross.  Ids are made by clients and order nothing.
    seq                 bigint      NOT NULL GENERATED ALWAYS AS IDENTITY,
    -- The fencing token of the last claim, of the sequence below: never given twice, also not when an id is used again.
    version             bigint      NOT NULL DEFAULT 0,
    -- Compared by bytes: cheaper, and the claim walks names in index order whatever the database's locale.
    name                text        COLLATE "C" NOT NULL,
    state               text        COLLATE "C" NOT NULL DEFAULT 'pending',
    scheduled_at        timestamptz NOT NULL DEFAULT now(),
    started_at          timestamptz,
    completed_at        timestamptz,
    created_at          timestamptz NOT NULL DEFAULT now(),
    updated_at          timestamptz NOT NULL DEFAULT now(),
    next_retry_at       timestamptz,
    locked_until        timestamptz,
    expires_at          timestamptz,
    cancel_requested_at timestamptz,
    timeout_seconds     double precision,
    progress            double precision,
    priority            integer     NOT NULL DEFAULT 0,
    attempts            integer     NOT NULL DEFAULT 0,
    retry_count         integer     NOT NULL DEFAULT 0,
    -- -1: whoever claims the task first decides, by its declaration or the settings, and writes the number here.
    max_retries         integer     NOT NULL DEFAULT -1,
    lost_count          integer     NOT NULL DEFAULT 0,
    -- Somebody waits for the end: whoever ends the task notifies.
    watched             boolean     NOT NULL DEFAULT false,
    args                jsonb       NOT NULL DEFAULT '{}',
    kwargs              jsonb       NOT NULL DEFAULT '{}',
    tags                jsonb       NOT NULL DEFAULT '{}',
    headers             jsonb,
    result              jsonb,
    history             jsonb,
    log                 jsonb,
    error               text,
    progress_message    text,
    worker_id           text,
    finished_by         text,
    unique_key          text,
    concurrency_key     text        COLLATE "C",
    -- What the last failure was, in few words: tasks that failed in the same way have the same.  Success leaves it alone.
    fingerprint         text        COLLATE "C",

    -- The generated columns are what indexes look at.  Finishing a task without a concurrency key changes none of them
    -- (the first is already NULL while it runs, the others stay NULL on the way to success), so a finish is a heap-only
    -- update: it touches no index at all.  No index may name state, completed_at, locked_until or worker_id, not even
    -- in its predicate, or that is lost.
    due_at timestamptz GENERATED ALWAYS AS (
        coalesce(next_retry_at, CASE WHEN state = 'pending' THEN scheduled_at END)
    ) STORED,
    live_key text GENERATED ALWAYS AS (CASE WHEN completed_at IS NULL THEN unique_key END) STORED,
    trouble text COLLATE "C" GENERATED ALWAYS AS (
        CASE WHEN state IN ('failed', 'cancelled', 'buried') THEN state END
    ) STORED,
    -- The key of which a running task holds a slot.
    slot_key text COLLATE "C" GENERATED ALWAYS AS (CASE WHEN state = 'running' THEN concurrency_key END) STORED,
    -- When a task failed for good.
    dead_at timestamptz GENERATED ALWAYS AS (CASE WHEN state IN ('failed', 'buried') THEN completed_at END) STORED,

    -- Short, as the expressions above are: before each statement that writes, PostgreSQL reads all of them from their
    -- stored text.  One says what another leaves open.
    CONSTRAINT tasks_name_given CHECK (name <> ''),
    CONSTRAINT tasks_state_known CHECK (state IN ('pending', 'running', 'completed', 'failed', 'cancelled', 'buried')),
    CONSTRAINT tasks_ended_when_terminal CHECK (
        (completed_at IS NULL) = (state IN ('pending', 'running') OR next_retry_at IS NOT NULL)
    ),
    CONSTRAINT tasks_retry_when_waiting CHECK (next_retry_at IS NULL OR state IN ('pending', 'failed')),
    CONSTRAINT tasks_leased_when_running CHECK (state <> 'running' OR locked_until IS NOT NULL),
    CONSTRAINT tasks_result_when_completed CHECK (result IS NULL OR state = 'completed'),
    -- What is added to must stay within its type: one row that does not would fail every claim that meets it.
    CONSTRAINT tasks_counters_sane CHECK (
        least(version, attempts, retry_count, lost_count) >= 0 AND max_retries >= -1
        AND greatest(attempts, lost_count) <= 2000000000
    ),
    CONSTRAINT tasks_timeout_positive CHECK (timeout_seconds > 0 AND timeout_seconds < 1e9),
    CONSTRAINT tasks_progress_fraction CHECK (progress BETWEEN 0 AND 1),
    -- Times that Python reads, in any time zone; and nothing can be counted from an infinite one.
    CONSTRAINT tasks_times_real CHECK (
        least(scheduled_at, created_at, updated_at, started_at, completed_at, next_retry_at, locked_until, expires_at,
            cancel_requested_at) >= '0001-01-02 00:00:00+00'
        AND greatest(scheduled_at, created_at, updated_at, started_at, completed_at, next_retry_at, locked_until,
            expires_at, cancel_requested_at) < '9999-12-31 00:00:00+00'
    ),
    -- Indexes hold them together, some only once the task fails or is retried, and take about 2,700 bytes.
    CONSTRAINT tasks_keys_short CHECK (
        octet_length(name) <= 1020 AND octet_length(unique_key) <= 1500 AND octet_length(concurrency_key) <= 1500
        AND octet_length(fingerprint) <= 1200
    ),
    CONSTRAINT tasks_json_objects CHECK (jsonb_typeof(tags) = 'object' AND jsonb_typeof(headers) = 'object')
) WITH (
    -- More than half a page stays free: the version a claim makes is larger than the first and must fit beside it, and
    -- that of the finish takes the place of the first.  With 50 an eighth of all finishes had to enter other pages.
    fillfactor = 40,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_insert_scale_factor = 0.05,
    autovacuum_analyze_scale_factor = 0.05,
    autovacuum_analyze_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0
);

-- Tasks with a concurrency key wait apart, key by key: however many a key holds back, no claim walks over them.
CREATE INDEX tasks_claim ON {schema}.tasks (name, priority DESC, due_at, seq)
    WHERE due_at IS NOT NULL AND concurrency_key IS NULL;
CREATE INDEX tasks_keyed ON {schema}.tasks (concurrency_key, name, priority DESC, due_at, seq)
    WHERE due_at IS NOT NULL AND concurrency_key IS NOT NULL;
CREATE INDEX tasks_slots ON {schema}.tasks (slot_key) WHERE slot_key IS NOT NULL;
CREATE UNIQUE INDEX tasks_seq ON {schema}.tasks (seq);
CREATE UNIQUE INDEX tasks_live_key ON {schema}.tasks (name, live_key) WHERE live_key IS NOT NULL;
-- With what counts by name and lists of one kind of failure need, so that they read this index alone.
CREATE INDEX tasks_trouble ON {schema}.tasks (trouble, seq) INCLUDE (name, due_at, fingerprint) WHERE trouble IS NOT NULL;
CREATE INDEX tasks_dead ON {schema}.tasks (name, fingerprint, dead_at) WHERE dead_at IS NOT NULL;

-- Where claims get their versions from.  Owned by no column: whoever empties the table does not start it again.
CREATE SEQUENCE {schema}.tasklib_versions;

-- Worker instances and their heartbeats.
CREATE TABLE {schema}.tasklib_workers (
    instance        uuid             NOT NULL PRIMARY KEY,
    worker_id       text             NOT NULL,
    host            text             NOT NULL,
    pid             integer          NOT NULL,
    started_at      timestamptz      NOT NULL DEFAULT now(),
    heartbeat_at    timestamptz      NOT NULL DEFAULT now(),
    -- After this long without a heartbeat the instance counts as dead.
    timeout_seconds double precision NOT NULL,
    concurrency     integer          NOT NULL,
    names           jsonb            NOT NULL DEFAULT '[]',
    info            jsonb            NOT NULL DEFAULT '{}',
    -- Who registered it over HTTP: nobody else may speak for it.  NULL for one that works on the database itself.
    owner           text             COLLATE "C"
) WITH (fillfactor = 50);

-- What each instance holds.  A claim replaces the row of its worker in the same statement, and so finds every task of a
-- dead worker without an index on anything a finish writes.  An entry that has ended since is stale and harmless:
-- a task counts as held only while it is running under the noted version.
CREATE TABLE {schema}.tasklib_claims (
    instance   uuid      NOT NULL PRIMARY KEY,
    seqs       bigint[]  NOT NULL DEFAULT '{}',
    versions   bigint[]  NOT NULL DEFAULT '{}',
    -- A claim names the generation it was sent in.  One whose answer was lost may reach us late: by then the instance
    -- has begun another, and the claim takes nothing.
    generation integer   NOT NULL DEFAULT 0
) WITH (fillfactor = 50, toast_tuple_target = 8160, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_cost_delay = 0);
-- To compress long lists at each claim would cost a sixth of it.
ALTER TABLE {schema}.tasklib_claims ALTER seqs SET STORAGE EXTERNAL, ALTER versions SET STORAGE EXTERNAL;

-- Instances on call: they wait for work and hear when there is some.  Those of one kind know the same names.
-- Unlogged: losing it in a crash costs one poll interval.
CREATE UNLOGGED TABLE {schema}.tasklib_idle (
    instance uuid        NOT NULL PRIMARY KEY,
    kind     text        COLLATE "C" NOT NULL,
    until    timestamptz NOT NULL
) WITH (autovacuum_vacuum_threshold = 200, autovacuum_vacuum_cost_delay = 0);

-- What people have switched: one row per task name, and one named '' for everything.
CREATE TABLE {schema}.tasklib_controls (
    name        text COLLATE "C" NOT NULL PRIMARY KEY,
    paused_at   timestamptz,
    paused_by   text,
    reason      text,
    -- Tasks that may start in a second; the bucket below holds one second's worth, and at least one.
    rate        double precision CHECK (rate > 0),
    tokens      double precision,
    refilled_at timestamptz,
    -- Tasks that may run at once.
    max_running integer CHECK (max_running > 0),
    -- Grows whenever a limited task is claimed: a claim that has not seen the claim before it counts nothing and gives way.
    version     integer NOT NULL DEFAULT 0
);

-- Call one waiting instance of each kind; one that is filled by what it finds calls the next.
CREATE FUNCTION {schema}.tasklib_call(schema_name text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('tasklib_' || left(md5(schema_name), 16), 'new:' || one.instance)
    FROM (
        SELECT DISTINCT ON (i.kind) i.instance FROM {schema}.tasklib_idle AS i WHERE i.until > now()
        ORDER BY i.kind, random()
    ) AS one;
END
$$;

-- A new task wakes an idle worker.  Committing a NOTIFY takes a lock that is shared by the whole database,
-- so it is sent only while some worker waits; a worker that is busy looks again by itself.
CREATE FUNCTION {schema}.tasklib_wake() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM {schema}.tasklib_idle WHERE until > now()) THEN
        PERFORM {schema}.tasklib_call(TG_TABLE_SCHEMA);
    END IF;
    RETURN NULL;
END
$$;

CREATE TRIGGER tasks_wake AFTER INSERT ON {schema}.tasks
    FOR EACH STATEMENT EXECUTE FUNCTION {schema}.tasklib_wake();

-- How many tasks of a concurrency key may run at once, and under the empty key of every other; 0 is unlimited.  With a
-- name those of this name alone.  A task stands under one limit: of its name if there is one, then of its key.
CREATE TABLE {schema}.tasklib_key_limits (
    name        text    COLLATE "C" NOT NULL DEFAULT '',
    key         text    COLLATE "C" NOT NULL,
    max_running integer NOT NULL CHECK (max_running >= 0),
    PRIMARY KEY (name, key)
);

-- Where a task with a concurrency key may be able to start: the keys that are worth a look, in the order of their
-- turns.  A hint is written by the transaction that made a task wait (under its name, for when it is due) or freed a
-- slot (under the empty name), so that none is lost; who looks at a key takes all its hints away, and leaves one behind
-- if another task could start.  Nobody waits for anybody: hints are only ever inserted and deleted.
CREATE TABLE {schema}.tasklib_hints (
    id       bigint      NOT NULL GENERATED ALWAYS AS IDENTITY,
    key      text        COLLATE "C" NOT NULL,
    name     text        COLLATE "C" NOT NULL,
    priority integer     NOT NULL,
    ready_at timestamptz NOT NULL
) WITH (autovacuum_vacuum_threshold = 500, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX tasklib_hints_turn ON {schema}.tasklib_hints (name, priority DESC, ready_at, id);
CREATE INDEX tasklib_hints_key ON {schema}.tasklib_hints (key);

-- It runs as the owner of the tables: who may store a task needs no right to read others', nor to write hints.
CREATE FUNCTION {schema}.tasklib_hint() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF TG_OP <> 'INSERT' THEN
        IF OLD.slot_key IS NOT NULL AND (TG_OP = 'DELETE' OR NEW.slot_key IS DISTINCT FROM OLD.slot_key) THEN
            INSERT INTO {schema}.tasklib_hints (key, name, priority, ready_at) VALUES (OLD.slot_key, '', 0, now());
        END IF;
    END IF;
    IF TG_OP <> 'DELETE' THEN
        -- One hint is enough for tasks of one transaction that wait for the same: they become visible together.
        IF NEW.concurrency_key IS NOT NULL AND NEW.due_at IS NOT NULL AND coalesce((
            SELECT t.xmin <> pg_current_xact_id()::xid
            FROM {schema}.tasks AS t
            WHERE t.concurrency_key = NEW.concurrency_key AND t.name = NEW.name AND t.priority = NEW.priority
                AND t.due_at = NEW.due_at AND t.seq < NEW.seq
            ORDER BY t.seq DESC LIMIT 1
        ), true) THEN
            INSERT INTO {schema}.tasklib_hints (key, name, priority, ready_at)
            VALUES (NEW.concurrency_key, NEW.name, NEW.priority, NEW.due_at);
        END IF;
    END IF;
    IF EXISTS (SELECT FROM {schema}.tasklib_idle WHERE until > now()) THEN
        PERFORM {schema}.tasklib_call(TG_TABLE_SCHEMA);
    END IF;
    RETURN NULL;
END
$$;

-- Nobody hangs it on a table of their own.
REVOKE EXECUTE ON FUNCTION {schema}.tasklib_hint() FROM PUBLIC;

-- The conditions spare tasks without a key the call.
CREATE TRIGGER tasks_hint_insert AFTER INSERT ON {schema}.tasks
    FOR EACH ROW WHEN (NEW.concurrency_key IS NOT NULL) EXECUTE FUNCTION {schema}.tasklib_hint();
CREATE TRIGGER tasks_hint_update AFTER UPDATE ON {schema}.tasks
    FOR EACH ROW WHEN (
        (NEW.concurrency_key IS NOT NULL OR OLD.concurrency_key IS NOT NULL) AND (
            OLD.slot_key IS DISTINCT FROM NEW.slot_key OR OLD.due_at IS DISTINCT FROM NEW.due_at
            OR OLD.concurrency_key IS DISTINCT FROM NEW.concurrency_key OR OLD.priority <> NEW.priority
            OR OLD.name <> NEW.name
        )
    ) EXECUTE FUNCTION {schema}.tasklib_hint();
CREATE TRIGGER tasks_hint_delete AFTER DELETE ON {schema}.tasks
    FOR EACH ROW WHEN (OLD.slot_key IS NOT NULL) EXECUTE FUNCTION {schema}.tasklib_hint();

-- Repeated tasks: one row per schedule, moved from tick to tick by compare-and-set.
CREATE TABLE {schema}.tasklib_schedules (
    name         text        COLLATE "C" NOT NULL PRIMARY KEY,
    -- What a person decided, as one document: task, cron or every, tz, kwargs, misfire, overlap, jitter, options.
    plan         jsonb       NOT NULL,
    next_run_at  timestamptz,
    last_run_at  timestamptz,
    last_task_id uuid,
    paused_at    timestamptz,
    paused_by    text,
    -- Declared in code by a worker that started at this moment; NULL for one made at run time.
    declared_at  timestamptz,
    -- Why its last tick could not be fired, and until when nobody tries again; others go on meanwhile.
    error        text,
    held_until   timestamptz,
    -- Grows with every change; a tick is fired only under the version it was read with.
    version      integer     NOT NULL DEFAULT 0,
    created_at   timestamptz NOT NULL DEFAULT now(),
    updated_at   timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT tasklib_schedules_times_real CHECK (
        least(next_run_at, last_run_at, paused_at, declared_at, held_until, created_at, updated_at) >= '0001-01-02 00:00:00+00'
        AND greatest(next_run_at, last_run_at, paused_at, declared_at, held_until, created_at, updated_at)
            < '9999-12-31 00:00:00+00'
    )
) WITH (fillfactor = 50);

-- What the HTTP service keeps: tokens, the audit log, and the answers of requests that may be sent again.
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

-- What was done, by minute (seconds since 1970): every worker adds rows now and then, merged later into one for each
-- minute and, after a day, for each hour.  Readers add up whatever there is.
CREATE TABLE {schema}.tasklib_metrics (
    at      bigint  NOT NULL,
    name    text    COLLATE "C" NOT NULL,
    outcome text    COLLATE "C" NOT NULL,
    count   bigint  NOT NULL,
    -- How long tasks waited after they were due, and how long they ran: {bucket: number}, see core/histogram.py.
    waits   jsonb   NOT NULL DEFAULT '{}',
    runs    jsonb   NOT NULL DEFAULT '{}',
    fresh   boolean NOT NULL DEFAULT true
);
CREATE INDEX tasklib_metrics_at ON {schema}.tasklib_metrics (at);

-- How many tasks waited and ran, looked at once a minute.
CREATE TABLE {schema}.tasklib_depths (
    at       bigint NOT NULL,
    name     text   COLLATE "C" NOT NULL,
    due      bigint NOT NULL,
    delayed  bigint NOT NULL,
    retrying bigint NOT NULL,
    running  bigint NOT NULL,
    PRIMARY KEY (at, name)
);

-- How many rows of each name there are up to a position (`seq`).  Rows after it are counted when somebody asks, and what
-- is deleted before it is noted by a trigger, so that inserting, claiming and finishing pay nothing for it.
CREATE TABLE {schema}.tasklib_totals (
    name  text   COLLATE "C" NOT NULL PRIMARY KEY,
    count bigint NOT NULL
) WITH (fillfactor = 50);

-- The position, and the next one: taken when every transaction that could still add rows before it has ended.
CREATE TABLE {schema}.tasklib_counted (
    only_row  boolean NOT NULL DEFAULT true PRIMARY KEY CHECK (only_row),
    seq       bigint  NOT NULL DEFAULT 0,
    next_seq  bigint,
    next_xid  xid8,
    folded_at timestamptz,
    kept_at   timestamptz
) WITH (fillfactor = 50);
INSERT INTO {schema}.tasklib_counted DEFAULT VALUES;

-- What is known of each 10,000 positions up to that one: no task there is older, newer or of another name.  Lists leave
-- out what cannot hold a match.  No names: too many to be kept.
CREATE TABLE {schema}.tasklib_stretches (
    number bigint      NOT NULL PRIMARY KEY,
    oldest timestamptz NOT NULL,
    newest timestamptz NOT NULL,
    names  jsonb
) WITH (fillfactor = 50);

-- Chores that one worker at a time does: whose turn lasts until when, and how far it has come.
CREATE TABLE {schema}.tasklib_chores (
    name     text        COLLATE "C" NOT NULL PRIMARY KEY,
    until    timestamptz NOT NULL,
    position bigint      NOT NULL DEFAULT 0
) WITH (fillfactor = 50);

CREATE TABLE {schema}.tasklib_deleted (
    name text     COLLATE "C" NOT NULL,
    seqs bigint[] NOT NULL
);

CREATE FUNCTION {schema}.tasklib_note_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP <> 'DELETE' THEN
        DELETE FROM {schema}.tasklib_totals;
        DELETE FROM {schema}.tasklib_stretches;
        DELETE FROM {schema}.tasklib_deleted;
        INSERT INTO {schema}.tasklib_counted DEFAULT VALUES
        ON CONFLICT (only_row) DO UPDATE SET seq = 0, next_seq = NULL, next_xid = NULL;
    ELSE
        INSERT INTO {schema}.tasklib_deleted (name, seqs) SELECT g.name, array_agg(g.seq) FROM gone AS g GROUP BY g.name;
    END IF;
    RETURN NULL;
END
$$;

CREATE TRIGGER tasks_deleted AFTER DELETE ON {schema}.tasks
    REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION {schema}.tasklib_note_change();
-- Nothing of ours changes these: when somebody does by hand, everything is counted anew.
CREATE TRIGGER tasks_renamed AFTER UPDATE OF seq, name, created_at ON {schema}.tasks
    FOR EACH STATEMENT EXECUTE FUNCTION {schema}.tasklib_note_change();
CREATE TRIGGER tasks_truncated AFTER TRUNCATE ON {schema}.tasks
    FOR EACH STATEMENT EXECUTE FUNCTION {schema}.tasklib_note_change();
