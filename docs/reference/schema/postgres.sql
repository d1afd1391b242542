-- The schema after every migration. Written by `make snapshot`; read it, never edit it.

CREATE DOMAIN {schema}.tasklib_steps_ask AS jsonb
	CONSTRAINT tasklib_steps_objects CHECK (((jsonb_typeof(VALUE) = 'object'::text) AND ((VALUE IS NULL) OR (NOT (jsonb_typeof((VALUE -> 'question'::text)) IS DISTINCT FROM 'string'::text)))));

CREATE DOMAIN {schema}.tasklib_steps_ended_at AS timestamp with time zone
	CONSTRAINT tasklib_steps_times_real CHECK (((VALUE >= '0001-01-02 00:00:00+00'::timestamp with time zone) AND (VALUE < '9999-12-31 00:00:00+00'::timestamp with time zone)));

CREATE DOMAIN {schema}.tasklib_steps_error AS jsonb
	CONSTRAINT tasklib_steps_objects CHECK ((jsonb_typeof(VALUE) = 'object'::text));

CREATE DOMAIN {schema}.tasklib_steps_key AS text COLLATE pg_catalog."C"
	CONSTRAINT tasklib_steps_key_short CHECK ((octet_length(VALUE) <= 1000));

CREATE DOMAIN {schema}.tasklib_steps_kind AS text COLLATE pg_catalog."C"
	CONSTRAINT tasklib_steps_kind_known CHECK ((VALUE = ANY (ARRAY['step'::text, 'sleep'::text, 'wait'::text, 'ask'::text, 'run'::text, 'map'::text, 'flow'::text, 'spend'::text])));

CREATE DOMAIN {schema}.tasklib_steps_started_at AS timestamp with time zone
	CONSTRAINT tasklib_steps_times_real CHECK (((VALUE >= '0001-01-02 00:00:00+00'::timestamp with time zone) AND (VALUE < '9999-12-31 00:00:00+00'::timestamp with time zone)));

CREATE DOMAIN {schema}.tasklib_steps_state AS text COLLATE pg_catalog."C"
	CONSTRAINT tasklib_steps_state_known CHECK ((VALUE = ANY (ARRAY['open'::text, 'done'::text, 'failed'::text])));

CREATE DOMAIN {schema}.tasklib_steps_until AS timestamp with time zone
	CONSTRAINT tasklib_steps_times_real CHECK (((VALUE >= '0001-01-02 00:00:00+00'::timestamp with time zone) AND (VALUE < '9999-12-31 00:00:00+00'::timestamp with time zone)));

CREATE DOMAIN {schema}.tasklib_tasks_attempts AS integer
	CONSTRAINT tasks_counters_sane CHECK (((VALUE >= 0) AND (VALUE <= 2000000000)));

CREATE DOMAIN {schema}.tasklib_tasks_cancel_requested_at AS timestamp with time zone
	CONSTRAINT tasks_times_real CHECK (((VALUE >= '0001-01-02 00:00:00+00'::timestamp with time zone) AND (VALUE < '9999-12-31 00:00:00+00'::timestamp with time zone)));

CREATE DOMAIN {schema}.tasklib_tasks_completed_at AS timestamp with time zone
	CONSTRAINT tasks_times_real CHECK (((VALUE >= '0001-01-02 00:00:00+00'::timestamp with time zone) AND (VALUE < '9999-12-31 00:00:00+00'::timestamp with time zone)));

CREATE DOMAIN {schema}.tasklib_tasks_concurrency_key AS text COLLATE pg_catalog."C"
	CONSTRAINT tasks_keys_short CHECK ((octet_length(VALUE) <= 1500));

CREATE DOMAIN {schema}.tasklib_tasks_created_at AS timestamp with time zone
	CONSTRAINT tasks_times_real CHECK (((VALUE >= '0001-01-02 00:00:00+00'::timestamp with time zone) AND (VALUE < '9999-12-31 00:00:00+00'::timestamp with time zone)));

CREATE DOMAIN {schema}.tasklib_tasks_expires_at AS timestamp with time zone
	CONSTRAINT tasks_times_real CHECK (((VALUE >= '0001-01-02 00:00:00+00'::timestamp with time zone) AND (VALUE < '9999-12-31 00:00:00+00'::timestamp with time zone)));

CREATE DOMAIN {schema}.tasklib_tasks_fingerprint AS text COLLATE pg_catalog."C"
	CONSTRAINT tasks_keys_short CHECK ((octet_length(VALUE) <= 1200));

CREATE DOMAIN {schema}.tasklib_tasks_headers AS jsonb
	CONSTRAINT tasks_json_objects CHECK ((jsonb_typeof(VALUE) = 'object'::text));

CREATE DOMAIN {schema}.tasklib_tasks_locked_until AS timestamp with time zone
	CONSTRAINT tasks_times_real CHECK (((VALUE >= '0001-01-02 00:00:00+00'::timestamp with time zone) AND (VALUE < '9999-12-31 00:00:00+00'::timestamp with time zone)));

CREATE DOMAIN {schema}.tasklib_tasks_lost_count AS integer
	CONSTRAINT tasks_counters_sane CHECK (((VALUE >= 0) AND (VALUE <= 2000000000)));

