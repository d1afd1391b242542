-- Every table of the queue with its indexes and triggers.  Those that only count are named tasklib_stats_ and what they count.
-- min_compatible: 1

-- What a column accepts by itself is a domain of its own, named after its table and column, which an error then tells.
-- A CHECK of the table would be read from its stored text before each statement that writes, and evaluated for each row
-- whatever has changed; a domain is read once in a session, and evaluated for the columns that a statement writes.
CREATE DOMAIN {schema}.tasklib_tasks_name AS text COLLATE "C"
    CONSTRAINT tasks_name_given CHECK (VALUE <> '')
    CONSTRAINT tasks_keys_short CHECK (octet_length(VALUE) <= 1020);
CREATE DOMAIN {schema}.tasklib_tasks_state AS text COLLATE "C" CONSTRAINT tasks_state_known
    CHECK (VALUE IN ('pending', 'running', 'completed', 'failed', 'cancelled', 'buried'));
-- What is added to must stay within its type: one row that does not would fail every claim that meets it.
CREATE DOMAIN {schema}.tasklib_tasks_version AS bigint CONSTRAINT tasks_counters_sane CHECK (VALUE >= 0);
CREATE DOMAIN {schema}.tasklib_tasks_attempts AS integer CONSTRAINT tasks_counters_sane CHECK (VALUE BETWEEN 0 AND 2000000000);
CREATE DOMAIN {schema}.tasklib_tasks_retry_count AS integer CONSTRAINT tasks_counters_sane CHECK (VALUE >= 0);
CREATE DOMAIN {schema}.tasklib_tasks_max_retries AS integer CONSTRAINT tasks_counters_sane CHECK (VALUE >= -1);
CREATE DOMAIN {schema}.tasklib_tasks_lost_count AS integer CONSTRAINT tasks_counters_sane CHECK (VALUE BETWEEN 0 AND 2000000000);
CREATE DOMAIN {schema}.tasklib_tasks_timeout_seconds AS double precision CONSTRAINT tasks_timeout_positive CHECK (VALUE > 0 AND VALUE < 1e9);
CREATE DOMAIN {schema}.tasklib_tasks_progress AS double precision CONSTRAINT tasks_progress_fraction CHECK (VALUE BETWEEN 0 AND 1);
-- Indexes hold them together with the name, some only once the task fails or is retried, and take about 2,700 bytes.
CREATE DOMAIN {schema}.tasklib_tasks_unique_key AS text CONSTRAINT tasks_keys_short CHECK (octet_length(VALUE) <= 1500);
CREATE DOMAIN {schema}.tasklib_tasks_concurrency_key AS text COLLATE "C" CONSTRAINT tasks_keys_short CHECK (octet_length(VALUE) <= 1500);
CREATE DOMAIN {schema}.tasklib_tasks_fingerprint AS text COLLATE "C" CONSTRAINT tasks_keys_short CHECK (octet_length(VALUE) <= 1200);
CREATE DOMAIN {schema}.tasklib_tasks_tags AS jsonb CONSTRAINT tasks_json_objects CHECK (jsonb_typeof(VALUE) = 'object');
CREATE DOMAIN {schema}.tasklib_tasks_headers AS jsonb CONSTRAINT tasks_json_objects CHECK (jsonb_typeof(VALUE) = 'object');
-- Times that Python reads, in any time zone; and nothing can be counted from an infinite one.
CREATE DOMAIN {schema}.tasklib_tasks_scheduled_at AS timestamptz CONSTRAINT tasks_times_real
    CHECK (VALUE >= '0001-01-02 00:00:00+00' AND VALUE < '9999-12-31 00:00:00+00');
CREATE DOMAIN {schema}.tasklib_tasks_started_at AS timestamptz CONSTRAINT tasks_times_real
    CHECK (VALUE >= '0001-01-02 00:00:00+00' AND VALUE < '9999-12-31 00:00:00+00');
CREATE DOMAIN {schema}.tasklib_tasks_completed_at AS timestamptz CONSTRAINT tasks_times_real
    CHECK (VALUE >= '0001-01-02 00:00:00+00' AND VALUE < '9999-12-31 00:00:00+00');
CREATE DOMAIN {schema}.tasklib_tasks_created_at AS timestamptz CONSTRAINT tasks_times_real
    CHECK (VALUE >= '0001-01-02 00:00:00+00' AND VALUE < '9999-12-31 00:00:00+00');
CREATE DOMAIN {schema}.tasklib_tasks_updated_at AS timestamptz CONSTRAINT tasks_times_real
    CHECK (VALUE >= '0001-01-02 00:00:00+00' AND VALUE < '9999-12-31 00:00:00+00');
CREATE DOMAIN {schema}.tasklib_tasks_next_retry_at AS timestamptz CONSTRAINT tasks_times_real
    CHECK (VALUE >= '0001-01-02 00:00:00+00' AND VALUE < '9999-12-31 00:00:00+00');
CREATE DOMAIN {schema}.tasklib_tasks_locked_until AS timestamptz CONSTRAINT tasks_times_real
    CHECK (VALUE >= '0001-01-02 00:00:00+00' AND VALUE < '9999-12-31 00:00:00+00');
CREATE DOMAIN {schema}.tasklib_tasks_expires_at AS timestamptz CONSTRAINT tasks_times_real
    CHECK (VALUE >= '0001-01-02 00:00:00+00' AND VALUE < '9999-12-31 00:00:00+00');
CREATE DOMAIN {schema}.tasklib_tasks_cancel_requested_at AS timestamptz CONSTRAINT tasks_times_real
    CHECK (VALUE >= '0001-01-02 00:00:00+00' AND VALUE < '9999-12-31 00:00:00+00');

