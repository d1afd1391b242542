-- Every table of the queue with its indexes and triggers.  Those that only count are named tasklib_stats_….
-- min_compatible: 1

-- One row per task and everything about it.  Every column has a default, so that
-- INSERT INTO tasks (name, kwargs) VALUES (...) is a complete submission from any language.
-- Times are UTC text, YYYY-MM-DD HH:MM:SS.ffffff, which sorts by time and is what SQLite's date functions read and write.
CREATE TABLE tasks (
    -- One row per task: everything about it. INSERT INTO tasks (name, kwargs) submits one.
    -- Insertion order; AUTOINCREMENT because SQLite may otherwise reuse the numbers of deleted rows.
    seq                 INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,  -- insertion order, given by the database
    id                  TEXT    NOT NULL UNIQUE DEFAULT (
        lower(hex(randomblob(4)) || '-' || hex(randomblob(2)) || '-4' || substr(hex(randomblob(2)), 2) || '-'
        || substr('89ab', 1 + (abs(random()) % 4), 1) || substr(hex(randomblob(2)), 2) || '-' || hex(randomblob(6)))
    ),
    name                TEXT    NOT NULL,
    state               TEXT    NOT NULL DEFAULT 'pending',
    -- not started before this moment
    scheduled_at        TEXT    NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now')),
    started_at          TEXT,
    completed_at        TEXT,  -- when it ended; set exactly in completed, cancelled, buried and finally failed tasks
    created_at          TEXT    NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now')),
    updated_at          TEXT    NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now')),
    next_retry_at       TEXT,  -- when it is due again after a failed attempt
    locked_until        TEXT,  -- end of the lease of the worker that runs it
    expires_at          TEXT,
    cancel_requested_at TEXT,  -- when a person asked to stop it
    timeout_seconds     REAL,
    progress            REAL,
    priority            INTEGER NOT NULL DEFAULT 0,
    version             INTEGER NOT NULL DEFAULT 0,  -- fencing token of the last claim: never given twice
    attempts            INTEGER NOT NULL DEFAULT 0,  -- attempts started
    retry_count         INTEGER NOT NULL DEFAULT 0,  -- attempts that failed and were followed by another
    -- -1: whoever claims the task first decides, by its declaration or the settings, and writes the number here.
    -- attempts allowed after the first; -1 until the first claim decides
    max_retries         INTEGER NOT NULL DEFAULT -1,
    lost_count          INTEGER NOT NULL DEFAULT 0,  -- how often its worker vanished
    args                TEXT    NOT NULL DEFAULT '{}',  -- reserved
    kwargs              TEXT    NOT NULL DEFAULT '{}',  -- its input: an object of named arguments for functions
    tags                TEXT    NOT NULL DEFAULT '{}',
    headers             TEXT,  -- carried along from the submission: tenant, request, trace
    result              TEXT,  -- {"value": …} of a completed task
    -- the last 20 attempts that did not succeed: [{number, started_at, ended_at, worker_id, outcome, error}]
    history             TEXT,
    log                 TEXT,  -- the last 200 lines it logged: [{attempt, elapsed, level, text}]
    error               TEXT,
    progress_message    TEXT,
    worker_id           TEXT,  -- who runs it now
    finished_by         TEXT,  -- who ran it last
    unique_key          TEXT,  -- at most one live task of a name has it
    concurrency_key     TEXT,  -- tasks with the same one share a limit, see tasklib_key_limits
    fingerprint         TEXT,  -- kind of the last failure: equal for tasks that failed in the same way
    -- what a suspended workflow waits for: sleep, retry, event, answer, children, budget, code, and the name
    waits_for           TEXT,
    marks               INTEGER,  -- of workflows, as bits: 1 is a child that somebody waits for, 2 has undos, 4 has steps, 16 has children, 32 is before others
    group_id            TEXT,  -- the children that it is one of

    -- What the indexes look at: the same columns as on PostgreSQL, so that finishing a task changes no index.
    -- generated: when it may start next, if it waits
    due_at   TEXT GENERATED ALWAYS AS (
        coalesce(next_retry_at, CASE WHEN state = 'pending' AND waits_for IS NULL THEN scheduled_at END)
    ) VIRTUAL,
    -- generated: the unique key, while it is not terminal
    live_key TEXT GENERATED ALWAYS AS (CASE WHEN completed_at IS NULL THEN unique_key END) VIRTUAL,
    -- Not IN: from three values on SQLite builds a table of them in memory, for every row.
    -- generated: the state, if failed, cancelled or buried
    trouble  TEXT GENERATED ALWAYS AS (
        CASE WHEN state = 'failed' OR state = 'cancelled' OR state = 'buried' THEN state END
    ) VIRTUAL,
    -- generated: the concurrency key, while it runs
    slot_key TEXT GENERATED ALWAYS AS (CASE WHEN state = 'running' THEN concurrency_key END) VIRTUAL,
    -- generated: when it failed for good or was buried
    dead_at  TEXT GENERATED ALWAYS AS (CASE WHEN state IN ('failed', 'buried') THEN completed_at END) VIRTUAL,

    CONSTRAINT tasks_name_given CHECK (name <> ''),
    CONSTRAINT tasks_state_known CHECK (
        state = 'pending' OR state = 'running' OR state = 'completed' OR state = 'failed' OR state = 'cancelled'
        OR state = 'buried'
    ),
    CONSTRAINT tasks_ended_when_terminal CHECK (
        (completed_at IS NULL) = (state IN ('pending', 'running') OR next_retry_at IS NOT NULL)
    ),
    CONSTRAINT tasks_retry_when_waiting CHECK (next_retry_at IS NULL OR state IN ('pending', 'failed')),
    CONSTRAINT tasks_suspended_when_pending CHECK (waits_for IS NULL OR state = 'pending'),
    CONSTRAINT tasks_leased_when_running CHECK (state <> 'running' OR locked_until IS NOT NULL),
    CONSTRAINT tasks_result_when_completed CHECK (result IS NULL OR state = 'completed'),
    CONSTRAINT tasks_counters_sane CHECK (
        min(version, attempts, retry_count, lost_count) >= 0 AND max_retries >= -1
        AND max(attempts, lost_count) <= 2000000000
    ),
    CONSTRAINT tasks_timeout_positive CHECK (timeout_seconds > 0 AND timeout_seconds < 1e9),
    CONSTRAINT tasks_progress_fraction CHECK (progress BETWEEN 0 AND 1),
    -- PostgreSQL's column types say this; here it must be said.  SQLite looks only at what a statement changes.
    CONSTRAINT tasks_json_valid CHECK (
        json_valid(args) AND json_valid(kwargs) AND json_valid(tags)
        AND (headers IS NULL OR json_valid(headers)) AND (result IS NULL OR json_valid(result))
        AND (history IS NULL OR json_valid(history)) AND (log IS NULL OR json_valid(log))
    ),
    CONSTRAINT tasks_json_objects CHECK (json_type(tags) = 'object' AND json_type(headers) = 'object'),
    -- As on PostgreSQL, whose indexes take no longer ones.
    CONSTRAINT tasks_keys_short CHECK (
        length(CAST(name AS BLOB)) <= 1020 AND length(CAST(unique_key AS BLOB)) <= 1500
        AND length(CAST(concurrency_key AS BLOB)) <= 1500 AND length(CAST(fingerprint AS BLOB)) <= 1200
    ),
    -- PostgreSQL keeps no text with a NUL.
    CONSTRAINT tasks_keys_text CHECK (
        (concurrency_key IS NULL OR instr(concurrency_key, char(0)) = 0)
        AND (unique_key IS NULL OR instr(unique_key, char(0)) = 0) AND instr(name, char(0)) = 0
    ),
    CONSTRAINT tasks_seq_given CHECK (seq > 0),
    CONSTRAINT tasks_id_uuid CHECK (
        length(id) = 36 AND id NOT GLOB '*[^-0-9a-f]*' AND id GLOB '????????-????-????-????-????????????'
        AND length(replace(id, '-', '')) = 32
    ),
    CONSTRAINT tasks_priority_fits CHECK (priority BETWEEN -2147483648 AND 2147483647),
    -- Times that a calendar knows, in the one form that sorts; the fraction of a second may be missing.
    -- Most tasks are due when they are made, and that moment is checked below.
    CONSTRAINT tasks_scheduled_at_real CHECK (scheduled_at = created_at OR (
        strftime('%Y-%m-%d %H:%M:%S', substr(scheduled_at, 1, 19), '+0 days') IS substr(scheduled_at, 1, 19)
        AND scheduled_at BETWEEN '0001-01-02' AND '9999-12-31' AND length(scheduled_at) <= 26 AND scheduled_at NOT GLOB '*.'
        AND rtrim(substr(scheduled_at, 20), '0123456789') IN ('', '.')
    )),
    CONSTRAINT tasks_created_at_real CHECK (
        strftime('%Y-%m-%d %H:%M:%S', substr(created_at, 1, 19), '+0 days') IS substr(created_at, 1, 19)
        AND created_at BETWEEN '0001-01-02' AND '9999-12-31' AND length(created_at) <= 26 AND created_at NOT GLOB '*.'
        AND rtrim(substr(created_at, 20), '0123456789') IN ('', '.')
    ),
    CONSTRAINT tasks_next_retry_at_real CHECK (next_retry_at IS NULL OR (
        strftime('%Y-%m-%d %H:%M:%S', substr(next_retry_at, 1, 19), '+0 days') IS substr(next_retry_at, 1, 19)
        AND next_retry_at BETWEEN '0001-01-02' AND '9999-12-31' AND length(next_retry_at) <= 26 AND next_retry_at NOT GLOB '*.'
        AND rtrim(substr(next_retry_at, 20), '0123456789') IN ('', '.')
    )),
    CONSTRAINT tasks_expires_at_real CHECK (expires_at IS NULL OR (
        strftime('%Y-%m-%d %H:%M:%S', substr(expires_at, 1, 19), '+0 days') IS substr(expires_at, 1, 19)
        AND expires_at BETWEEN '0001-01-02' AND '9999-12-31' AND length(expires_at) <= 26 AND expires_at NOT GLOB '*.'
        AND rtrim(substr(expires_at, 20), '0123456789') IN ('', '.')
    ))
) STRICT;

