"""Every code block of the five specifications: where it stands, what it shows, and whether its spelling changed here.

`docs/specifications.md` prints this list with the test of each block; `test_specifications.py` compares the two.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block, numbered within its document."""

    id: str
    heading: str
    language: str
    what: str
    changed: bool = False
    """Whether it is spelled differently here."""
    untested: str = ""
    """Why no test runs it."""


BLOCKS = (
    Block("000/01", "Schema", "text", "the columns of the table", changed=True),
    Block("000/02", "Core Functions", "python", "init, task, submit_task, get_task, list_tasks, worker", changed=True),
    Block("000/03", "Task States", "text", "the four states"),
    Block("000/04", "Configuration", "python", "the fields of Config and their defaults"),
    Block("000/05", "Worker Concurrency", "text", "four tasks at once"),
    Block("000/06", "Multi-Worker", "text", "two workers never hold the same task"),
    Block("000/07", "Local Development", "bash", "examples/simple.py and examples/worker.py"),
    Block("000/08", "Production", "python", "application, worker, three replicas"),
    Block("001/01", "SQL Definition (as created)", "sql", "the table with its types and defaults", changed=True),
    Block("001/02", "Task 1: Pending (Waiting to Execute)", "json", "a waiting task's fields"),
    Block("001/03", "Task 2: Running (Currently Executing)", "json", "a running task's fields"),
    Block("001/04", "Task 3: Completed Successfully", "json", "a completed task's fields"),
    Block("001/05", "Task 4: Failed, Scheduled for Retry", "json", "a retrying task's fields", changed=True),
    Block("001/06", "Task 5: Permanently Failed (Max Retries Exceeded)", "json", "a failed task's fields"),
    Block("001/07", "Indexes (Performance)", "sql", "five indexes", changed=True),
    Block("001/08", "Indexes (Performance)", "sql", "the pick-up query"),
    Block("001/09", "Cleanup Policy", "sql", "deleting old tasks"),
    Block("001/10", "Cleanup Policy", "bash", "the same by cron"),
    Block("001/11", "1. User submits task (Python)", "python", "submit_task"),
    Block("001/12", "1. User submits task (Python)", "json", "the row after it"),
    Block("001/13", "2. Worker polls (SELECT FOR UPDATE)", "sql", "the pick-up query, oldest first"),
    Block("001/14", "2. Worker polls (SELECT FOR UPDATE)", "json", "the row after it"),
    Block("001/15", "3. Worker executes task", "python", "the call in a thread"),
    Block("001/16", "4. Worker updates DB with result", "json", "the row after it"),
    Block("001/17", "5. Application queries result", "python", "get_task, is_completed, result"),
    Block("001/18", "All in One Place", "sql", "what waits, what failed, how long it takes"),
    Block("002/01", "2.1 Task Handler Interface", "text", "JSON in, JSON or error out"),
    Block("002/02", "2.1 Task Handler Interface", "text", "raising fails, returning completes"),
    Block("002/03", "2.1 Task Handler Interface", "javascript", "an async handler", changed=True),
    Block("002/04", "2.1 Task Handler Interface", "python", "a handler"),
    Block("002/05", "2.1 Task Handler Interface", "go", "a handler that returns an error", changed=True),
    Block("002/06", "2.2 Queue Interface (Application-Level)", "javascript", "tq and its methods", changed=True),
    Block("002/07", "2.2 Queue Interface (Application-Level)", "javascript", "tq in use", changed=True),
    Block("002/08", "2.2 Queue Interface (Application-Level)", "javascript", "tq.pause, stats, stop", changed=True),
    Block("002/09", "2.2 Queue Interface (Application-Level)", "typescript", "typed payloads", changed=True),
    Block("002/10", "2.3 Management API (REST/Admin Only)", "javascript", "the list of routes"),
    Block("002/11", "3.1 Database Schema", "sql", "three indexes", changed=True),
    Block("002/12", "3.1 Database Schema", "text", "three ways through the states", changed=True),
    Block("002/13", "3.2 JSON Data Structures", "json", "EnqueueOptions", changed=True),
    Block("002/14", "3.2 JSON Data Structures", "json", "Task", changed=True),
    Block("002/15", "3.2 JSON Data Structures", "json", "ListFilters", changed=True),
    Block("002/16", "3.2 JSON Data Structures", "json", "QueueStats", changed=True),
    Block("002/17", "4.2 Scheduler Module", "sql", "what is due, oldest first", changed=True),
    Block("002/18", "4.2 Scheduler Module", "text", "the retry delays", changed=True),
    Block("002/19", "4.2 Scheduler Module", "text", "the token bucket"),
    Block("002/20", "4.3 Executor Module", "sql", "a claim guarded by version", changed=True),
    Block("002/21", "4.3 Executor Module", "sql", "recovery of stale tasks", changed=True),
    Block("002/22", "4.3 Executor Module", "text", "the steps of an execution", changed=True),
    Block("002/23", "4.4 Worker Module", "text", "the loop of a worker", changed=True),
    Block("002/24", "4.4 Worker Module", "text", "what a pause does"),
    Block("002/25", "4.4 Worker Module", "text", "one at a time, or N"),
    Block("002/26", "POST /api/tasks", "json", "request"),
    Block("002/27", "POST /api/tasks", "json", "response"),
    Block("002/28", "GET /api/tasks/:id", "json", "response"),
    Block("002/29", "GET /api/tasks", "json", "response"),
    Block("002/30", "POST /api/tasks/:id/retry", "json", "response"),
    Block("002/31", "GET /api/tasks/stats", "json", "response"),
    Block("002/32", "POST /api/tasks/pause", "json", "response"),
    Block("002/33", "POST /api/tasks/resume", "json", "response"),
    Block("002/34", "POST /api/tasks/rate-limit", "json", "request"),
    Block("002/35", "POST /api/tasks/rate-limit", "json", "response"),
    Block("002/36", "DELETE /api/tasks", "json", "response"),
    Block("002/37", "5.2 Programmatic API (Application Code)", "javascript", "tq from start to stop", changed=True),
    Block(
        "002/38",
        "5.2 Programmatic API (Application Code)",
        "javascript",
        "a pointer to the routes",
        untested="two comments, no code",
    ),
    Block("002/39", "6.1 Task List View", "jsx", "pseudocode of a page"),
    Block("002/40", "6.2 Task Detail View", "jsx", "pseudocode of a page"),
    Block("002/41", "6.3 Queue Stats Dashboard", "jsx", "pseudocode of a page"),
    Block("002/42", "6.4 Status Badge Component", "jsx", "pseudocode of a badge"),
    Block(
        "002/43",
        "7.2 Module Structure",
        "text",
        "the files of a TypeScript program",
        untested="another language's files; ours are in ARCHITECTURE.md",
    ),
    Block("002/44", "Global tq() Function", "typescript", "the interfaces of tq", changed=True),
    Block("002/45", "Global tq() Function", "typescript", "tq in use", changed=True),
    Block("002/46", "TaskManager", "typescript", "create, get, list, delete", changed=True),
    Block("002/47", "Scheduler", "typescript", "next retry, due or not", changed=True),
    Block("002/48", "Executor", "typescript", "register and unregister handlers", changed=True),
    Block("002/49", "Worker", "typescript", "start, stop, is it running", changed=True),
    Block("002/50", "8.1 Database Setup", "sql", "creating the table", changed=True),
    Block("002/51", "8.2 Initialize Queue", "typescript", "a queue and its settings", changed=True),
    Block("002/52", "8.3 Register Handlers", "typescript", "three handlers", changed=True),
    Block("002/53", "8.4 Enqueue Tasks", "typescript", "enqueue with options", changed=True),
    Block("002/54", "8.5 Mount UI Routes", "typescript", "a page"),
    Block("002/55", "10.1 Unit Tests", "typescript", "a test of retries", changed=True),
    Block("003/01", "Task Queue Flow", "mermaid", "from INSERT to handler and back"),
    Block("003/02", "Task States", "mermaid", "pending, running, success, dead", changed=True),
    Block("003/03", "Running the Task Queue Service", "shell", "starting the service", changed=True),
    Block("003/04", "Enqueuing a Task", "sql", "INSERT as submission", changed=True),
    Block("003/05", "Implementing a Handler", "python", "a handler of the Task", changed=True),
    Block("004/01", "Possible Solution", "pgsql", "reserving a batch, SKIP LOCKED", changed=True),
)
