export { Client, ServiceError, type ClientOptions, type CreateOptions, type Created, type Task } from "./client.js";
export { Worker, type ClaimedTask, type Context, type Handler, type LogLevel, type StopReason, type WorkerOptions } from "./worker.js";
export { NonRetryable, RetryLater, Snooze } from "./errors.js";
export { NonDeterminism, StepFailed, Suspended, Workflow, type Child, type RecordedStep } from "./workflow.js";