-- As GENERATED ALWAYS on PostgreSQL; -1 is what SQLite shows here where no number is given, and the CHECK refuses it.
CREATE TRIGGER tasks_seq BEFORE INSERT ON tasks
WHEN NEW.seq <> -1
BEGIN
    SELECT raise(ABORT, 'seq is given by the database; leave it out');
END;

-- Tasks with a concurrency key wait apart, key by key: however many a key holds back, no claim walks over them.
CREATE INDEX tasks_claim ON tasks (name, priority DESC, due_at, seq) WHERE due_at IS NOT NULL AND concurrency_key IS NULL;
CREATE INDEX tasks_keyed ON tasks (concurrency_key, name, priority DESC, due_at, seq)
    WHERE due_at IS NOT NULL AND concurrency_key IS NOT NULL;
CREATE INDEX tasks_slots ON tasks (slot_key) WHERE slot_key IS NOT NULL;
CREATE UNIQUE INDEX tasks_live_key ON tasks (name, live_key) WHERE live_key IS NOT NULL;
-- With what counts by name and lists of one kind of failure need, so that they read this index alone.
CREATE INDEX tasks_trouble ON tasks (trouble, seq, name, due_at, fingerprint) WHERE trouble IS NOT NULL;
CREATE INDEX tasks_dead ON tasks (name, fingerprint, dead_at) WHERE dead_at IS NOT NULL;
-- What is suspended, to count and list it; only there does anything enter or leave it.
CREATE INDEX tasks_suspended ON tasks (name, seq, due_at, waits_for) WHERE waits_for IS NOT NULL;

