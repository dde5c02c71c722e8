// Types of fairq/testing: see README.md.
import type { Dead, Queryable, Retry, Task, Worker } from '.';

/** A task that has run, with its handler's return value, or its Dead or Retry. */
export interface Ran {
  readonly task: Task;
  readonly result: any;
  readonly error: Dead | Retry | undefined;
}

/** Runs the tasks that the client's transaction has enqueued, and those that they enqueue, one by
 * one.  Rejects with any other error of a handler.  Rejects with a WorkerError if there are more
 * tasks than "most", which is 1000 by default. */
export function runTasks(client: Queryable, worker: Worker, options?: { most?: number }): Promise<Ran[]>;