CREATE DOMAIN {schema}.tasklib_tasks_max_retries AS integer
	CONSTRAINT tasks_counters_sane CHECK ((VALUE >= '-1'::integer));

CREATE DOMAIN {schema}.tasklib_tasks_name AS text COLLATE pg_catalog."C"
	CONSTRAINT tasks_keys_short CHECK ((octet_length(VALUE) <= 1020))
	CONSTRAINT tasks_name_given CHECK ((VALUE <> ''::text));

CREATE DOMAIN {schema}.tasklib_tasks_next_retry_at AS timestamp with time zone
	CONSTRAINT tasks_times_real CHECK (((VALUE >= '0001-01-02 00:00:00+00'::timestamp with time zone) AND (VALUE < '9999-12-31 00:00:00+00'::timestamp with time zone)));

CREATE DOMAIN {schema}.tasklib_tasks_progress AS double precision
	CONSTRAINT tasks_progress_fraction CHECK (((VALUE >= (0)::double precision) AND (VALUE <= (1)::double precision)));

CREATE DOMAIN {schema}.tasklib_tasks_retry_count AS integer
	CONSTRAINT tasks_counters_sane CHECK ((VALUE >= 0));

CREATE DOMAIN {schema}.tasklib_tasks_scheduled_at AS timestamp with time zone
	CONSTRAINT tasks_times_real CHECK (((VALUE >= '0001-01-02 00:00:00+00'::timestamp with time zone) AND (VALUE < '9999-12-31 00:00:00+00'::timestamp with time zone)));

CREATE DOMAIN {schema}.tasklib_tasks_started_at AS timestamp with time zone
	CONSTRAINT tasks_times_real CHECK (((VALUE >= '0001-01-02 00:00:00+00'::timestamp with time zone) AND (VALUE < '9999-12-31 00:00:00+00'::timestamp with time zone)));

CREATE DOMAIN {schema}.tasklib_tasks_state AS text COLLATE pg_catalog."C"
	CONSTRAINT tasks_state_known CHECK ((VALUE = ANY (ARRAY['pending'::text, 'running'::text, 'completed'::text, 'failed'::text, 'cancelled'::text, 'buried'::text])));

CREATE DOMAIN {schema}.tasklib_tasks_tags AS jsonb
	CONSTRAINT tasks_json_objects CHECK ((jsonb_typeof(VALUE) = 'object'::text));

CREATE DOMAIN {schema}.tasklib_tasks_timeout_seconds AS double precision
	CONSTRAINT tasks_timeout_positive CHECK (((VALUE > (0)::double precision) AND (VALUE < ('1000000000'::numeric)::double precision)));

CREATE DOMAIN {schema}.tasklib_tasks_unique_key AS text
	CONSTRAINT tasks_keys_short CHECK ((octet_length(VALUE) <= 1500));

CREATE DOMAIN {schema}.tasklib_tasks_updated_at AS timestamp with time zone
	CONSTRAINT tasks_times_real CHECK (((VALUE >= '0001-01-02 00:00:00+00'::timestamp with time zone) AND (VALUE < '9999-12-31 00:00:00+00'::timestamp with time zone)));

CREATE DOMAIN {schema}.tasklib_tasks_version AS bigint
	CONSTRAINT tasks_counters_sane CHECK ((VALUE >= 0));

CREATE FUNCTION {schema}.tasklib_announce() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    PERFORM pg_notify('tasklib_' || left(md5(TG_TABLE_SCHEMA), 16), 'event');
    RETURN NULL;
END
$$;

CREATE FUNCTION {schema}.tasklib_call(schema_name text) RETURNS void
    LANGUAGE plpgsql
    AS $$
BEGIN
    PERFORM pg_notify('tasklib_' || left(md5(schema_name), 16), 'new:' || one.instance)
    FROM (
        SELECT DISTINCT ON (i.kind) i.instance FROM {schema}.tasklib_idle AS i WHERE i.until > now()
        ORDER BY i.kind, random()
    ) AS one;
END
$$;

CREATE FUNCTION {schema}.tasklib_drop_workflow() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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

CREATE FUNCTION {schema}.tasklib_hint() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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

CREATE FUNCTION {schema}.tasklib_stats_note_change() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
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

CREATE FUNCTION {schema}.tasklib_tally() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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

CREATE FUNCTION {schema}.tasklib_undo(workflow uuid, moment timestamp with time zone) RETURNS void
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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

CREATE FUNCTION {schema}.tasklib_wake() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    IF EXISTS (SELECT FROM {schema}.tasklib_idle WHERE until > now()) THEN
        PERFORM {schema}.tasklib_call(TG_TABLE_SCHEMA);
    END IF;
    RETURN NULL;
END
$$;

CREATE TABLE {schema}.tasklib_audit (
    seq bigint NOT NULL,
    at timestamp with time zone DEFAULT now() NOT NULL,
    actor text NOT NULL,
    role text NOT NULL,
    action text NOT NULL,
    target text,
    detail jsonb DEFAULT '{}'::jsonb NOT NULL,
    remote text,
    request_id text
);

