export { Client, ServiceError, type ClientOptions, type CreateOptions, type Created, type Task } from "./client.js";
export { Worker, type ClaimedTask, type Context, type Handler, type StopReason, type WorkerOptions } from "./worker.js";
export { NonRetryable, RetryLater } from "./errors.js";
export { StepFailed, Suspended, Workflow, type Child, type RecordedStep } from "./workflow.js";
