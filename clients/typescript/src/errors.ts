/** Thrown by a handler: the task has failed for good, and is not tried again. */
export class NonRetryable extends Error {
  override name = "NonRetryable";
}

/** Thrown by a handler: the attempt has failed, and the next one is due after so many seconds. */
export class RetryLater extends Error {
  override name = "RetryLater";

  constructor(
    readonly delaySeconds: number,
    message = `try again in ${delaySeconds} s`,
  ) {
    super(message);
  }
}

/** Thrown by a handler: the task runs again after so many seconds, and this attempt does not count. */
export class Snooze extends Error {
  override name = "Snooze";

  constructor(
    readonly delaySeconds: number,
    message = `snoozed for ${delaySeconds} s`,
  ) {
    super(message);
  }
}