ALTER TABLE {schema}.tasklib_audit ALTER COLUMN seq ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME {schema}.tasklib_audit_seq_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE {schema}.tasklib_budgets (
    name text NOT NULL COLLATE pg_catalog."C",
    rate double precision NOT NULL,
    burst double precision NOT NULL,
    tokens double precision NOT NULL,
    refilled_at timestamp with time zone NOT NULL,
    CONSTRAINT tasklib_budgets_burst_check CHECK (((burst > (0)::double precision) AND (burst < 'Infinity'::double precision))),
    CONSTRAINT tasklib_budgets_name_check CHECK (((name <> ''::text) AND (octet_length(name) <= 1000))),
    CONSTRAINT tasklib_budgets_rate_check CHECK (((rate > (0)::double precision) AND (rate < 'Infinity'::double precision)))
)
WITH (fillfactor='50', autovacuum_vacuum_cost_delay='0');

CREATE TABLE {schema}.tasklib_chores (
    name text NOT NULL COLLATE pg_catalog."C",
    until timestamp with time zone NOT NULL,
    "position" bigint DEFAULT 0 NOT NULL
)
WITH (fillfactor='50');

CREATE TABLE {schema}.tasklib_claims (
    instance uuid NOT NULL,
    seqs bigint[] DEFAULT '{}'::bigint[] NOT NULL,
    versions bigint[] DEFAULT '{}'::bigint[] NOT NULL,
    generation integer DEFAULT 0 NOT NULL
)
WITH (fillfactor='50', toast_tuple_target='8160', autovacuum_vacuum_threshold='500', autovacuum_vacuum_cost_delay='0');
ALTER TABLE ONLY {schema}.tasklib_claims ALTER COLUMN seqs SET STORAGE EXTERNAL;
ALTER TABLE ONLY {schema}.tasklib_claims ALTER COLUMN versions SET STORAGE EXTERNAL;

CREATE TABLE {schema}.tasklib_controls (
    name text NOT NULL COLLATE pg_catalog."C",
    paused_at timestamp with time zone,
    paused_by text,
    reason text,
    rate double precision,
    burst double precision,
    tokens double precision,
    refilled_at timestamp with time zone,
    max_running integer,
    declared jsonb,
    CONSTRAINT tasklib_controls_burst_check CHECK (((burst >= (1)::double precision) AND (burst < 'Infinity'::double precision))),
    CONSTRAINT tasklib_controls_declared_check CHECK (((jsonb_typeof(declared) = 'object'::text) AND (length((declared)::text) <= 300))),
    CONSTRAINT tasklib_controls_max_running_check CHECK ((max_running > 0)),
    CONSTRAINT tasklib_controls_rate_check CHECK (((rate > (0)::double precision) AND (rate < 'Infinity'::double precision))),
    CONSTRAINT tasklib_controls_times_real CHECK (((LEAST(paused_at, refilled_at) >= '0001-01-02 00:00:00+00'::timestamp with time zone) AND (GREATEST(paused_at, refilled_at) < '9999-12-31 00:00:00+00'::timestamp with time zone))),
    CONSTRAINT tasklib_controls_tokens_check CHECK (((tokens > '-Infinity'::double precision) AND (tokens < 'Infinity'::double precision)))
);

CREATE TABLE {schema}.tasklib_copied (
    id uuid NOT NULL
);

CREATE TABLE {schema}.tasklib_declarations (
    name text NOT NULL COLLATE pg_catalog."C",
    options jsonb NOT NULL,
    CONSTRAINT tasklib_declarations_options_check CHECK ((jsonb_typeof(options) = 'object'::text))
);

CREATE TABLE {schema}.tasklib_edges (
    task_id uuid NOT NULL,
    group_id uuid NOT NULL,
    param text COLLATE pg_catalog."C",
    number integer NOT NULL
);

CREATE TABLE {schema}.tasklib_error_marks (
    group_id text NOT NULL COLLATE pg_catalog."C",
    mark text NOT NULL COLLATE pg_catalog."C",
    set_at timestamp with time zone DEFAULT now() NOT NULL,
    set_by text,
    CONSTRAINT tasklib_error_marks_mark_check CHECK ((mark = ANY (ARRAY['muted'::text, 'resolved'::text])))
);

CREATE TABLE {schema}.tasklib_events (
    id bigint NOT NULL,
    name text NOT NULL COLLATE pg_catalog."C",
    task_id uuid,
    payload jsonb DEFAULT 'null'::jsonb NOT NULL,
    sender text,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    delivered_at timestamp with time zone,
    taken_by text,
    token uuid,
    CONSTRAINT tasklib_events_name_check CHECK (((name <> ''::text) AND (octet_length(name) <= 1000)))
);