-- One row per task and everything about it.  Every column has a default, so that
-- INSERT INTO tasks (name, kwargs) VALUES (...) is a complete submission from any language.
CREATE TABLE {schema}.tasks (
    id                  uuid        NOT NULL DEFAULT gen_random_uuid() PRIMARY KEY,
    -- Insertion order, given by the database alone: one number from far away would leave no room after it, and a gap
    -- that every walk through the table has to cross.  Ids are made by clients and order nothing.
    seq                 bigint      NOT NULL GENERATED ALWAYS AS IDENTITY,
    -- The fencing token of the last claim, of the sequence below: never given twice, also not when an id is used again.
    version             {schema}.tasklib_tasks_version NOT NULL DEFAULT 0,
    -- Compared by bytes: cheaper, and the claim walks names in index order whatever the database's locale.
    name                {schema}.tasklib_tasks_name NOT NULL,
    state               {schema}.tasklib_tasks_state NOT NULL DEFAULT 'pending',
    scheduled_at        {schema}.tasklib_tasks_scheduled_at NOT NULL DEFAULT now(),
    started_at          {schema}.tasklib_tasks_started_at,
    completed_at        {schema}.tasklib_tasks_completed_at,
    created_at          {schema}.tasklib_tasks_created_at NOT NULL DEFAULT now(),
    updated_at          {schema}.tasklib_tasks_updated_at NOT NULL DEFAULT now(),
    next_retry_at       {schema}.tasklib_tasks_next_retry_at,
    locked_until        {schema}.tasklib_tasks_locked_until,
    expires_at          {schema}.tasklib_tasks_expires_at,
    cancel_requested_at {schema}.tasklib_tasks_cancel_requested_at,
    timeout_seconds     {schema}.tasklib_tasks_timeout_seconds,
    progress            {schema}.tasklib_tasks_progress,
    priority            integer     NOT NULL DEFAULT 0,
    attempts            {schema}.tasklib_tasks_attempts NOT NULL DEFAULT 0,
    retry_count         {schema}.tasklib_tasks_retry_count NOT NULL DEFAULT 0,
    -- -1: whoever claims the task first decides, by its declaration or the settings, and writes the number here.
    max_retries         {schema}.tasklib_tasks_max_retries NOT NULL DEFAULT -1,
    lost_count          {schema}.tasklib_tasks_lost_count NOT NULL DEFAULT 0,
    watched             boolean     NOT NULL DEFAULT false,
    args                jsonb       NOT NULL DEFAULT '{}',
    kwargs              jsonb       NOT NULL DEFAULT '{}',
    tags                {schema}.tasklib_tasks_tags NOT NULL DEFAULT '{}',
    headers             {schema}.tasklib_tasks_headers,
    result              jsonb,
    history             jsonb,
    log                 jsonb,
    error               text,
    progress_message    text,
    worker_id           text,
    finished_by         text,
    unique_key          {schema}.tasklib_tasks_unique_key,
    concurrency_key     {schema}.tasklib_tasks_concurrency_key,
    fingerprint         {schema}.tasklib_tasks_fingerprint,
    -- Only workflows and their children have the next three; plain tasks pay nothing for them.  Members of a group need no
    -- index: their ids count up from the group's, and are a range of the primary key.
    waits_for           text        COLLATE "C",
    marks               smallint,
    group_id            uuid,

    -- The generated columns are what indexes look at.  Finishing a task without a concurrency key changes none of them
    -- (the first is already NULL while it runs, the others stay NULL on the way to success), so a finish is a heap-only
    -- update: it touches no index at all.  No index may name state, completed_at, locked_until or worker_id, not even
    -- in its predicate, or that is lost.
    due_at timestamptz GENERATED ALWAYS AS (
        coalesce(next_retry_at, CASE WHEN state = 'pending' AND waits_for IS NULL THEN scheduled_at END)
    ) STORED,
    live_key text GENERATED ALWAYS AS (CASE WHEN completed_at IS NULL THEN unique_key END) STORED,
    trouble text COLLATE "C" GENERATED ALWAYS AS (
        CASE WHEN state = ANY ('{failed,cancelled,buried}') THEN state END
    ) STORED,
    slot_key text COLLATE "C" GENERATED ALWAYS AS (CASE WHEN state = 'running' THEN concurrency_key END) STORED,
    dead_at timestamptz GENERATED ALWAYS AS (CASE WHEN state = ANY ('{failed,buried}') THEN completed_at END) STORED,

    -- Short, as the expressions above are: before each statement that writes, PostgreSQL reads all of them from their
    -- stored text, in which an array is one value and a list after IN several.  One says what another leaves open.
    CONSTRAINT tasks_ended_when_terminal CHECK (
        (completed_at IS NULL) = (state = ANY ('{pending,running}') OR next_retry_at IS NOT NULL)
    ),
    CONSTRAINT tasks_retry_when_waiting CHECK (next_retry_at IS NULL OR state = ANY ('{pending,failed}')),
    CONSTRAINT tasks_suspended_when_pending CHECK (waits_for IS NULL OR state = 'pending'),
    CONSTRAINT tasks_leased_when_running CHECK (state <> 'running' OR locked_until IS NOT NULL),
    CONSTRAINT tasks_result_when_completed CHECK (result IS NULL OR state = 'completed')
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
-- What is suspended, to count and list it; only there does anything enter or leave it.
CREATE INDEX tasks_suspended ON {schema}.tasks (name, seq) INCLUDE (due_at, waits_for) WHERE waits_for IS NOT NULL;

-- Where claims get their versions from.  Owned by no column: whoever empties the table does not start it again.
CREATE SEQUENCE {schema}.tasklib_versions;

CREATE TABLE {schema}.tasklib_workers (
    instance        uuid             NOT NULL PRIMARY KEY,
    worker_id       text             NOT NULL,
    host            text             NOT NULL,
    pid             integer          NOT NULL,
    started_at      timestamptz      NOT NULL DEFAULT now(),
    heartbeat_at    timestamptz      NOT NULL DEFAULT now(),
    timeout_seconds double precision NOT NULL,
    concurrency     integer          NOT NULL,
    names           jsonb            NOT NULL DEFAULT '[]' CHECK (jsonb_typeof(names) = 'array'),
    info            jsonb            NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(info) = 'object'),
    owner           text             COLLATE "C",
    CONSTRAINT tasklib_workers_times_real CHECK (
        least(started_at, heartbeat_at) >= '0001-01-02 00:00:00+00' AND greatest(started_at, heartbeat_at) < '9999-12-31 00:00:00+00'
    )
) WITH (fillfactor = 50);

-- Instances that have ended, for a week: what became of a worker that is not there any more.
CREATE TABLE {schema}.tasklib_worker_history (
    instance     uuid        NOT NULL PRIMARY KEY,
    worker_id    text        NOT NULL,
    host         text        NOT NULL,
    pid          integer     NOT NULL,
    release      text,
    started_at   timestamptz NOT NULL,
    heartbeat_at timestamptz NOT NULL,
    ended_at     timestamptz NOT NULL,
    ending       text        COLLATE "C" NOT NULL CHECK (ending IN ('stopped', 'lost')),
    tasks        integer     NOT NULL DEFAULT 0,
    CONSTRAINT tasklib_worker_history_times_real CHECK (
        least(started_at, heartbeat_at, ended_at) >= '0001-01-02 00:00:00+00' AND greatest(started_at, heartbeat_at, ended_at) < '9999-12-31 00:00:00+00'
    )
);

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

-- Unlogged: losing it in a crash costs one poll interval.
CREATE UNLOGGED TABLE {schema}.tasklib_idle (
    instance uuid        NOT NULL PRIMARY KEY,
    kind     text        COLLATE "C" NOT NULL,
    until    timestamptz NOT NULL
) WITH (autovacuum_vacuum_threshold = 200, autovacuum_vacuum_cost_delay = 0);

