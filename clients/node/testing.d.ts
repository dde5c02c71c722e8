// Types of fairq/testing: see README.md.
import type { Dead, Queryable, Retry, Task, Worker } from '.';

/** A task that has run, with its handler's return value, or its Dead or Retry. */
export interface Ran {
  readonly task: Task;
  readonly result: any;
  readonly error: Dead | Retry | undefined;
}

/** Runs the ready tasks that the client's transaction sees, and those that their handlers
 * enqueue, one by one.  Rejects with an error of a handler that is neither Dead nor Retry.
 * Rejects with a WorkerError if there are more tasks than "most", which is 1000 by default.
 */
export function runTasks(client: Queryable, worker: Worker, options?: { most?: number }): Promise<Ran[]>;