ALTER TABLE {schema}.tasklib_events ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME {schema}.tasklib_events_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE {schema}.tasklib_groups (
    id uuid NOT NULL,
    task_id uuid NOT NULL,
    key text NOT NULL COLLATE pg_catalog."C",
    kind text NOT NULL COLLATE pg_catalog."C",
    run_if text COLLATE pg_catalog."C",
    total bigint DEFAULT 0 NOT NULL,
    sealed boolean DEFAULT false NOT NULL,
    ended bigint DEFAULT 0 NOT NULL,
    failed bigint DEFAULT 0 NOT NULL,
    cancelled bigint DEFAULT 0 NOT NULL,
    max_failures bigint,
    last_digest text COLLATE pg_catalog."C",
    fired_at timestamp with time zone,
    stopped_at timestamp with time zone,
    cleared_at timestamp with time zone,
    CONSTRAINT tasklib_groups_kind_check CHECK ((kind = ANY (ARRAY['run'::text, 'map'::text, 'flow'::text, 'after'::text, 'undo'::text, 'left'::text, 'gone'::text]))),
    CONSTRAINT tasklib_groups_run_if_check CHECK ((run_if = ANY (ARRAY['success'::text, 'failure'::text, 'end'::text])))
)
WITH (fillfactor='50', autovacuum_vacuum_cost_delay='0');

CREATE TABLE {schema}.tasklib_hints (
    id bigint NOT NULL,
    key text NOT NULL COLLATE pg_catalog."C",
    name text NOT NULL COLLATE pg_catalog."C",
    priority integer NOT NULL,
    ready_at timestamp with time zone NOT NULL
)
WITH (autovacuum_vacuum_threshold='500', autovacuum_vacuum_scale_factor='0.05', autovacuum_vacuum_cost_delay='0');

ALTER TABLE {schema}.tasklib_hints ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME {schema}.tasklib_hints_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE {schema}.tasklib_idempotency (
    key text NOT NULL COLLATE pg_catalog."C",
    fingerprint text NOT NULL,
    answer jsonb,
    created_at timestamp with time zone DEFAULT now() NOT NULL
);

CREATE UNLOGGED TABLE {schema}.tasklib_idle (
    instance uuid NOT NULL,
    kind text NOT NULL COLLATE pg_catalog."C",
    until timestamp with time zone NOT NULL
)
WITH (autovacuum_vacuum_threshold='200', autovacuum_vacuum_cost_delay='0');

CREATE TABLE {schema}.tasklib_key_limits (
    name text DEFAULT ''::text NOT NULL COLLATE pg_catalog."C",
    key text NOT NULL COLLATE pg_catalog."C",
    max_running integer NOT NULL,
    CONSTRAINT tasklib_key_limits_max_running_check CHECK ((max_running >= 0))
);

CREATE TABLE {schema}.tasklib_objectives (
    name text NOT NULL COLLATE pg_catalog."C",
    kind text NOT NULL COLLATE pg_catalog."C",
    within_seconds double precision NOT NULL,
    target double precision NOT NULL,
    set_at timestamp with time zone DEFAULT now() NOT NULL,
    set_by text,
    CONSTRAINT tasklib_objectives_kind_check CHECK ((kind = ANY (ARRAY['wait'::text, 'run'::text]))),
    CONSTRAINT tasklib_objectives_target_check CHECK (((target > (0)::double precision) AND (target < (100)::double precision))),
    CONSTRAINT tasklib_objectives_within_seconds_check CHECK ((within_seconds > (0)::double precision))
);

CREATE TABLE {schema}.tasklib_schedules (
    name text NOT NULL COLLATE pg_catalog."C",
    plan jsonb NOT NULL,
    next_run_at timestamp with time zone,
    last_run_at timestamp with time zone,
    last_task_id uuid,
    paused_at timestamp with time zone,
    paused_by text,
    declared_at timestamp with time zone,
    error text,
    held_until timestamp with time zone,
    version integer DEFAULT 0 NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT tasklib_schedules_times_real CHECK (((LEAST(next_run_at, last_run_at, paused_at, declared_at, held_until, created_at, updated_at) >= '0001-01-02 00:00:00+00'::timestamp with time zone) AND (GREATEST(next_run_at, last_run_at, paused_at, declared_at, held_until, created_at, updated_at) < '9999-12-31 00:00:00+00'::timestamp with time zone)))
)
WITH (fillfactor='50');

CREATE TABLE {schema}.tasklib_stats_blocks (
    number bigint NOT NULL,
    oldest timestamp with time zone NOT NULL,
    newest timestamp with time zone NOT NULL,
    names jsonb
)
WITH (fillfactor='50');

CREATE TABLE {schema}.tasklib_stats_deleted (
    name text NOT NULL COLLATE pg_catalog."C",
    seqs bigint[] NOT NULL
);

CREATE TABLE {schema}.tasklib_stats_depths (
    at bigint NOT NULL,
    name text NOT NULL COLLATE pg_catalog."C",
    due bigint NOT NULL,
    delayed bigint NOT NULL,
    retrying bigint NOT NULL,
    running bigint NOT NULL
);

CREATE TABLE {schema}.tasklib_stats_outcomes (
    at bigint NOT NULL,
    name text NOT NULL COLLATE pg_catalog."C",
    outcome text NOT NULL COLLATE pg_catalog."C",
    count bigint NOT NULL,
    waits jsonb DEFAULT '{}'::jsonb NOT NULL,
    runs jsonb DEFAULT '{}'::jsonb NOT NULL,
    fresh boolean DEFAULT true NOT NULL,
    CONSTRAINT tasklib_stats_outcomes_runs_check CHECK ((jsonb_typeof(runs) = 'object'::text)),
    CONSTRAINT tasklib_stats_outcomes_waits_check CHECK ((jsonb_typeof(waits) = 'object'::text))
);

