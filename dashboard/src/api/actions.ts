/** The table of actions of core/lifecycle.py, written by `make snapshot`. */

import type { Action, BulkFilter } from "./client";

type Statuses = Record<Action, NonNullable<BulkFilter["status"]>[number][]>;

export const POSSIBLE: Statuses = {
  retry: ["completed", "retrying", "failed", "cancelled", "buried"],
  cancel: ["pending", "processing", "retrying", "delayed", "waiting"],
  prioritize: ["pending", "processing", "retrying", "delayed", "waiting"],
  delete: ["completed", "failed", "cancelled", "buried"],
};

/** Which tasks are meant where no status is named. */
export const BY_DEFAULT: Statuses = {
  retry: ["retrying", "failed", "buried"],
  cancel: ["pending", "processing", "retrying"],
  prioritize: ["pending", "processing", "retrying"],
  delete: ["failed", "buried"],
};