-- The last version that a claim was given.
CREATE TABLE tasklib_versions (
    only_row INTEGER NOT NULL DEFAULT 1 PRIMARY KEY CHECK (only_row = 1),
    last     INTEGER NOT NULL DEFAULT 0
) STRICT;
INSERT INTO tasklib_versions DEFAULT VALUES;

CREATE TABLE tasklib_workers (
    -- Worker instances and their heartbeats.
    instance        TEXT    NOT NULL PRIMARY KEY,  -- one run of one worker; a worker_id may be used again, this is not
    worker_id       TEXT    NOT NULL,
    host            TEXT    NOT NULL,
    pid             INTEGER NOT NULL,
    started_at      TEXT    NOT NULL,
    heartbeat_at    TEXT    NOT NULL,
    timeout_seconds REAL    NOT NULL,  -- after this long without a heartbeat the instance counts as dead
    concurrency     INTEGER NOT NULL,
    names           TEXT    NOT NULL DEFAULT '[]' CHECK (json_type(names) = 'array'),  -- the task names it runs
    -- what it reports with its heartbeat: memory, limits of its own, stuck threads
    info            TEXT    NOT NULL DEFAULT '{}' CHECK (json_type(info) = 'object'),
    owner           TEXT,  -- the token that registered it over HTTP; NULL for a worker on the database itself
    CONSTRAINT tasklib_workers_started_at_real CHECK (
        strftime('%s', started_at) IS NOT NULL AND started_at GLOB '[0-9]???-??-?? ??:??:??*' AND started_at BETWEEN '0001-01-02' AND '9999-12-31'
    ),
    CONSTRAINT tasklib_workers_heartbeat_at_real CHECK (
        strftime('%s', heartbeat_at) IS NOT NULL AND heartbeat_at GLOB '[0-9]???-??-?? ??:??:??*' AND heartbeat_at BETWEEN '0001-01-02' AND '9999-12-31'
    )
) STRICT, WITHOUT ROWID;

CREATE TABLE tasklib_worker_history (
    -- Worker instances that have ended, for a week.
    instance     TEXT    NOT NULL PRIMARY KEY,
    worker_id    TEXT    NOT NULL,
    host         TEXT    NOT NULL,
    pid          INTEGER NOT NULL,
    release      TEXT,  -- the release of the code that it ran, if it was given one
    started_at   TEXT    NOT NULL,
    heartbeat_at TEXT    NOT NULL,
    ended_at     TEXT    NOT NULL,
    -- stopped: in order; lost: it was killed or stopped answering
    ending       TEXT    NOT NULL CHECK (ending IN ('stopped', 'lost')),
    tasks        INTEGER NOT NULL DEFAULT 0  -- how many tasks it held then, which others run again
) STRICT, WITHOUT ROWID;

CREATE TABLE tasklib_claims (
    -- Which tasks each worker instance holds, as of its last claim.
    instance   TEXT    NOT NULL PRIMARY KEY,
    seqs       TEXT    NOT NULL DEFAULT '[]' CHECK (json_type(seqs) = 'array'),  -- tasks.seq of the tasks held
    -- tasks.version of each: the entry is stale once the task has another or has ended
    versions   TEXT    NOT NULL DEFAULT '[]' CHECK (json_type(versions) = 'array'),
    generation INTEGER NOT NULL DEFAULT 0  -- claims sent in an earlier generation take nothing
) STRICT;

CREATE TABLE tasklib_controls (
    -- Pauses and limits: one row per task name, and one named '' for everything.
    name        TEXT NOT NULL PRIMARY KEY,
    paused_at   TEXT,
    paused_by   TEXT,
    reason      TEXT,
    rate        REAL CHECK (rate > 0 AND rate < 9e999),  -- tasks that may start in a second
    burst       REAL CHECK (burst >= 1 AND burst < 9e999),  -- starts that the token bucket holds; NULL for one second's worth, and at least one
    tokens      REAL,  -- starts left in the token bucket at refilled_at
    refilled_at TEXT,
    max_running INTEGER CHECK (max_running > 0),  -- tasks that may run at once
    -- the limits that code declared when they were last stored: {rate, burst, max_running}
    declared    TEXT CHECK (declared IS NULL OR (json_type(declared) = 'object' AND length(declared) <= 300)),
    CONSTRAINT tasklib_controls_paused_at_real CHECK (
        paused_at IS NULL OR (strftime('%s', paused_at) IS NOT NULL AND paused_at GLOB '[0-9]???-??-?? ??:??:??*' AND paused_at BETWEEN '0001-01-02' AND '9999-12-31')
    ),
    CONSTRAINT tasklib_controls_refilled_at_real CHECK (
        refilled_at IS NULL OR (strftime('%s', refilled_at) IS NOT NULL AND refilled_at GLOB '[0-9]???-??-?? ??:??:??*' AND refilled_at BETWEEN '0001-01-02' AND '9999-12-31')
    )
) STRICT, WITHOUT ROWID;

CREATE TABLE tasklib_key_limits (
    -- How many tasks of a concurrency key may run at once.
    -- tasks of this name only, counted by themselves; '' for all names together
    name        TEXT    NOT NULL DEFAULT '',
    key         TEXT    NOT NULL,  -- the concurrency key; '' for every other key
    max_running INTEGER NOT NULL CHECK (max_running >= 0),  -- 0 is unlimited
    PRIMARY KEY (name, key)
) STRICT, WITHOUT ROWID;