CREATE TABLE {schema}.tasklib_stats_position (
    only_row boolean DEFAULT true NOT NULL,
    seq bigint DEFAULT 0 NOT NULL,
    next_seq bigint,
    next_xid xid8,
    counted_at timestamp with time zone,
    merged_at timestamp with time zone,
    CONSTRAINT tasklib_stats_position_only_row_check CHECK (only_row)
)
WITH (fillfactor='50');

CREATE TABLE {schema}.tasklib_stats_totals (
    name text NOT NULL COLLATE pg_catalog."C",
    count bigint NOT NULL
)
WITH (fillfactor='50');

CREATE TABLE {schema}.tasklib_steps (
    task_id uuid NOT NULL,
    key {schema}.tasklib_steps_key NOT NULL,
    number integer NOT NULL,
    kind {schema}.tasklib_steps_kind NOT NULL,
    state {schema}.tasklib_steps_state NOT NULL,
    version bigint NOT NULL,
    digest text COLLATE pg_catalog."C",
    value jsonb,
    error {schema}.tasklib_steps_error,
    until {schema}.tasklib_steps_until,
    tries integer DEFAULT 0 NOT NULL,
    note text,
    ask {schema}.tasklib_steps_ask,
    undo jsonb,
    started_at {schema}.tasklib_steps_started_at NOT NULL,
    ended_at {schema}.tasklib_steps_ended_at
)
WITH (fillfactor='80', autovacuum_vacuum_scale_factor='0.05', autovacuum_vacuum_cost_delay='0');

CREATE TABLE {schema}.tasklib_tallies (
    group_id uuid,
    task_id uuid,
    ended integer DEFAULT 0 NOT NULL,
    failed integer DEFAULT 0 NOT NULL,
    cancelled integer DEFAULT 0 NOT NULL
)
WITH (autovacuum_vacuum_threshold='500', autovacuum_vacuum_scale_factor='0.05', autovacuum_vacuum_cost_delay='0');

CREATE TABLE {schema}.tasklib_tokens (
    id uuid NOT NULL,
    name text NOT NULL,
    role text NOT NULL,
    hash text NOT NULL COLLATE pg_catalog."C",
    begins text NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    expires_at timestamp with time zone,
    last_used_at timestamp with time zone,
    revoked_at timestamp with time zone,
    CONSTRAINT tasklib_tokens_role_check CHECK ((role = ANY (ARRAY['producer'::text, 'worker'::text, 'viewer'::text, 'operator'::text, 'admin'::text])))
);

CREATE SEQUENCE {schema}.tasklib_versions
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;

CREATE TABLE {schema}.tasklib_waits (
    event text NOT NULL COLLATE pg_catalog."C",
    task_id uuid NOT NULL,
    key text NOT NULL COLLATE pg_catalog."C"
)
WITH (autovacuum_vacuum_scale_factor='0.05', autovacuum_vacuum_cost_delay='0');

CREATE TABLE {schema}.tasklib_worker_history (
    instance uuid NOT NULL,
    worker_id text NOT NULL,
    host text NOT NULL,
    pid integer NOT NULL,
    release text,
    started_at timestamp with time zone NOT NULL,
    heartbeat_at timestamp with time zone NOT NULL,
    ended_at timestamp with time zone NOT NULL,
    ending text NOT NULL COLLATE pg_catalog."C",
    tasks integer DEFAULT 0 NOT NULL,
    CONSTRAINT tasklib_worker_history_ending_check CHECK ((ending = ANY (ARRAY['stopped'::text, 'lost'::text]))),
    CONSTRAINT tasklib_worker_history_times_real CHECK (((LEAST(started_at, heartbeat_at, ended_at) >= '0001-01-02 00:00:00+00'::timestamp with time zone) AND (GREATEST(started_at, heartbeat_at, ended_at) < '9999-12-31 00:00:00+00'::timestamp with time zone)))
);

CREATE TABLE {schema}.tasklib_workers (
    instance uuid NOT NULL,
    worker_id text NOT NULL,
    host text NOT NULL,
    pid integer NOT NULL,
    started_at timestamp with time zone DEFAULT now() NOT NULL,
    heartbeat_at timestamp with time zone DEFAULT now() NOT NULL,
    timeout_seconds double precision NOT NULL,
    concurrency integer NOT NULL,
    names jsonb DEFAULT '[]'::jsonb NOT NULL,
    info jsonb DEFAULT '{}'::jsonb NOT NULL,
    owner text COLLATE pg_catalog."C",
    CONSTRAINT tasklib_workers_info_check CHECK ((jsonb_typeof(info) = 'object'::text)),
    CONSTRAINT tasklib_workers_names_check CHECK ((jsonb_typeof(names) = 'array'::text)),
    CONSTRAINT tasklib_workers_times_real CHECK (((LEAST(started_at, heartbeat_at) >= '0001-01-02 00:00:00+00'::timestamp with time zone) AND (GREATEST(started_at, heartbeat_at) < '9999-12-31 00:00:00+00'::timestamp with time zone)))
)
WITH (fillfactor='50');