CREATE TABLE {schema}.tasklib_controls (
    name        text COLLATE "C" NOT NULL PRIMARY KEY,
    paused_at   timestamptz,
    paused_by   text,
    reason      text,
    -- NaN is greater than every number.
    rate        double precision CHECK (rate > 0 AND rate < 'Infinity'),
    burst       double precision CHECK (burst >= 1 AND burst < 'Infinity'),
    tokens      double precision CHECK (tokens > '-Infinity' AND tokens < 'Infinity'),
    refilled_at timestamptz,
    max_running integer CHECK (max_running > 0),
    declared    jsonb CHECK (jsonb_typeof(declared) = 'object' AND length(declared::text) <= 300),
    CONSTRAINT tasklib_controls_times_real CHECK (
        least(paused_at, refilled_at) >= '0001-01-02 00:00:00+00' AND greatest(paused_at, refilled_at) < '9999-12-31 00:00:00+00'
    )
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

CREATE TABLE {schema}.tasklib_key_limits (
    name        text    COLLATE "C" NOT NULL DEFAULT '',
    key         text    COLLATE "C" NOT NULL,
    max_running integer NOT NULL CHECK (max_running >= 0),
    PRIMARY KEY (name, key)
);

-- A hint is written by the transaction that made a task wait (under its name, for when it is due) or freed a
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
    IF TG_OP = 'UPDATE' THEN
        IF OLD.slot_key IS NOT DISTINCT FROM NEW.slot_key AND OLD.due_at IS NOT DISTINCT FROM NEW.due_at
            AND OLD.concurrency_key IS NOT DISTINCT FROM NEW.concurrency_key AND OLD.priority = NEW.priority
            AND OLD.name = NEW.name
        THEN
            RETURN NULL;
        END IF;
    END IF;
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

-- The conditions spare tasks without a key the call.  They are short: each statement reads them from their stored text.
CREATE TRIGGER tasks_hint_insert AFTER INSERT ON {schema}.tasks
    FOR EACH ROW WHEN (NEW.concurrency_key IS NOT NULL) EXECUTE FUNCTION {schema}.tasklib_hint();
CREATE TRIGGER tasks_hint_update AFTER UPDATE ON {schema}.tasks
    FOR EACH ROW WHEN (OLD.concurrency_key IS NOT NULL OR NEW.concurrency_key IS NOT NULL)
    EXECUTE FUNCTION {schema}.tasklib_hint();
CREATE TRIGGER tasks_hint_delete AFTER DELETE ON {schema}.tasks
    FOR EACH ROW WHEN (OLD.slot_key IS NOT NULL) EXECUTE FUNCTION {schema}.tasklib_hint();

CREATE DOMAIN {schema}.tasklib_steps_key AS text COLLATE "C" CONSTRAINT tasklib_steps_key_short CHECK (octet_length(VALUE) <= 1000);
CREATE DOMAIN {schema}.tasklib_steps_kind AS text COLLATE "C" CONSTRAINT tasklib_steps_kind_known
    CHECK (VALUE IN ('step', 'sleep', 'wait', 'ask', 'run', 'map', 'flow', 'spend'));
CREATE DOMAIN {schema}.tasklib_steps_state AS text COLLATE "C" CONSTRAINT tasklib_steps_state_known CHECK (VALUE IN ('open', 'done', 'failed'));
CREATE DOMAIN {schema}.tasklib_steps_error AS jsonb CONSTRAINT tasklib_steps_objects CHECK (jsonb_typeof(VALUE) = 'object');
CREATE DOMAIN {schema}.tasklib_steps_ask AS jsonb CONSTRAINT tasklib_steps_objects CHECK (
    jsonb_typeof(VALUE) = 'object' AND (VALUE IS NULL OR jsonb_typeof(VALUE -> 'question') IS NOT DISTINCT FROM 'string')
);
CREATE DOMAIN {schema}.tasklib_steps_until AS timestamptz CONSTRAINT tasklib_steps_times_real
    CHECK (VALUE >= '0001-01-02 00:00:00+00' AND VALUE < '9999-12-31 00:00:00+00');
CREATE DOMAIN {schema}.tasklib_steps_started_at AS timestamptz CONSTRAINT tasklib_steps_times_real
    CHECK (VALUE >= '0001-01-02 00:00:00+00' AND VALUE < '9999-12-31 00:00:00+00');
CREATE DOMAIN {schema}.tasklib_steps_ended_at AS timestamptz CONSTRAINT tasklib_steps_times_real
    CHECK (VALUE >= '0001-01-02 00:00:00+00' AND VALUE < '9999-12-31 00:00:00+00');

-- What a workflow has recorded: one row per step, found again by its key when the function runs from the top.
CREATE TABLE {schema}.tasklib_steps (
    task_id    uuid        NOT NULL,
    key        {schema}.tasklib_steps_key NOT NULL,
    number     integer     NOT NULL,
    kind       {schema}.tasklib_steps_kind NOT NULL,
    state      {schema}.tasklib_steps_state NOT NULL,
    version    bigint      NOT NULL,
    digest     text        COLLATE "C",
    value      jsonb,
    error      {schema}.tasklib_steps_error,
    until      {schema}.tasklib_steps_until,
    tries      integer     NOT NULL DEFAULT 0,
    note       text,
    ask        {schema}.tasklib_steps_ask,
    undo       jsonb,
    started_at {schema}.tasklib_steps_started_at NOT NULL,
    ended_at   {schema}.tasklib_steps_ended_at,
    PRIMARY KEY (task_id, key)
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

-- Questions that wait for a person are listed without looking at whatever else waits.
CREATE INDEX tasklib_steps_questions ON {schema}.tasklib_steps (started_at, task_id, key)
    WHERE kind = 'ask' AND state = 'open';

-- Which open steps wait for which events.
CREATE TABLE {schema}.tasklib_waits (
    event   text COLLATE "C" NOT NULL,
    task_id uuid NOT NULL,
    key     text COLLATE "C" NOT NULL,
    PRIMARY KEY (event, task_id, key)
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX tasklib_waits_task ON {schema}.tasklib_waits (task_id);

-- A fact is for everybody, now and later; a message is for one task and taken once.  One insert is a complete emit, from
-- any language; a worker delivers it.
CREATE TABLE {schema}.tasklib_events (
    id           bigint      NOT NULL GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name         text        COLLATE "C" NOT NULL CHECK (name <> '' AND octet_length(name) <= 1000),
    task_id      uuid,
    payload      jsonb       NOT NULL DEFAULT 'null',
    sender       text,
    created_at   timestamptz NOT NULL DEFAULT now(),
    delivered_at timestamptz,
    taken_by     text,
    token        uuid
);
CREATE UNIQUE INDEX tasklib_events_token ON {schema}.tasklib_events (token) WHERE token IS NOT NULL;
CREATE UNIQUE INDEX tasklib_events_fact ON {schema}.tasklib_events (name) WHERE task_id IS NULL;
CREATE INDEX tasklib_events_message ON {schema}.tasklib_events (task_id, name, id) WHERE taken_by IS NULL;
CREATE INDEX tasklib_events_taken ON {schema}.tasklib_events (task_id) WHERE taken_by IS NOT NULL;
CREATE INDEX tasklib_events_new ON {schema}.tasklib_events (id) WHERE delivered_at IS NULL;
CREATE INDEX tasklib_events_age ON {schema}.tasklib_events (created_at) WHERE task_id IS NULL;

-- Whoever waits is woken by a worker; each looks once a second too.  Who emits with a token delivers by itself, and a
-- worker that did so at the same moment would only be in the way.
CREATE FUNCTION {schema}.tasklib_announce() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('tasklib_' || left(md5(TG_TABLE_SCHEMA), 16), 'event');
    RETURN NULL;
END
$$;
CREATE TRIGGER tasklib_events_announce AFTER INSERT ON {schema}.tasklib_events
    FOR EACH ROW WHEN (NEW.token IS NULL) EXECUTE FUNCTION {schema}.tasklib_announce();

-- Children that somebody waits for, counted: `ended` of `total` as far as it is folded.
CREATE TABLE {schema}.tasklib_groups (
    id           uuid        NOT NULL PRIMARY KEY,
    task_id      uuid        NOT NULL,
    key          text        COLLATE "C" NOT NULL,
    kind         text        COLLATE "C" NOT NULL CHECK (kind IN ('run', 'map', 'flow', 'after', 'undo', 'left', 'gone')),
    run_if       text        COLLATE "C" CHECK (run_if IN ('success', 'failure', 'end')),
    total        bigint      NOT NULL DEFAULT 0,
    sealed       boolean     NOT NULL DEFAULT false,
    ended        bigint      NOT NULL DEFAULT 0,
    failed       bigint      NOT NULL DEFAULT 0,
    cancelled    bigint      NOT NULL DEFAULT 0,
    max_failures bigint,
    last_digest  text        COLLATE "C",
    fired_at     timestamptz,
    stopped_at   timestamptz,
    cleared_at   timestamptz
) WITH (fillfactor = 50, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX tasklib_groups_owner ON {schema}.tasklib_groups (task_id);
CREATE INDEX tasklib_groups_stopped ON {schema}.tasklib_groups (id) WHERE stopped_at IS NOT NULL AND cleared_at IS NULL;

-- Which tasks others wait for: each counts for the group of what is before a task, and may be one of its arguments.
CREATE TABLE {schema}.tasklib_edges (
    task_id  uuid NOT NULL,
    group_id uuid NOT NULL,
    param    text COLLATE "C",
    number   integer NOT NULL,
    PRIMARY KEY (task_id, group_id, number)
);
CREATE INDEX tasklib_edges_group ON {schema}.tasklib_edges (group_id);

-- Tokens that workflows spend.  Many spenders update one row, which has room for its versions on its page.
CREATE TABLE {schema}.tasklib_budgets (
    name        text             COLLATE "C" NOT NULL PRIMARY KEY CHECK (name <> '' AND octet_length(name) <= 1000),
    rate        double precision NOT NULL CHECK (rate > 0 AND rate < 'Infinity'),
    burst       double precision NOT NULL CHECK (burst > 0 AND burst < 'Infinity'),
    tokens      double precision NOT NULL,
    refilled_at timestamptz      NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_cost_delay = 0);

CREATE TABLE {schema}.tasklib_objectives (
    name           text             COLLATE "C" NOT NULL,
    kind           text             COLLATE "C" NOT NULL CHECK (kind IN ('wait', 'run')),
    within_seconds double precision NOT NULL CHECK (within_seconds > 0),
    target         double precision NOT NULL CHECK (target > 0 AND target < 100),
    set_at         timestamptz      NOT NULL DEFAULT now(),
    set_by         text,
    PRIMARY KEY (name, kind)
);

CREATE TABLE {schema}.tasklib_error_marks (
    group_id text        COLLATE "C" NOT NULL PRIMARY KEY,
    mark     text        COLLATE "C" NOT NULL CHECK (mark IN ('muted', 'resolved')),
    set_at   timestamptz NOT NULL DEFAULT now(),
    set_by   text
);

-- What copies from other databases have brought here, once and for all: a row outlives what it stands for, so that no
-- later copy brings back what has been done or removed since.
CREATE TABLE {schema}.tasklib_copied (
    id uuid NOT NULL PRIMARY KEY
);

-- What has happened to members and owners of groups since it was last added up.  Rows are only inserted, so that ends of
-- members wait for nobody; who adds them up deletes them.
CREATE TABLE {schema}.tasklib_tallies (
    group_id  uuid,
    task_id   uuid,
    ended     integer NOT NULL DEFAULT 0,
    failed    integer NOT NULL DEFAULT 0,
    cancelled integer NOT NULL DEFAULT 0
) WITH (autovacuum_vacuum_threshold = 500, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX tasklib_tallies_group ON {schema}.tasklib_tallies (group_id);

-- Submit what undoes the steps of a workflow, as ordinary tasks in a row, the last step's first; each waits for the end of
-- the one before it, however that ends.  They are members of a group that is there from now on: nothing is undone twice.
CREATE FUNCTION {schema}.tasklib_undo(workflow uuid, moment timestamptz) RETURNS void LANGUAGE sql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    WITH bound AS MATERIALIZED (
        SELECT s.undo, (s.undo ->> 'after')::uuid AS after, row_number() OVER latest AS place, lag(s.undo) OVER latest AS prior,
            count(*) OVER () AS total, first_value(s.undo ->> 'after') OVER latest AS members
        FROM {schema}.tasklib_steps AS s
        WHERE s.task_id = workflow AND s.undo IS NOT NULL
            AND NOT EXISTS (SELECT FROM {schema}.tasklib_groups AS g WHERE g.task_id = workflow AND g.kind = 'undo')
        WINDOW latest AS (ORDER BY s.number DESC, s.started_at DESC, s.key DESC)
    ),
    -- Ids of members count up from their group's.
    named AS MATERIALIZED (
        SELECT b.*, (left(b.members, 30) || lpad(to_hex(b.place), 6, '0'))::uuid AS id,
            (left(b.members, 30) || lpad(to_hex(b.place - 1), 6, '0'))::uuid AS prior_id
        FROM bound AS b
    ),
    undos AS (
        INSERT INTO {schema}.tasklib_groups (id, task_id, key, kind, run_if, total, sealed, fired_at)
        SELECT b.after, CASE WHEN b.place = 1 THEN workflow ELSE b.id END, '', CASE WHEN b.place = 1 THEN 'undo' ELSE 'after' END,
            CASE WHEN b.place > 1 THEN 'end' END, CASE WHEN b.place = 1 THEN b.total ELSE 1 END, true,
            CASE WHEN b.place = 1 THEN moment END
        FROM named AS b
    ),
    edges AS (
        INSERT INTO {schema}.tasklib_edges (task_id, group_id, number)
        SELECT b.prior_id, b.after, 0 FROM named AS b WHERE b.place > 1
    )
    INSERT INTO {schema}.tasks (
        id, name, kwargs, scheduled_at, created_at, updated_at, max_retries, timeout_seconds, priority, tags,
        concurrency_key, headers, group_id, marks, waits_for
    )
    SELECT b.id, u.name, coalesce(u.kwargs, 'null'), moment + make_interval(secs => coalesce(u.delay, 0)), moment, moment,
        u.max_retries, u.timeout_seconds, coalesce(u.priority, 0), coalesce(u.tags, '{}'), u.concurrency_key, u.headers,
        b.members::uuid, CASE WHEN b.place < b.total THEN 33 ELSE 1 END,
        CASE WHEN b.place > 1 THEN left('prerequisites ' || (b.prior ->> 'name'), 200) END
    FROM named AS b CROSS JOIN LATERAL jsonb_to_record(b.undo) AS u (
        name text, kwargs jsonb, delay double precision, max_retries integer, timeout_seconds double precision,
        priority integer, tags jsonb, concurrency_key text, headers jsonb
    )
    ORDER BY b.place
$$;
REVOKE EXECUTE ON FUNCTION {schema}.tasklib_undo(uuid, timestamptz) FROM PUBLIC;

-- Every way in which a member can end, or come alive again, counts once, a person's own SQL too.
CREATE FUNCTION {schema}.tasklib_tally() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    step  integer := 1;
    state text;
BEGIN
    IF TG_OP = 'DELETE' THEN
        state := 'cancelled';
    ELSIF NEW.completed_at IS NULL THEN
        step := -1;
        state := OLD.state;
    ELSE
        state := NEW.state;
    END IF;
    IF OLD.group_id IS NOT NULL THEN
        INSERT INTO {schema}.tasklib_tallies (group_id, ended, failed, cancelled) VALUES (
            OLD.group_id, step, CASE WHEN state IN ('failed', 'buried') THEN step ELSE 0 END,
            CASE WHEN state = 'cancelled' THEN step ELSE 0 END
        );
    END IF;
    IF OLD.marks & 32 > 0 THEN
        INSERT INTO {schema}.tasklib_tallies (group_id, ended, failed, cancelled)
        SELECT e.group_id, step, CASE WHEN state IN ('failed', 'buried') THEN step ELSE 0 END,
            CASE WHEN state = 'cancelled' THEN step ELSE 0 END
        FROM (SELECT DISTINCT d.group_id FROM {schema}.tasklib_edges AS d WHERE d.task_id = OLD.id) AS e;
    END IF;
    IF OLD.marks & 16 > 0 AND step > 0 AND state <> 'completed' THEN
        INSERT INTO {schema}.tasklib_tallies (task_id) VALUES (OLD.id);
    END IF;
    IF OLD.marks & 2 > 0 AND step > 0 AND state <> 'completed' THEN
        PERFORM {schema}.tasklib_undo(OLD.id, CASE WHEN TG_OP = 'DELETE' THEN now() ELSE NEW.completed_at END);
    END IF;
    RETURN NULL;
END
$$;
REVOKE EXECUTE ON FUNCTION {schema}.tasklib_tally() FROM PUBLIC;
-- Not for members that the statement itself has counted, which it says by flipping 64 in their marks (complete_members).
CREATE TRIGGER tasks_tally AFTER UPDATE ON {schema}.tasks
    FOR EACH ROW WHEN (
        OLD.marks IS NOT NULL AND (OLD.completed_at IS NULL) <> (NEW.completed_at IS NULL)
        AND OLD.marks # NEW.marks IS DISTINCT FROM 64
    ) EXECUTE FUNCTION {schema}.tasklib_tally();
CREATE TRIGGER tasks_tally_delete AFTER DELETE ON {schema}.tasks
    FOR EACH ROW WHEN (OLD.completed_at IS NULL AND (OLD.group_id IS NOT NULL OR OLD.marks & 50 > 0))
    EXECUTE FUNCTION {schema}.tasklib_tally();

-- What a task has recorded goes with it.  Its groups are only named: groups are locked before tasks, so who adds up tallies
-- removes them, with their members.  An edge stays while a task waits for the end of the one that is gone.
CREATE FUNCTION {schema}.tasklib_drop_workflow() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    DELETE FROM {schema}.tasklib_steps AS s WHERE s.task_id = OLD.id;
    DELETE FROM {schema}.tasklib_waits AS w WHERE w.task_id = OLD.id;
    DELETE FROM {schema}.tasklib_events AS e WHERE e.task_id = OLD.id AND e.taken_by IS NULL;
    DELETE FROM {schema}.tasklib_events AS e WHERE e.task_id = OLD.id AND e.taken_by IS NOT NULL;
    DELETE FROM {schema}.tasklib_edges AS e WHERE e.task_id = OLD.id AND NOT EXISTS (
        SELECT FROM {schema}.tasklib_groups AS g WHERE g.id = e.group_id AND g.fired_at IS NULL
    );
    INSERT INTO {schema}.tasklib_tallies (group_id, task_id)
    SELECT g.id, OLD.id FROM {schema}.tasklib_groups AS g WHERE g.task_id = OLD.id;
    RETURN NULL;
END
$$;
REVOKE EXECUTE ON FUNCTION {schema}.tasklib_drop_workflow() FROM PUBLIC;
CREATE TRIGGER tasks_workflow_delete AFTER DELETE ON {schema}.tasks
    FOR EACH ROW WHEN (OLD.marks IS NOT NULL) EXECUTE FUNCTION {schema}.tasklib_drop_workflow();

CREATE TABLE {schema}.tasklib_schedules (
    name         text        COLLATE "C" NOT NULL PRIMARY KEY,
    plan         jsonb       NOT NULL,
    next_run_at  timestamptz,
    last_run_at  timestamptz,
    last_task_id uuid,
    paused_at    timestamptz,
    paused_by    text,
    declared_at  timestamptz,
    error        text,
    held_until   timestamptz,
    version      integer     NOT NULL DEFAULT 0,
    created_at   timestamptz NOT NULL DEFAULT now(),
    updated_at   timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT tasklib_schedules_times_real CHECK (
        least(next_run_at, last_run_at, paused_at, declared_at, held_until, created_at, updated_at) >= '0001-01-02 00:00:00+00'
        AND greatest(next_run_at, last_run_at, paused_at, declared_at, held_until, created_at, updated_at)
            < '9999-12-31 00:00:00+00'
    )
) WITH (fillfactor = 50);

CREATE TABLE {schema}.tasklib_declarations (
    name    text  COLLATE "C" NOT NULL PRIMARY KEY,
    options jsonb NOT NULL CHECK (jsonb_typeof(options) = 'object')
);

CREATE TABLE {schema}.tasklib_tokens (
    id           uuid        NOT NULL PRIMARY KEY,
    name         text        NOT NULL,
    role         text        NOT NULL CHECK (role IN ('producer', 'worker', 'viewer', 'operator', 'admin')),
    hash         text        COLLATE "C" NOT NULL UNIQUE,
    begins       text        NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT now(),
    expires_at   timestamptz,
    last_used_at timestamptz,
    revoked_at   timestamptz
);

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
    fingerprint text        NOT NULL,
    answer      jsonb,
    created_at  timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX tasklib_idempotency_age ON {schema}.tasklib_idempotency (created_at);

CREATE TABLE {schema}.tasklib_chores (
    name     text        COLLATE "C" NOT NULL PRIMARY KEY,
    until    timestamptz NOT NULL,
    position bigint      NOT NULL DEFAULT 0
) WITH (fillfactor = 50);

-- What was done, by minute (seconds since 1970): every worker adds rows now and then, merged later into one for each
-- minute and, after a day, for each hour.  Readers add up whatever there is.
CREATE TABLE {schema}.tasklib_stats_outcomes (
    at      bigint  NOT NULL,
    name    text    COLLATE "C" NOT NULL,
    outcome text    COLLATE "C" NOT NULL,
    count   bigint  NOT NULL,
    waits   jsonb   NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(waits) = 'object'),
    runs    jsonb   NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(runs) = 'object'),
    fresh   boolean NOT NULL DEFAULT true
);
CREATE INDEX tasklib_stats_outcomes_at ON {schema}.tasklib_stats_outcomes (at);

CREATE TABLE {schema}.tasklib_stats_depths (
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
CREATE TABLE {schema}.tasklib_stats_totals (
    name  text   COLLATE "C" NOT NULL PRIMARY KEY,
    count bigint NOT NULL
) WITH (fillfactor = 50);

-- The position, and the next one: taken when every transaction that could still add rows before it has ended.
CREATE TABLE {schema}.tasklib_stats_position (
    only_row   boolean NOT NULL DEFAULT true PRIMARY KEY CHECK (only_row),
    seq        bigint  NOT NULL DEFAULT 0,
    next_seq   bigint,
    next_xid   xid8,
    counted_at timestamptz,
    merged_at  timestamptz
) WITH (fillfactor = 50);
INSERT INTO {schema}.tasklib_stats_position DEFAULT VALUES;

-- What is known of each 10,000 positions up to that one: no task there is older, newer or of another name.  Lists leave
-- out what cannot hold a match.  No names: too many to be kept.
CREATE TABLE {schema}.tasklib_stats_blocks (
    number bigint      NOT NULL PRIMARY KEY,
    oldest timestamptz NOT NULL,
    newest timestamptz NOT NULL,
    names  jsonb
) WITH (fillfactor = 50);

CREATE TABLE {schema}.tasklib_stats_deleted (
    name text     COLLATE "C" NOT NULL,
    seqs bigint[] NOT NULL
);

CREATE FUNCTION {schema}.tasklib_stats_note_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP <> 'DELETE' THEN
        DELETE FROM {schema}.tasklib_stats_totals;
        DELETE FROM {schema}.tasklib_stats_blocks;
        DELETE FROM {schema}.tasklib_stats_deleted;
        INSERT INTO {schema}.tasklib_stats_position DEFAULT VALUES
        ON CONFLICT (only_row) DO UPDATE SET seq = 0, next_seq = NULL, next_xid = NULL;
    ELSE
        INSERT INTO {schema}.tasklib_stats_deleted (name, seqs) SELECT g.name, array_agg(g.seq) FROM gone AS g GROUP BY g.name;
    END IF;
    RETURN NULL;
END
$$;

CREATE TRIGGER tasks_deleted AFTER DELETE ON {schema}.tasks
    REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION {schema}.tasklib_stats_note_change();
-- Nothing of ours changes these: when somebody does by hand, everything is counted anew.
CREATE TRIGGER tasks_renamed AFTER UPDATE OF seq, name, created_at ON {schema}.tasks
    FOR EACH STATEMENT EXECUTE FUNCTION {schema}.tasklib_stats_note_change();
CREATE TRIGGER tasks_truncated AFTER TRUNCATE ON {schema}.tasks
    FOR EACH STATEMENT EXECUTE FUNCTION {schema}.tasklib_stats_note_change();

-- For whoever looks at the tables in psql (\d+): every table, and every column that does not explain itself.
COMMENT ON TABLE {schema}.tasks IS 'One row per task: everything about it. INSERT INTO tasks (name, kwargs) submits one.';
COMMENT ON COLUMN {schema}.tasks.seq IS 'insertion order, given by the database';
COMMENT ON COLUMN {schema}.tasks.version IS 'fencing token of the last claim: never given twice';
COMMENT ON COLUMN {schema}.tasks.scheduled_at IS 'not started before this moment';
COMMENT ON COLUMN {schema}.tasks.completed_at IS 'when it ended; set exactly in completed, cancelled, buried and finally failed tasks';
COMMENT ON COLUMN {schema}.tasks.next_retry_at IS 'when it is due again after a failed attempt';
COMMENT ON COLUMN {schema}.tasks.locked_until IS 'end of the lease of the worker that runs it';
COMMENT ON COLUMN {schema}.tasks.cancel_requested_at IS 'when a person asked to stop it';
COMMENT ON COLUMN {schema}.tasks.attempts IS 'attempts started';
COMMENT ON COLUMN {schema}.tasks.retry_count IS 'attempts that failed and were followed by another';
COMMENT ON COLUMN {schema}.tasks.max_retries IS 'attempts allowed after the first; -1 until the first claim decides';
COMMENT ON COLUMN {schema}.tasks.lost_count IS 'how often its worker vanished';
COMMENT ON COLUMN {schema}.tasks.watched IS 'somebody waits for its end: whoever ends it notifies';
COMMENT ON COLUMN {schema}.tasks.args IS 'reserved';
COMMENT ON COLUMN {schema}.tasks.kwargs IS 'its input: an object of named arguments for functions';
COMMENT ON COLUMN {schema}.tasks.headers IS 'carried along from the submission: tenant, request, trace';
COMMENT ON COLUMN {schema}.tasks.result IS '{"value": ...} of a completed task';
COMMENT ON COLUMN {schema}.tasks.history IS 'the last 20 attempts that did not succeed: [{number, started_at, ended_at, worker_id, outcome, error}]';
COMMENT ON COLUMN {schema}.tasks.log IS 'the last 200 lines it logged: [{attempt, elapsed, level, text}]';
COMMENT ON COLUMN {schema}.tasks.worker_id IS 'who runs it now';
COMMENT ON COLUMN {schema}.tasks.finished_by IS 'who ran it last';
COMMENT ON COLUMN {schema}.tasks.unique_key IS 'at most one live task of a name has it';
COMMENT ON COLUMN {schema}.tasks.concurrency_key IS 'tasks with the same one share a limit, see tasklib_key_limits';
COMMENT ON COLUMN {schema}.tasks.fingerprint IS 'kind of the last failure: equal for tasks that failed in the same way';
COMMENT ON COLUMN {schema}.tasks.waits_for IS 'what a suspended workflow waits for: sleep, retry, event, answer, children, budget, code, and the name';
COMMENT ON COLUMN {schema}.tasks.marks IS 'of workflows, as bits: 1 is a child that somebody waits for, 2 has undos, 4 has steps, 16 has children, 32 is before others in a flow; 64 is flipped by whoever ends a child and counts that itself';
COMMENT ON COLUMN {schema}.tasks.group_id IS 'the children that it is one of';
COMMENT ON COLUMN {schema}.tasks.due_at IS 'generated: when it may start next, if it waits';
COMMENT ON COLUMN {schema}.tasks.live_key IS 'generated: the unique key, while it is not terminal';
COMMENT ON COLUMN {schema}.tasks.trouble IS 'generated: the state, if failed, cancelled or buried';
COMMENT ON COLUMN {schema}.tasks.slot_key IS 'generated: the concurrency key, while it runs';
COMMENT ON COLUMN {schema}.tasks.dead_at IS 'generated: when it failed for good or was buried';

COMMENT ON TABLE {schema}.tasklib_workers IS 'Worker instances and their heartbeats.';
COMMENT ON COLUMN {schema}.tasklib_workers.instance IS 'one run of one worker; a worker_id may be used again, this is not';
COMMENT ON COLUMN {schema}.tasklib_workers.timeout_seconds IS 'after this long without a heartbeat the instance counts as dead';
COMMENT ON COLUMN {schema}.tasklib_workers.names IS 'the task names it runs';
COMMENT ON COLUMN {schema}.tasklib_workers.info IS 'what it reports with its heartbeat: memory, limits of its own, stuck threads';
COMMENT ON COLUMN {schema}.tasklib_workers.owner IS 'the token that registered it over HTTP; NULL for a worker on the database itself';
COMMENT ON TABLE {schema}.tasklib_worker_history IS 'Worker instances that have ended, for a week.';
COMMENT ON COLUMN {schema}.tasklib_worker_history.ended_at IS 'when it stopped, or was declared dead';
COMMENT ON COLUMN {schema}.tasklib_worker_history.release IS 'the release of the code that it ran, if it was given one';
COMMENT ON COLUMN {schema}.tasklib_worker_history.ending IS 'stopped: in order; lost: it was killed or stopped answering';
COMMENT ON COLUMN {schema}.tasklib_worker_history.tasks IS 'how many tasks it held then, which others run again';
COMMENT ON TABLE {schema}.tasklib_claims IS 'Which tasks each worker instance holds, as of its last claim.';
COMMENT ON COLUMN {schema}.tasklib_claims.seqs IS 'tasks.seq of the tasks held';
COMMENT ON COLUMN {schema}.tasklib_claims.versions IS 'tasks.version of each: the entry is stale once the task has another or has ended';
COMMENT ON COLUMN {schema}.tasklib_claims.generation IS 'claims sent in an earlier generation take nothing';
COMMENT ON TABLE {schema}.tasklib_idle IS 'Workers that wait for work and are notified when there is some.';
COMMENT ON COLUMN {schema}.tasklib_idle.kind IS 'the same for workers that know the same task names';
COMMENT ON COLUMN {schema}.tasklib_idle.until IS 'not notified after this moment';
COMMENT ON TABLE {schema}.tasklib_controls IS 'Pauses and limits: one row per task name, and one named '''' for everything.';
COMMENT ON COLUMN {schema}.tasklib_controls.rate IS 'tasks that may start in a second';
COMMENT ON COLUMN {schema}.tasklib_controls.burst IS 'starts that the token bucket holds; NULL for one second''s worth, and at least one';
COMMENT ON COLUMN {schema}.tasklib_controls.tokens IS 'starts left in the token bucket at refilled_at';
COMMENT ON COLUMN {schema}.tasklib_controls.max_running IS 'tasks that may run at once';
COMMENT ON COLUMN {schema}.tasklib_controls.declared IS 'the limits that code declared when they were last stored: {rate, burst, max_running}';
COMMENT ON TABLE {schema}.tasklib_key_limits IS 'How many tasks of a concurrency key may run at once.';
COMMENT ON COLUMN {schema}.tasklib_key_limits.name IS 'tasks of this name only, counted by themselves; '''' for all names together';
COMMENT ON COLUMN {schema}.tasklib_key_limits.key IS 'the concurrency key; '''' for every other key';
COMMENT ON COLUMN {schema}.tasklib_key_limits.max_running IS '0 is unlimited';
COMMENT ON TABLE {schema}.tasklib_hints IS 'Concurrency keys of which a task may be able to start: where the next claim should look.';
COMMENT ON COLUMN {schema}.tasklib_hints.name IS 'the waiting task''s name; '''' when a slot of the key became free';
COMMENT ON COLUMN {schema}.tasklib_hints.ready_at IS 'when the task is due';
COMMENT ON TABLE {schema}.tasklib_steps IS 'What workflows have recorded: a step that is done is never run again.';
COMMENT ON COLUMN {schema}.tasklib_steps.task_id IS 'the workflow';
COMMENT ON COLUMN {schema}.tasklib_steps.kind IS 'what the function asked for: step, sleep, wait, ask, run, map, flow or spend';
COMMENT ON COLUMN {schema}.tasklib_steps.value IS 'what it returned, as the function gets it in every run';
COMMENT ON COLUMN {schema}.tasklib_steps.ended_at IS 'when it was done, or failed for good';
COMMENT ON COLUMN {schema}.tasklib_steps.key IS 'its name, with #2 for the second of that name, or with the key that the code gives';
COMMENT ON COLUMN {schema}.tasklib_steps.number IS 'the order in which the function came to it first';
COMMENT ON COLUMN {schema}.tasklib_steps.version IS 'the claim that wrote it';
COMMENT ON COLUMN {schema}.tasklib_steps.digest IS 'hash of the function and its arguments';
COMMENT ON COLUMN {schema}.tasklib_steps.error IS '{type, message} of a step that failed';
COMMENT ON COLUMN {schema}.tasklib_steps.until IS 'end of a sleep, of patience, or of the pause before the next try';
COMMENT ON COLUMN {schema}.tasklib_steps.tries IS 'how often it has failed in a row';
COMMENT ON COLUMN {schema}.tasklib_steps.note IS 'what was odd about it when it was last found: other arguments than recorded';
COMMENT ON COLUMN {schema}.tasklib_steps.ask IS 'of a question to a person: {question, schema}';
COMMENT ON COLUMN {schema}.tasklib_steps.undo IS 'the task that undoes it, submitted if the workflow ends without success';
COMMENT ON TABLE {schema}.tasklib_groups IS 'Children that a workflow waits for.';
COMMENT ON COLUMN {schema}.tasklib_groups.kind IS 'run: one child; map: one for each input; flow: the tasks of a flow; after: what is before a task of a flow; undo: what undoes a workflow that has ended; left: children that nobody waits for any more; gone: the same, of a workflow that was deleted, and they are deleted too';
COMMENT ON COLUMN {schema}.tasklib_groups.ended IS 'members that have ended, as far as tallies are added up';
COMMENT ON COLUMN {schema}.tasklib_groups.failed IS 'those of them that failed or were buried';
COMMENT ON COLUMN {schema}.tasklib_groups.cancelled IS 'those of them that were cancelled';
COMMENT ON COLUMN {schema}.tasklib_groups.last_digest IS 'hash of the inputs stored so far, while more may come: who stores more sees whether they are still the same; over HTTP of those stored last';
COMMENT ON COLUMN {schema}.tasklib_groups.max_failures IS 'with one more the rest is cancelled; NULL: all are waited for';
COMMENT ON COLUMN {schema}.tasklib_groups.task_id IS 'the workflow';
COMMENT ON COLUMN {schema}.tasklib_groups.key IS 'its step that waits';
COMMENT ON COLUMN {schema}.tasklib_groups.total IS 'children stored so far';
COMMENT ON COLUMN {schema}.tasklib_groups.sealed IS 'no more will come';
COMMENT ON COLUMN {schema}.tasklib_groups.fired_at IS 'when the workflow was notified that all have ended, or too many failed';
COMMENT ON COLUMN {schema}.tasklib_groups.stopped_at IS 'when the rest was to be cancelled';
COMMENT ON COLUMN {schema}.tasklib_groups.cleared_at IS 'when the rest was cancelled';
COMMENT ON COLUMN {schema}.tasklib_groups.run_if IS 'of what is before a task: how that must end for it to run';
COMMENT ON TABLE {schema}.tasklib_budgets IS 'Budgets: tokens that workflows spend, refilled at a rate.';
COMMENT ON COLUMN {schema}.tasklib_budgets.rate IS 'tokens that come in a second';
COMMENT ON COLUMN {schema}.tasklib_budgets.burst IS 'tokens that it holds at most';
COMMENT ON COLUMN {schema}.tasklib_budgets.tokens IS 'tokens that were left at refilled_at';
COMMENT ON COLUMN {schema}.tasklib_budgets.refilled_at IS 'when tokens were last counted';
COMMENT ON TABLE {schema}.tasklib_declarations IS 'What code declares for new tasks of a name, for programs without that code which submit the tasks of schedules.';
COMMENT ON COLUMN {schema}.tasklib_declarations.options IS 'those of priority, tags, concurrency_key, expires_after that it gives';
COMMENT ON TABLE {schema}.tasklib_objectives IS 'How many tasks should start, or end, within a time.';
COMMENT ON COLUMN {schema}.tasklib_objectives.name IS 'the task name; '''' for all names together';
COMMENT ON COLUMN {schema}.tasklib_objectives.kind IS 'wait: from due to started; run: from started to ended';
COMMENT ON COLUMN {schema}.tasklib_objectives.within_seconds IS 'seconds that they should take at most';
COMMENT ON COLUMN {schema}.tasklib_objectives.target IS 'percent of the attempts';
COMMENT ON COLUMN {schema}.tasklib_objectives.set_at IS 'when it was set';
COMMENT ON COLUMN {schema}.tasklib_objectives.set_by IS 'who set it, as far as known';
COMMENT ON TABLE {schema}.tasklib_error_marks IS 'What people decided about groups of errors.';
COMMENT ON COLUMN {schema}.tasklib_error_marks.group_id IS 'the id of the group, a hash of the task name and the fingerprint';
COMMENT ON COLUMN {schema}.tasklib_error_marks.mark IS 'muted: not reported; resolved: not expected after set_at';
COMMENT ON COLUMN {schema}.tasklib_error_marks.set_at IS 'when it was decided';
COMMENT ON COLUMN {schema}.tasklib_error_marks.set_by IS 'who decided it, as far as known';
COMMENT ON TABLE {schema}.tasklib_copied IS 'What copies from other databases have brought here, also if it is gone since.';
COMMENT ON COLUMN {schema}.tasklib_copied.id IS 'of a task or a group; of a fact or a setting a hash of its kind and name';
COMMENT ON TABLE {schema}.tasklib_edges IS 'Which tasks are before others in flows.';
COMMENT ON COLUMN {schema}.tasklib_edges.task_id IS 'the task that comes first';
COMMENT ON COLUMN {schema}.tasklib_edges.group_id IS 'what the later task waits for';
COMMENT ON COLUMN {schema}.tasklib_edges.number IS 'tells apart arguments from the same task';
COMMENT ON COLUMN {schema}.tasklib_edges.param IS 'the argument that its result becomes';
COMMENT ON TABLE {schema}.tasklib_tallies IS 'What has happened to children and to those who wait for them since it was last added up.';
COMMENT ON COLUMN {schema}.tasklib_tallies.group_id IS 'the group of a member that has ended, or came alive again';
COMMENT ON COLUMN {schema}.tasklib_tallies.ended IS 'how many; -1 for a member that came alive again';
COMMENT ON COLUMN {schema}.tasklib_tallies.failed IS 'the same, of a member that failed or was buried';
COMMENT ON COLUMN {schema}.tasklib_tallies.cancelled IS 'the same, of a member that was cancelled';
COMMENT ON COLUMN {schema}.tasklib_tallies.task_id IS 'a workflow that ended without success: its children are to be cancelled; with a group, one that was deleted';
COMMENT ON TABLE {schema}.tasklib_waits IS 'Which open steps wait for which events.';
COMMENT ON COLUMN {schema}.tasklib_waits.event IS 'its name';
COMMENT ON COLUMN {schema}.tasklib_waits.task_id IS 'the workflow';
COMMENT ON TABLE {schema}.tasklib_events IS 'Events: INSERT INTO tasklib_events (name, payload) notifies whoever waits for it, now or later.';
COMMENT ON COLUMN {schema}.tasklib_events.payload IS 'any JSON value, which ctx.wait returns';
COMMENT ON COLUMN {schema}.tasklib_events.sender IS 'who emitted it, as far as known';
COMMENT ON COLUMN {schema}.tasklib_events.task_id IS 'the one task that a message is for; NULL for a fact';
COMMENT ON COLUMN {schema}.tasklib_events.delivered_at IS 'when those who waited for it had it; NULL: not yet';
COMMENT ON COLUMN {schema}.tasklib_events.taken_by IS 'the step that took a message';
COMMENT ON COLUMN {schema}.tasklib_events.token IS 'made by a sender that delivers it, so that an emit repeated after a lost reply is one event; else NULL';
COMMENT ON TABLE {schema}.tasklib_schedules IS 'Schedules: each makes a task at every tick.';
COMMENT ON COLUMN {schema}.tasklib_schedules.plan IS 'what was decided: task, cron or every, tz, kwargs, misfire, overlap, jitter, options';
COMMENT ON COLUMN {schema}.tasklib_schedules.declared_at IS 'declared in code by a worker that started then; NULL if made at run time';
COMMENT ON COLUMN {schema}.tasklib_schedules.error IS 'why its last tick failed';
COMMENT ON COLUMN {schema}.tasklib_schedules.held_until IS 'not tried again before this moment, after an error';
COMMENT ON COLUMN {schema}.tasklib_schedules.version IS 'grows with every change; a tick counts only under the version it was read with';
COMMENT ON TABLE {schema}.tasklib_tokens IS 'Tokens of the HTTP service.';
COMMENT ON COLUMN {schema}.tasklib_tokens.hash IS 'SHA-256 of the secret, in hexadecimal; the secret itself is not stored';
COMMENT ON COLUMN {schema}.tasklib_tokens.begins IS 'first characters of the secret, to recognise it by';
COMMENT ON TABLE {schema}.tasklib_audit IS 'Who changed what: rows are added, never changed.';
COMMENT ON COLUMN {schema}.tasklib_audit.remote IS 'network address of the caller';
COMMENT ON TABLE {schema}.tasklib_idempotency IS 'Answers of HTTP requests with an Idempotency-Key, for when they are sent again.';
COMMENT ON COLUMN {schema}.tasklib_idempotency.fingerprint IS 'SHA-256 of the request: another request with the same key is refused';
COMMENT ON TABLE {schema}.tasklib_chores IS 'Maintenance that one worker at a time does.';
COMMENT ON COLUMN {schema}.tasklib_chores.until IS 'until then it is somebody''s turn';
COMMENT ON COLUMN {schema}.tasklib_chores.position IS 'tasks.seq up to which it has come';

COMMENT ON TABLE {schema}.tasklib_stats_outcomes IS 'Attempts ended, by minute, later by hour: for charts.';
COMMENT ON COLUMN {schema}.tasklib_stats_outcomes.at IS 'begin of the minute or hour, in seconds since 1970';
COMMENT ON COLUMN {schema}.tasklib_stats_outcomes.waits IS 'histogram {bucket: count} of how long tasks waited after they were due; see core/insights/histogram.py';
COMMENT ON COLUMN {schema}.tasklib_stats_outcomes.runs IS 'histogram {bucket: count} of how long attempts ran';
COMMENT ON COLUMN {schema}.tasklib_stats_outcomes.fresh IS 'not yet merged with others of its minute';
COMMENT ON TABLE {schema}.tasklib_stats_depths IS 'How many tasks waited and ran, once a minute: for charts.';
COMMENT ON COLUMN {schema}.tasklib_stats_depths.at IS 'the minute, in seconds since 1970';
COMMENT ON TABLE {schema}.tasklib_stats_totals IS 'How many tasks of each name there are up to the position in tasklib_stats_position.';
COMMENT ON TABLE {schema}.tasklib_stats_position IS 'Up to where tasks are counted: one row.';
COMMENT ON COLUMN {schema}.tasklib_stats_position.seq IS 'tasks.seq up to which everything is counted';
COMMENT ON COLUMN {schema}.tasklib_stats_position.next_seq IS 'the next position, taken once no transaction can add rows before it';
COMMENT ON COLUMN {schema}.tasklib_stats_position.next_xid IS 'transactions before this one must have ended first';
COMMENT ON COLUMN {schema}.tasklib_stats_position.counted_at IS 'when the position last moved';
COMMENT ON COLUMN {schema}.tasklib_stats_position.merged_at IS 'when tasklib_stats_outcomes was last merged';
COMMENT ON TABLE {schema}.tasklib_stats_deleted IS 'Tasks deleted since the totals were last corrected.';
COMMENT ON COLUMN {schema}.tasklib_stats_deleted.seqs IS 'tasks.seq of the deleted tasks';
COMMENT ON TABLE {schema}.tasklib_stats_blocks IS 'Names and ages of the tasks in each 10,000 positions: lists skip blocks that cannot hold a match.';
COMMENT ON COLUMN {schema}.tasklib_stats_blocks.number IS '(tasks.seq - 1) / 10000';
COMMENT ON COLUMN {schema}.tasklib_stats_blocks.oldest IS 'no task of the block was created before';
COMMENT ON COLUMN {schema}.tasklib_stats_blocks.newest IS 'no task of the block was created after';
COMMENT ON COLUMN {schema}.tasklib_stats_blocks.names IS 'names of its tasks; NULL if there are too many';