-- Where a task with a concurrency key may be able to start, as on PostgreSQL.  Nobody reads while another writes, so
-- equal hints need not be kept apart.
CREATE TABLE tasklib_hints (
    -- Concurrency keys of which a task may be able to start: where the next claim should look.
    id       INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    key      TEXT    NOT NULL,
    name     TEXT    NOT NULL,  -- the waiting task's name; '' when a slot of the key became free
    priority INTEGER NOT NULL,
    ready_at TEXT    NOT NULL,  -- when the task is due
    UNIQUE (key, name, priority, ready_at)
) STRICT;
CREATE INDEX tasklib_hints_turn ON tasklib_hints (name, priority DESC, ready_at, id);

CREATE TRIGGER tasks_hint_insert AFTER INSERT ON tasks
WHEN NEW.concurrency_key IS NOT NULL AND NEW.due_at IS NOT NULL
BEGIN
    INSERT OR IGNORE INTO tasklib_hints (key, name, priority, ready_at)
    VALUES (NEW.concurrency_key, NEW.name, NEW.priority, NEW.due_at);
END;
CREATE TRIGGER tasks_hint_wait AFTER UPDATE ON tasks
WHEN NEW.concurrency_key IS NOT NULL AND NEW.due_at IS NOT NULL AND (
    OLD.due_at IS NOT NEW.due_at OR OLD.concurrency_key IS NOT NEW.concurrency_key OR OLD.priority <> NEW.priority
    OR OLD.name <> NEW.name
)
BEGIN
    INSERT OR IGNORE INTO tasklib_hints (key, name, priority, ready_at)
    VALUES (NEW.concurrency_key, NEW.name, NEW.priority, NEW.due_at);
END;
CREATE TRIGGER tasks_hint_free AFTER UPDATE ON tasks
WHEN OLD.slot_key IS NOT NULL AND NEW.slot_key IS NOT OLD.slot_key
BEGIN
    INSERT OR IGNORE INTO tasklib_hints (key, name, priority, ready_at) VALUES (OLD.slot_key, '', 0, '');
END;
CREATE TRIGGER tasks_hint_delete AFTER DELETE ON tasks
WHEN OLD.slot_key IS NOT NULL
BEGIN
    INSERT OR IGNORE INTO tasklib_hints (key, name, priority, ready_at) VALUES (OLD.slot_key, '', 0, '');
END;

CREATE TABLE tasklib_steps (
    -- What workflows have recorded: a step that is done is never run again.
    task_id    TEXT    NOT NULL,
    -- its name, with #2 for the second of that name, or with the key that the code gives
    key        TEXT    NOT NULL CHECK (length(CAST(key AS BLOB)) <= 1000),
    number     INTEGER NOT NULL,  -- the order in which the function came to it first
    kind       TEXT    NOT NULL CHECK (kind IN ('step', 'sleep', 'wait', 'ask', 'run', 'map', 'flow', 'spend')),
    state      TEXT    NOT NULL CHECK (state IN ('open', 'done', 'failed')),
    version    INTEGER NOT NULL,  -- the claim that wrote it
    digest     TEXT,  -- hash of the function and its arguments
    value      TEXT CHECK (value IS NULL OR json_valid(value)),
    error      TEXT CHECK (error IS NULL OR json_type(error) = 'object'),  -- {type, message} of a step that failed
    until      TEXT,  -- end of a sleep, of patience, or of the pause before the next try
    tries      INTEGER NOT NULL DEFAULT 0,  -- how often it has failed in a row
    note       TEXT,  -- what was odd about it when it was last found: other arguments than recorded
    -- of a question to a person: {question, schema}
    ask        TEXT CHECK (ask IS NULL OR (json_type(ask) = 'object' AND json_type(ask, '$.question') IS 'text')),
    -- the task that undoes it, submitted if the workflow ends without success
    undo       TEXT CHECK (undo IS NULL OR json_valid(undo)),
    started_at TEXT    NOT NULL,
    ended_at   TEXT,
    PRIMARY KEY (task_id, key),
    CONSTRAINT tasklib_steps_started_at_real CHECK (
        strftime('%s', started_at) IS NOT NULL AND started_at GLOB '[0-9]???-??-?? ??:??:??*' AND started_at BETWEEN '0001-01-02' AND '9999-12-31'
    ),
    CONSTRAINT tasklib_steps_ended_at_real CHECK (
        ended_at IS NULL OR (strftime('%s', ended_at) IS NOT NULL AND ended_at GLOB '[0-9]???-??-?? ??:??:??*' AND ended_at BETWEEN '0001-01-02' AND '9999-12-31')
    ),
    CONSTRAINT tasklib_steps_until_real CHECK (
        until IS NULL OR (strftime('%s', until) IS NOT NULL AND until GLOB '[0-9]???-??-?? ??:??:??*' AND until BETWEEN '0001-01-02' AND '9999-12-31')
    )
) STRICT, WITHOUT ROWID;
-- Questions that wait for a person are listed without looking at whatever else waits.
CREATE INDEX tasklib_steps_questions ON tasklib_steps (started_at, task_id, key) WHERE kind = 'ask' AND state = 'open';