CREATE TABLE {schema}.tasks (
    id uuid DEFAULT gen_random_uuid() NOT NULL,
    seq bigint NOT NULL,
    version {schema}.tasklib_tasks_version DEFAULT 0 NOT NULL,
    name {schema}.tasklib_tasks_name NOT NULL,
    state {schema}.tasklib_tasks_state DEFAULT 'pending'::text NOT NULL,
    scheduled_at {schema}.tasklib_tasks_scheduled_at DEFAULT now() NOT NULL,
    started_at {schema}.tasklib_tasks_started_at,
    completed_at {schema}.tasklib_tasks_completed_at,
    created_at {schema}.tasklib_tasks_created_at DEFAULT now() NOT NULL,
    updated_at {schema}.tasklib_tasks_updated_at DEFAULT now() NOT NULL,
    next_retry_at {schema}.tasklib_tasks_next_retry_at,
    locked_until {schema}.tasklib_tasks_locked_until,
    expires_at {schema}.tasklib_tasks_expires_at,
    cancel_requested_at {schema}.tasklib_tasks_cancel_requested_at,
    timeout_seconds {schema}.tasklib_tasks_timeout_seconds,
    progress {schema}.tasklib_tasks_progress,
    priority integer DEFAULT 0 NOT NULL,
    attempts {schema}.tasklib_tasks_attempts DEFAULT 0 NOT NULL,
    retry_count {schema}.tasklib_tasks_retry_count DEFAULT 0 NOT NULL,
    max_retries {schema}.tasklib_tasks_max_retries DEFAULT '-1'::integer NOT NULL,
    lost_count {schema}.tasklib_tasks_lost_count DEFAULT 0 NOT NULL,
    watched boolean DEFAULT false NOT NULL,
    args jsonb DEFAULT '{}'::jsonb NOT NULL,
    kwargs jsonb DEFAULT '{}'::jsonb NOT NULL,
    tags {schema}.tasklib_tasks_tags DEFAULT '{}'::jsonb NOT NULL,
    headers {schema}.tasklib_tasks_headers,
    result jsonb,
    history jsonb,
    log jsonb,
    error text,
    progress_message text,
    worker_id text,
    finished_by text,
    unique_key {schema}.tasklib_tasks_unique_key,
    concurrency_key {schema}.tasklib_tasks_concurrency_key,
    fingerprint {schema}.tasklib_tasks_fingerprint,
    waits_for text COLLATE pg_catalog."C",
    marks smallint,
    group_id uuid,
    due_at timestamp with time zone GENERATED ALWAYS AS (COALESCE((next_retry_at)::timestamp with time zone,
CASE
    WHEN (((state)::text = 'pending'::text) AND (waits_for IS NULL)) THEN (scheduled_at)::timestamp with time zone
    ELSE NULL::timestamp with time zone
END)) STORED,
    live_key text GENERATED ALWAYS AS (
CASE
    WHEN (completed_at IS NULL) THEN (unique_key)::text
    ELSE NULL::text
END) STORED,
    trouble text GENERATED ALWAYS AS (
CASE
    WHEN ((state)::text = ANY ('{failed,cancelled,buried}'::text[])) THEN (state)::text
    ELSE NULL::text
END) STORED COLLATE pg_catalog."C",
    slot_key text GENERATED ALWAYS AS (
CASE
    WHEN ((state)::text = 'running'::text) THEN (concurrency_key)::text
    ELSE NULL::text
END) STORED COLLATE pg_catalog."C",
    dead_at timestamp with time zone GENERATED ALWAYS AS (
CASE
    WHEN ((state)::text = ANY ('{failed,buried}'::text[])) THEN (completed_at)::timestamp with time zone
    ELSE NULL::timestamp with time zone
END) STORED,
    CONSTRAINT tasks_ended_when_terminal CHECK (((completed_at IS NULL) = (((state)::text = ANY ('{pending,running}'::text[])) OR (next_retry_at IS NOT NULL)))),
    CONSTRAINT tasks_leased_when_running CHECK ((((state)::text <> 'running'::text) OR (locked_until IS NOT NULL))),
    CONSTRAINT tasks_result_when_completed CHECK (((result IS NULL) OR ((state)::text = 'completed'::text))),
    CONSTRAINT tasks_retry_when_waiting CHECK (((next_retry_at IS NULL) OR ((state)::text = ANY ('{pending,failed}'::text[])))),
    CONSTRAINT tasks_suspended_when_pending CHECK (((waits_for IS NULL) OR ((state)::text = 'pending'::text)))
)
WITH (fillfactor='40', autovacuum_vacuum_scale_factor='0.02', autovacuum_vacuum_threshold='5000', autovacuum_vacuum_insert_scale_factor='0.05', autovacuum_analyze_scale_factor='0.05', autovacuum_analyze_threshold='5000', autovacuum_vacuum_cost_delay='0');

ALTER TABLE {schema}.tasks ALTER COLUMN seq ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME {schema}.tasks_seq_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

ALTER TABLE ONLY {schema}.tasklib_audit
    ADD CONSTRAINT tasklib_audit_pkey PRIMARY KEY (seq);

ALTER TABLE ONLY {schema}.tasklib_budgets
    ADD CONSTRAINT tasklib_budgets_pkey PRIMARY KEY (name);

ALTER TABLE ONLY {schema}.tasklib_chores
    ADD CONSTRAINT tasklib_chores_pkey PRIMARY KEY (name);

ALTER TABLE ONLY {schema}.tasklib_claims
    ADD CONSTRAINT tasklib_claims_pkey PRIMARY KEY (instance);

ALTER TABLE ONLY {schema}.tasklib_controls
    ADD CONSTRAINT tasklib_controls_pkey PRIMARY KEY (name);

ALTER TABLE ONLY {schema}.tasklib_copied
    ADD CONSTRAINT tasklib_copied_pkey PRIMARY KEY (id);

ALTER TABLE ONLY {schema}.tasklib_declarations
    ADD CONSTRAINT tasklib_declarations_pkey PRIMARY KEY (name);

ALTER TABLE ONLY {schema}.tasklib_edges
    ADD CONSTRAINT tasklib_edges_pkey PRIMARY KEY (task_id, group_id, number);

ALTER TABLE ONLY {schema}.tasklib_error_marks
    ADD CONSTRAINT tasklib_error_marks_pkey PRIMARY KEY (group_id);

ALTER TABLE ONLY {schema}.tasklib_events
    ADD CONSTRAINT tasklib_events_pkey PRIMARY KEY (id);

ALTER TABLE ONLY {schema}.tasklib_groups
    ADD CONSTRAINT tasklib_groups_pkey PRIMARY KEY (id);

ALTER TABLE ONLY {schema}.tasklib_idempotency
    ADD CONSTRAINT tasklib_idempotency_pkey PRIMARY KEY (key);

ALTER TABLE ONLY {schema}.tasklib_idle
    ADD CONSTRAINT tasklib_idle_pkey PRIMARY KEY (instance);

ALTER TABLE ONLY {schema}.tasklib_key_limits
    ADD CONSTRAINT tasklib_key_limits_pkey PRIMARY KEY (name, key);

ALTER TABLE ONLY {schema}.tasklib_objectives
    ADD CONSTRAINT tasklib_objectives_pkey PRIMARY KEY (name, kind);

ALTER TABLE ONLY {schema}.tasklib_schedules
    ADD CONSTRAINT tasklib_schedules_pkey PRIMARY KEY (name);

ALTER TABLE ONLY {schema}.tasklib_stats_blocks
    ADD CONSTRAINT tasklib_stats_blocks_pkey PRIMARY KEY (number);

ALTER TABLE ONLY {schema}.tasklib_stats_depths
    ADD CONSTRAINT tasklib_stats_depths_pkey PRIMARY KEY (at, name);

ALTER TABLE ONLY {schema}.tasklib_stats_position
    ADD CONSTRAINT tasklib_stats_position_pkey PRIMARY KEY (only_row);

ALTER TABLE ONLY {schema}.tasklib_stats_totals
    ADD CONSTRAINT tasklib_stats_totals_pkey PRIMARY KEY (name);

ALTER TABLE ONLY {schema}.tasklib_steps
    ADD CONSTRAINT tasklib_steps_pkey PRIMARY KEY (task_id, key);

ALTER TABLE ONLY {schema}.tasklib_tokens
    ADD CONSTRAINT tasklib_tokens_hash_key UNIQUE (hash);

ALTER TABLE ONLY {schema}.tasklib_tokens
    ADD CONSTRAINT tasklib_tokens_pkey PRIMARY KEY (id);

ALTER TABLE ONLY {schema}.tasklib_waits
    ADD CONSTRAINT tasklib_waits_pkey PRIMARY KEY (event, task_id, key);

ALTER TABLE ONLY {schema}.tasklib_worker_history
    ADD CONSTRAINT tasklib_worker_history_pkey PRIMARY KEY (instance);

ALTER TABLE ONLY {schema}.tasklib_workers
    ADD CONSTRAINT tasklib_workers_pkey PRIMARY KEY (instance);

ALTER TABLE ONLY {schema}.tasks
    ADD CONSTRAINT tasks_pkey PRIMARY KEY (id);

CREATE INDEX tasklib_edges_group ON {schema}.tasklib_edges USING btree (group_id);

CREATE INDEX tasklib_events_age ON {schema}.tasklib_events USING btree (created_at) WHERE (task_id IS NULL);

CREATE UNIQUE INDEX tasklib_events_fact ON {schema}.tasklib_events USING btree (name) WHERE (task_id IS NULL);

CREATE INDEX tasklib_events_message ON {schema}.tasklib_events USING btree (task_id, name, id) WHERE (taken_by IS NULL);

CREATE INDEX tasklib_events_new ON {schema}.tasklib_events USING btree (id) WHERE (delivered_at IS NULL);

CREATE INDEX tasklib_events_taken ON {schema}.tasklib_events USING btree (task_id) WHERE (taken_by IS NOT NULL);

CREATE UNIQUE INDEX tasklib_events_token ON {schema}.tasklib_events USING btree (token) WHERE (token IS NOT NULL);