CREATE TABLE tasklib_waits (
    -- Which open steps wait for which events.
    event   TEXT NOT NULL,
    task_id TEXT NOT NULL,
    key     TEXT NOT NULL,
    PRIMARY KEY (event, task_id, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX tasklib_waits_task ON tasklib_waits (task_id);

CREATE TABLE tasklib_events (
    -- Events: INSERT INTO tasklib_events (name, payload) notifies whoever waits for it, now or later.
    id           INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    name         TEXT    NOT NULL CHECK (name <> '' AND length(CAST(name AS BLOB)) <= 1000),
    task_id      TEXT,  -- the one task that a message is for; NULL for a fact
    payload      TEXT    NOT NULL DEFAULT 'null' CHECK (json_valid(payload)),
    sender       TEXT,
    created_at   TEXT    NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now')),
    delivered_at TEXT,  -- when those who waited for it had it; NULL: not yet
    taken_by     TEXT,  -- the step that took a message
    token        TEXT  -- made by the sender, so that an emit repeated after a lost reply is one event; NULL by SQL
) STRICT;
CREATE UNIQUE INDEX tasklib_events_token ON tasklib_events (token) WHERE token IS NOT NULL;
CREATE UNIQUE INDEX tasklib_events_fact ON tasklib_events (name) WHERE task_id IS NULL;
CREATE INDEX tasklib_events_message ON tasklib_events (task_id, name, id) WHERE taken_by IS NULL;
CREATE INDEX tasklib_events_taken ON tasklib_events (task_id) WHERE taken_by IS NOT NULL;
CREATE INDEX tasklib_events_new ON tasklib_events (id) WHERE delivered_at IS NULL;
CREATE INDEX tasklib_events_age ON tasklib_events (created_at) WHERE task_id IS NULL;

CREATE TABLE tasklib_groups (
    -- Children that a workflow waits for.
    id           TEXT    NOT NULL PRIMARY KEY,
    task_id      TEXT    NOT NULL,  -- the workflow
    key          TEXT    NOT NULL,  -- its step that waits
    kind         TEXT    NOT NULL CHECK (kind IN ('run', 'map', 'flow', 'after', 'undo', 'left', 'gone')),
    -- of what is before a task: how that must end for it to run
    run_if       TEXT    CHECK (run_if IS NULL OR run_if IN ('success', 'failure', 'end')),
    total        INTEGER NOT NULL DEFAULT 0,  -- children stored so far
    sealed       INTEGER NOT NULL DEFAULT 0,  -- no more will come
    ended        INTEGER NOT NULL DEFAULT 0,
    failed       INTEGER NOT NULL DEFAULT 0,
    cancelled    INTEGER NOT NULL DEFAULT 0,
    max_failures INTEGER,
    -- hash of the inputs stored so far, while more may come: who stores more sees whether they are still the same; over
    -- HTTP of those stored last
    last_digest  TEXT,
    fired_at     TEXT,  -- when the workflow was notified that all have ended, or too many failed
    stopped_at   TEXT,  -- when the rest was to be cancelled
    cleared_at   TEXT  -- when the rest was cancelled
) STRICT, WITHOUT ROWID;
CREATE INDEX tasklib_groups_owner ON tasklib_groups (task_id);
CREATE INDEX tasklib_groups_stopped ON tasklib_groups (id) WHERE stopped_at IS NOT NULL AND cleared_at IS NULL;

CREATE TABLE tasklib_edges (
    -- Which tasks are before others in flows.
    task_id  TEXT    NOT NULL,
    group_id TEXT    NOT NULL,
    param    TEXT,  -- the argument that its result becomes
    number   INTEGER NOT NULL,
    PRIMARY KEY (task_id, group_id, number)
) STRICT, WITHOUT ROWID;
CREATE INDEX tasklib_edges_group ON tasklib_edges (group_id);

CREATE TABLE tasklib_budgets (
    -- Budgets: tokens that workflows spend, refilled at a rate.
    name        TEXT NOT NULL PRIMARY KEY CHECK (name <> '' AND length(CAST(name AS BLOB)) <= 1000),
    rate        REAL NOT NULL CHECK (rate > 0 AND rate < 9e999),  -- tokens that come in a second
    burst       REAL NOT NULL CHECK (burst > 0 AND burst < 9e999),  -- tokens that it holds at most
    tokens      REAL NOT NULL,  -- tokens that were left at refilled_at
    refilled_at TEXT NOT NULL  -- when tokens were last counted
) STRICT, WITHOUT ROWID;

CREATE TABLE tasklib_objectives (
    -- How many tasks should start, or end, within a time.
    name           TEXT NOT NULL,  -- the task name; '' for all names together
    kind           TEXT NOT NULL CHECK (kind IN ('wait', 'run')),  -- wait: from due to started; run: from started to ended
    within_seconds REAL NOT NULL CHECK (within_seconds > 0),  -- seconds that they should take at most
    target         REAL NOT NULL CHECK (target > 0 AND target < 100),  -- percent of the attempts
    set_at         TEXT NOT NULL,  -- when it was set
    set_by         TEXT,  -- who set it, as far as known
    PRIMARY KEY (name, kind)
) WITHOUT ROWID;

CREATE TABLE tasklib_error_marks (
    -- What people decided about groups of errors.
    group_id TEXT NOT NULL PRIMARY KEY,  -- the id of the group, a hash of the task name and the fingerprint
    mark     TEXT NOT NULL CHECK (mark IN ('muted', 'resolved')),  -- muted: not reported; resolved: not expected after set_at
    set_at   TEXT NOT NULL,  -- when it was decided
    set_by   TEXT  -- who decided it, as far as known
) WITHOUT ROWID;

CREATE TABLE tasklib_copied (
    -- What copies from other databases have brought here, also if it is gone since.
    id TEXT NOT NULL PRIMARY KEY  -- of a task or a group; of a fact or a setting a hash of its kind and name
) STRICT, WITHOUT ROWID;

CREATE TABLE tasklib_tallies (
    -- What has happened to children and to those who wait for them since it was last added up.
    group_id  TEXT,
    -- a workflow that ended without success: its children are to be cancelled; with a group, one that was deleted
    task_id   TEXT,
    ended     INTEGER NOT NULL DEFAULT 0,
    failed    INTEGER NOT NULL DEFAULT 0,
    cancelled INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX tasklib_tallies_group ON tasklib_tallies (group_id);

CREATE TRIGGER tasks_tally AFTER UPDATE ON tasks
WHEN (OLD.completed_at IS NULL) <> (NEW.completed_at IS NULL) AND OLD.group_id IS NOT NULL
BEGIN
    INSERT INTO tasklib_tallies (group_id, ended, failed, cancelled)
    SELECT OLD.group_id, s.step, s.step * (s.state IN ('failed', 'buried')), s.step * (s.state = 'cancelled')
    FROM (
        SELECT iif(NEW.completed_at IS NULL, -1, 1) AS step, iif(NEW.completed_at IS NULL, OLD.state, NEW.state) AS state
    ) AS s;
END;
CREATE TRIGGER tasks_tally_edges AFTER UPDATE ON tasks
WHEN (OLD.completed_at IS NULL) <> (NEW.completed_at IS NULL) AND OLD.marks & 32 > 0
BEGIN
    INSERT INTO tasklib_tallies (group_id, ended, failed, cancelled)
    SELECT DISTINCT e.group_id, s.step, s.step * (s.state IN ('failed', 'buried')), s.step * (s.state = 'cancelled')
    FROM tasklib_edges AS e CROSS JOIN (
        SELECT iif(NEW.completed_at IS NULL, -1, 1) AS step, iif(NEW.completed_at IS NULL, OLD.state, NEW.state) AS state
    ) AS s
    WHERE e.task_id = OLD.id;
END;
CREATE TRIGGER tasks_tally_failure AFTER UPDATE ON tasks
WHEN OLD.completed_at IS NULL AND NEW.completed_at IS NOT NULL AND NEW.state <> 'completed' AND OLD.marks & 16 > 0
BEGIN
    INSERT INTO tasklib_tallies (task_id) VALUES (OLD.id);
END;
-- Submit what undoes the steps of a workflow, as ordinary tasks in a row, the last step's first; each waits for the end of
-- the one before it, however that ends.  They are members of a group that is there from now on, and their ids count up
-- from the group's: nothing is undone twice.
CREATE TRIGGER tasks_undo AFTER UPDATE ON tasks
WHEN OLD.marks & 2 > 0 AND OLD.completed_at IS NULL AND NEW.completed_at IS NOT NULL AND NEW.state <> 'completed'
    AND NOT EXISTS (SELECT 1 FROM tasklib_groups AS g WHERE g.task_id = OLD.id AND g.kind = 'undo')
BEGIN
    INSERT INTO tasklib_edges (task_id, group_id, number)
    SELECT substr(b.members, 1, 30) || printf('%06x', b.place - 1), b.after, 0 FROM (
        SELECT s.undo, s.undo ->> 'after' AS after, row_number() OVER latest AS place, lag(s.undo) OVER latest AS prior,
            count(*) OVER () AS total, first_value(s.undo ->> 'after') OVER latest AS members
        FROM tasklib_steps AS s
        WHERE s.task_id = OLD.id AND s.undo IS NOT NULL
        WINDOW latest AS (ORDER BY s.number DESC, s.started_at DESC, s.key DESC)
    ) AS b
    WHERE b.place > 1;
    INSERT INTO tasks (
        id, name, kwargs, scheduled_at, created_at, updated_at, max_retries, timeout_seconds, priority, tags,
        concurrency_key, headers, group_id, marks, waits_for
    )
    SELECT substr(b.members, 1, 30) || printf('%06x', b.place), b.undo ->> 'name', b.undo -> 'kwargs',
        strftime('%Y-%m-%d %H:%M:%f000', NEW.completed_at, printf('%+.3f seconds', coalesce(b.undo ->> 'delay', 0))), NEW.completed_at, NEW.completed_at,
        b.undo ->> 'max_retries', b.undo ->> 'timeout_seconds', coalesce(b.undo ->> 'priority', 0),
        coalesce(b.undo -> 'tags', '{}'), b.undo ->> 'concurrency_key', b.undo -> 'headers', b.members,
        iif(b.place < b.total, 33, 1), iif(b.place > 1, substr('prerequisites ' || (b.prior ->> 'name'), 1, 200), NULL)
    FROM (
        SELECT s.undo, s.undo ->> 'after' AS after, row_number() OVER latest AS place, lag(s.undo) OVER latest AS prior,
            count(*) OVER () AS total, first_value(s.undo ->> 'after') OVER latest AS members
        FROM tasklib_steps AS s
        WHERE s.task_id = OLD.id AND s.undo IS NOT NULL
        WINDOW latest AS (ORDER BY s.number DESC, s.started_at DESC, s.key DESC)
    ) AS b
    ORDER BY b.place;
    INSERT INTO tasklib_groups (id, task_id, key, kind, run_if, total, sealed, fired_at)
    SELECT b.after, iif(b.place = 1, OLD.id, substr(b.members, 1, 30) || printf('%06x', b.place)), '', iif(b.place = 1, 'undo', 'after'), iif(b.place > 1, 'end', NULL),
        iif(b.place = 1, b.total, 1), 1, iif(b.place = 1, NEW.completed_at, NULL)
    FROM (
        SELECT s.undo, s.undo ->> 'after' AS after, row_number() OVER latest AS place, lag(s.undo) OVER latest AS prior,
            count(*) OVER () AS total, first_value(s.undo ->> 'after') OVER latest AS members
        FROM tasklib_steps AS s
        WHERE s.task_id = OLD.id AND s.undo IS NOT NULL
        WINDOW latest AS (ORDER BY s.number DESC, s.started_at DESC, s.key DESC)
    ) AS b;
END;
CREATE TRIGGER tasks_undo_delete BEFORE DELETE ON tasks
WHEN OLD.marks & 2 > 0 AND OLD.completed_at IS NULL
    AND NOT EXISTS (SELECT 1 FROM tasklib_groups AS g WHERE g.task_id = OLD.id AND g.kind = 'undo')
BEGIN
    INSERT INTO tasklib_edges (task_id, group_id, number)
    SELECT substr(b.members, 1, 30) || printf('%06x', b.place - 1), b.after, 0 FROM (
        SELECT s.undo, s.undo ->> 'after' AS after, row_number() OVER latest AS place, lag(s.undo) OVER latest AS prior,
            count(*) OVER () AS total, first_value(s.undo ->> 'after') OVER latest AS members
        FROM tasklib_steps AS s
        WHERE s.task_id = OLD.id AND s.undo IS NOT NULL
        WINDOW latest AS (ORDER BY s.number DESC, s.started_at DESC, s.key DESC)
    ) AS b
    WHERE b.place > 1;
    INSERT INTO tasks (
        id, name, kwargs, scheduled_at, created_at, updated_at, max_retries, timeout_seconds, priority, tags,
        concurrency_key, headers, group_id, marks, waits_for
    )
    SELECT substr(b.members, 1, 30) || printf('%06x', b.place), b.undo ->> 'name', b.undo -> 'kwargs',
        strftime('%Y-%m-%d %H:%M:%f000', strftime('%Y-%m-%d %H:%M:%f000', 'now'), printf('%+.3f seconds', coalesce(b.undo ->> 'delay', 0))), strftime('%Y-%m-%d %H:%M:%f000', 'now'), strftime('%Y-%m-%d %H:%M:%f000', 'now'),
        b.undo ->> 'max_retries', b.undo ->> 'timeout_seconds', coalesce(b.undo ->> 'priority', 0),
        coalesce(b.undo -> 'tags', '{}'), b.undo ->> 'concurrency_key', b.undo -> 'headers', b.members,
        iif(b.place < b.total, 33, 1), iif(b.place > 1, substr('prerequisites ' || (b.prior ->> 'name'), 1, 200), NULL)
    FROM (
        SELECT s.undo, s.undo ->> 'after' AS after, row_number() OVER latest AS place, lag(s.undo) OVER latest AS prior,
            count(*) OVER () AS total, first_value(s.undo ->> 'after') OVER latest AS members
        FROM tasklib_steps AS s
        WHERE s.task_id = OLD.id AND s.undo IS NOT NULL
        WINDOW latest AS (ORDER BY s.number DESC, s.started_at DESC, s.key DESC)
    ) AS b
    ORDER BY b.place;
    INSERT INTO tasklib_groups (id, task_id, key, kind, run_if, total, sealed, fired_at)
    SELECT b.after, iif(b.place = 1, OLD.id, substr(b.members, 1, 30) || printf('%06x', b.place)), '', iif(b.place = 1, 'undo', 'after'), iif(b.place > 1, 'end', NULL),
        iif(b.place = 1, b.total, 1), 1, iif(b.place = 1, strftime('%Y-%m-%d %H:%M:%f000', 'now'), NULL)
    FROM (
        SELECT s.undo, s.undo ->> 'after' AS after, row_number() OVER latest AS place, lag(s.undo) OVER latest AS prior,
            count(*) OVER () AS total, first_value(s.undo ->> 'after') OVER latest AS members
        FROM tasklib_steps AS s
        WHERE s.task_id = OLD.id AND s.undo IS NOT NULL
        WINDOW latest AS (ORDER BY s.number DESC, s.started_at DESC, s.key DESC)
    ) AS b;
END;
CREATE TRIGGER tasks_tally_delete AFTER DELETE ON tasks
WHEN OLD.completed_at IS NULL AND OLD.group_id IS NOT NULL
BEGIN
    INSERT INTO tasklib_tallies (group_id, ended, cancelled) VALUES (OLD.group_id, 1, 1);
END;
CREATE TRIGGER tasks_tally_edges_delete BEFORE DELETE ON tasks
WHEN OLD.completed_at IS NULL AND OLD.marks & 32 > 0
BEGIN
    INSERT INTO tasklib_tallies (group_id, ended, cancelled)
    SELECT DISTINCT e.group_id, 1, 1 FROM tasklib_edges AS e WHERE e.task_id = OLD.id;
END;

-- What a task has recorded goes with it.  Its groups are only named: who adds up tallies removes them, with their members,
-- a bounded number at a time.  An edge stays while a task waits for the end of the one that is gone.
CREATE TRIGGER tasks_workflow_delete AFTER DELETE ON tasks
WHEN OLD.marks IS NOT NULL
BEGIN
    DELETE FROM tasklib_steps WHERE task_id = OLD.id;
    DELETE FROM tasklib_waits WHERE task_id = OLD.id;
    DELETE FROM tasklib_events WHERE task_id = OLD.id AND taken_by IS NULL;
    DELETE FROM tasklib_events WHERE task_id = OLD.id AND taken_by IS NOT NULL;
    DELETE FROM tasklib_edges WHERE task_id = OLD.id
        AND NOT EXISTS (SELECT 1 FROM tasklib_groups AS g WHERE g.id = group_id AND g.fired_at IS NULL);
    INSERT INTO tasklib_tallies (group_id, task_id) SELECT g.id, OLD.id FROM tasklib_groups AS g WHERE g.task_id = OLD.id;
END;

CREATE TABLE tasklib_schedules (
    -- Schedules: each makes a task at every tick.
    name         TEXT    NOT NULL PRIMARY KEY,
    -- what was decided: task, cron or every, tz, kwargs, misfire, overlap, jitter, options
    plan         TEXT    NOT NULL CHECK (json_valid(plan)),
    next_run_at  TEXT,
    last_run_at  TEXT,
    last_task_id TEXT,
    paused_at    TEXT,
    paused_by    TEXT,
    declared_at  TEXT,  -- declared in code by a worker that started then; NULL if made at run time
    error        TEXT,  -- why its last tick failed
    held_until   TEXT,  -- not tried again before this moment, after an error
    -- grows with every change; a tick counts only under the version it was read with
    version      INTEGER NOT NULL DEFAULT 0,
    created_at   TEXT    NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now')),
    updated_at   TEXT    NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now'))
) STRICT, WITHOUT ROWID;

CREATE TABLE tasklib_declarations (
    -- What code declares for new tasks of a name, for programs without that code which submit the tasks of schedules.
    name    TEXT NOT NULL PRIMARY KEY,
    options TEXT NOT NULL CHECK (json_type(options) = 'object')  -- those of priority, tags, concurrency_key, expires_after that it gives
) STRICT, WITHOUT ROWID;

CREATE TABLE tasklib_tokens (
    -- Tokens of the HTTP service.
    id           TEXT NOT NULL PRIMARY KEY,
    name         TEXT NOT NULL,
    role         TEXT NOT NULL CHECK (role IN ('producer', 'worker', 'viewer', 'operator', 'admin')),
    hash         TEXT NOT NULL UNIQUE,  -- SHA-256 of the secret, in hexadecimal; the secret itself is not stored
    begins       TEXT NOT NULL,  -- first characters of the secret, to recognise it by
    created_at   TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now')),
    expires_at   TEXT,
    last_used_at TEXT,
    revoked_at   TEXT
) STRICT;

CREATE TABLE tasklib_audit (
    -- Who changed what: rows are added, never changed.
    seq        INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    at         TEXT    NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now')),
    actor      TEXT    NOT NULL,
    role       TEXT    NOT NULL,
    action     TEXT    NOT NULL,
    target     TEXT,
    detail     TEXT    NOT NULL DEFAULT '{}' CHECK (json_valid(detail)),
    remote     TEXT,  -- network address of the caller
    request_id TEXT
) STRICT;

CREATE TABLE tasklib_idempotency (
    -- Answers of HTTP requests with an Idempotency-Key, for when they are sent again.
    key         TEXT NOT NULL PRIMARY KEY,
    fingerprint TEXT NOT NULL,  -- SHA-256 of the request: another request with the same key is refused
    answer      TEXT CHECK (answer IS NULL OR json_valid(answer)),
    created_at  TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now'))
) STRICT, WITHOUT ROWID;
CREATE INDEX tasklib_idempotency_age ON tasklib_idempotency (created_at);

CREATE TABLE tasklib_chores (
    -- Maintenance that one worker at a time does.
    name     TEXT    NOT NULL PRIMARY KEY,
    until    TEXT    NOT NULL,  -- until then it is somebody's turn
    position INTEGER NOT NULL DEFAULT 0  -- tasks.seq up to which it has come
) STRICT, WITHOUT ROWID;

CREATE TABLE tasklib_stats_outcomes (
    -- Attempts ended, by minute, later by hour: for charts.
    at      INTEGER NOT NULL,  -- begin of the minute or hour, in seconds since 1970
    name    TEXT    NOT NULL,
    outcome TEXT    NOT NULL,
    count   INTEGER NOT NULL,
    -- histogram {bucket: count} of how long tasks waited after they were due; see core/insights/histogram.py
    waits   TEXT    NOT NULL DEFAULT '{}' CHECK (json_type(waits) = 'object'),
    runs    TEXT    NOT NULL DEFAULT '{}' CHECK (json_type(runs) = 'object'),  -- histogram {bucket: count} of how long attempts ran
    fresh   INTEGER NOT NULL DEFAULT 1  -- not yet merged with others of its minute
) STRICT;
CREATE INDEX tasklib_stats_outcomes_at ON tasklib_stats_outcomes (at);

CREATE TABLE tasklib_stats_depths (
    -- How many tasks waited and ran, once a minute: for charts.
    at       INTEGER NOT NULL,  -- the minute, in seconds since 1970
    name     TEXT    NOT NULL,
    due      INTEGER NOT NULL,
    delayed  INTEGER NOT NULL,
    retrying INTEGER NOT NULL,
    running  INTEGER NOT NULL,
    PRIMARY KEY (at, name)
) STRICT, WITHOUT ROWID;

-- How many rows of each name there are up to a position, as on PostgreSQL.  There is one writer, so the trigger can
-- correct the number itself, and no transaction can add a row before the position.
CREATE TABLE tasklib_stats_totals (
    -- How many tasks of each name there are up to the position in tasklib_stats_position.
    name  TEXT    NOT NULL PRIMARY KEY,
    count INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE tasklib_stats_position (
    -- Up to where tasks are counted: one row.
    only_row   INTEGER NOT NULL DEFAULT 1 PRIMARY KEY CHECK (only_row = 1),
    seq        INTEGER NOT NULL DEFAULT 0,  -- tasks.seq up to which everything is counted
    counted_at TEXT,  -- when the position last moved
    merged_at  TEXT  -- when tasklib_stats_outcomes was last merged
) STRICT;
INSERT INTO tasklib_stats_position DEFAULT VALUES;

CREATE TRIGGER tasks_deleted AFTER DELETE ON tasks WHEN old.seq <= (SELECT seq FROM tasklib_stats_position)
BEGIN
    UPDATE tasklib_stats_totals SET count = count - 1 WHERE name = old.name;
END;

CREATE TABLE tasklib_stats_blocks (
    -- Names and ages of the tasks in each 10,000 positions: lists skip blocks that cannot hold a match.
    number INTEGER NOT NULL PRIMARY KEY,  -- (tasks.seq - 1) / 10000
    oldest TEXT    NOT NULL,  -- no task of the block was created before
    newest TEXT    NOT NULL,  -- no task of the block was created after
    names  TEXT  -- names of its tasks; NULL if there are too many
) STRICT;

CREATE TRIGGER tasks_renamed AFTER UPDATE OF seq, name, created_at ON tasks WHEN (SELECT seq FROM tasklib_stats_position) > 0
BEGIN
    DELETE FROM tasklib_stats_totals;
    DELETE FROM tasklib_stats_blocks;
    UPDATE tasklib_stats_position SET seq = 0;
END;