CREATE INDEX tasklib_groups_owner ON {schema}.tasklib_groups USING btree (task_id);

CREATE INDEX tasklib_groups_stopped ON {schema}.tasklib_groups USING btree (id) WHERE ((stopped_at IS NOT NULL) AND (cleared_at IS NULL));

CREATE INDEX tasklib_hints_key ON {schema}.tasklib_hints USING btree (key);

CREATE INDEX tasklib_hints_turn ON {schema}.tasklib_hints USING btree (name, priority DESC, ready_at, id);

CREATE INDEX tasklib_idempotency_age ON {schema}.tasklib_idempotency USING btree (created_at);

CREATE INDEX tasklib_stats_outcomes_at ON {schema}.tasklib_stats_outcomes USING btree (at);

CREATE INDEX tasklib_steps_questions ON {schema}.tasklib_steps USING btree (started_at, task_id, key) WHERE (((kind)::text = 'ask'::text) AND ((state)::text = 'open'::text));

CREATE INDEX tasklib_tallies_group ON {schema}.tasklib_tallies USING btree (group_id);

CREATE INDEX tasklib_waits_task ON {schema}.tasklib_waits USING btree (task_id);

CREATE INDEX tasks_claim ON {schema}.tasks USING btree (name, priority DESC, due_at, seq) WHERE ((due_at IS NOT NULL) AND (concurrency_key IS NULL));

CREATE INDEX tasks_dead ON {schema}.tasks USING btree (name, fingerprint, dead_at) WHERE (dead_at IS NOT NULL);

CREATE INDEX tasks_keyed ON {schema}.tasks USING btree (concurrency_key, name, priority DESC, due_at, seq) WHERE ((due_at IS NOT NULL) AND (concurrency_key IS NOT NULL));

CREATE UNIQUE INDEX tasks_live_key ON {schema}.tasks USING btree (name, live_key) WHERE (live_key IS NOT NULL);

CREATE UNIQUE INDEX tasks_seq ON {schema}.tasks USING btree (seq);

CREATE INDEX tasks_slots ON {schema}.tasks USING btree (slot_key) WHERE (slot_key IS NOT NULL);

CREATE INDEX tasks_suspended ON {schema}.tasks USING btree (name, seq) INCLUDE (due_at, waits_for) WHERE (waits_for IS NOT NULL);

CREATE INDEX tasks_trouble ON {schema}.tasks USING btree (trouble, seq) INCLUDE (name, due_at, fingerprint) WHERE (trouble IS NOT NULL);

CREATE TRIGGER tasklib_events_announce AFTER INSERT ON {schema}.tasklib_events FOR EACH ROW WHEN ((new.token IS NULL)) EXECUTE FUNCTION {schema}.tasklib_announce();

CREATE TRIGGER tasks_deleted AFTER DELETE ON {schema}.tasks REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION {schema}.tasklib_stats_note_change();

CREATE TRIGGER tasks_hint_delete AFTER DELETE ON {schema}.tasks FOR EACH ROW WHEN ((old.slot_key IS NOT NULL)) EXECUTE FUNCTION {schema}.tasklib_hint();

CREATE TRIGGER tasks_hint_insert AFTER INSERT ON {schema}.tasks FOR EACH ROW WHEN ((new.concurrency_key IS NOT NULL)) EXECUTE FUNCTION {schema}.tasklib_hint();

CREATE TRIGGER tasks_hint_update AFTER UPDATE ON {schema}.tasks FOR EACH ROW WHEN (((old.concurrency_key IS NOT NULL) OR (new.concurrency_key IS NOT NULL))) EXECUTE FUNCTION {schema}.tasklib_hint();

CREATE TRIGGER tasks_renamed AFTER UPDATE OF seq, name, created_at ON {schema}.tasks FOR EACH STATEMENT EXECUTE FUNCTION {schema}.tasklib_stats_note_change();

CREATE TRIGGER tasks_tally AFTER UPDATE ON {schema}.tasks FOR EACH ROW WHEN (((old.marks IS NOT NULL) AND ((old.completed_at IS NULL) <> (new.completed_at IS NULL)) AND ((old.marks # new.marks) IS DISTINCT FROM 64))) EXECUTE FUNCTION {schema}.tasklib_tally();

CREATE TRIGGER tasks_tally_delete AFTER DELETE ON {schema}.tasks FOR EACH ROW WHEN (((old.completed_at IS NULL) AND ((old.group_id IS NOT NULL) OR (((old.marks)::integer & 50) > 0)))) EXECUTE FUNCTION {schema}.tasklib_tally();

CREATE TRIGGER tasks_truncated AFTER TRUNCATE ON {schema}.tasks FOR EACH STATEMENT EXECUTE FUNCTION {schema}.tasklib_stats_note_change();

CREATE TRIGGER tasks_wake AFTER INSERT ON {schema}.tasks FOR EACH STATEMENT EXECUTE FUNCTION {schema}.tasklib_wake();

CREATE TRIGGER tasks_workflow_delete AFTER DELETE ON {schema}.tasks FOR EACH ROW WHEN ((old.marks IS NOT NULL)) EXECUTE FUNCTION {schema}.tasklib_drop_workflow();
