// Types of the package fairq: see README.md.

/** A Client, PoolClient or Pool of pg, or any object with this method.  It resolves to rows or
 * to an object that has rows. */
export interface Queryable {
  query(text: string, values: any[]): PromiseLike<{ rows: any[] } | any[]>;
}

/** Options of a task in each call that adds it. */
export interface TaskOptions {
  /** The name of the handler. */
  task?: string | null;
  /** Seconds until the task may run, by the server's clock. */
  delay?: number | null;
  /** The task does not run before that time.  A text must have a time zone. */
  runAt?: Date | string | null;
  /** 0, the first, to 9. */
  priority?: number | null;
  /** At most one unfinished task of the queue has this key. */
  dedupKey?: string | null;
  /** The cost of the task in a cost-fair queue. */
  cost?: number | null;
  /** Data in addition to the payload, such as a traceparent. */
  headers?: Record<string, unknown> | null;
}

export interface EnqueueOptions extends TaskOptions {
  /** How long the key is taken. */
  dedupUntil?: 'finished' | 'started' | null;
  /** Seconds for which the key stays taken after that. */
  dedupFor?: number | null;
  /** An unfinished task with the key gets this payload, these headers and these times. */
  replace?: boolean | null;
  /** Overrides that of the queue. */
  maxAttempts?: number | null;
  /** A task that has not started by then does not run. */
  expiresAt?: Date | string | null;
  /** True allows an empty group. */
  emptyGroup?: boolean;
}

export interface NewTask extends TaskOptions {
  /** The tenant or user among whom fairq is fair. */
  group: string;
  /** The arguments of the handler; left out: {}. */
  payload?: unknown;
}

/** Adds a task, in the client's transaction; resolves to its id. */
export function enqueue(client: Queryable, queue: string, group: string, payload?: unknown,
  options?: EnqueueOptions): Promise<number>;

/** Adds all tasks or none in one call; resolves to their ids, in the same order.
 *  The options apply to all of them. */
export function enqueueBatch(client: Queryable, queue: string,
  tasks: Iterable<NewTask>, options?: Pick<EnqueueOptions, 'expiresAt' | 'emptyGroup'>): Promise<number[]>;

/** Cancels a task; false: it is finished, or unknown. */
export function cancel(client: Queryable, id: number): Promise<boolean>;

/** A task as its handler gets it. */
export interface Task<Payload = any> {
  readonly id: number;
  /** 1 for the first attempt. */
  readonly attempt: number;
  /** Does not include this attempt. */
  readonly attemptsLeft: number;
  /** Number of attempts whose lease expired. */
  readonly lapses: number;
  readonly queue: string;
  readonly group: string;
  /** The name of the handler; undefined: the task has none. */
  readonly name: string | undefined;
  readonly payload: Payload;
  readonly headers: Record<string, any>;
  readonly priority: number;
  readonly enqueuedAt: Date;
  /** Is aborted when the work is wasted. */
  readonly signal: AbortSignal;
  /** Sets the column progress of fairq.tasks; rejects with Stopped if the work is wasted. */
  setProgress(progress: unknown): Promise<void>;
  /** Completes the task in the client's transaction; rejects with Stopped if the work is wasted. */
  complete(client: Queryable, result?: unknown): Promise<void>;
}

/** Runs tasks with a name; its return value is the task's result. */
export type Handler = (args: any, task: Task) => unknown;

/** Runs all other tasks. */
export type DefaultHandler = (task: Task) => unknown;

/** A handler with a timeout of its own, in seconds; Infinity: none. */
export interface TimedHandler<Run> {
  run: Run;
  timeout: number;
}

/** The handlers, by the names of their tasks. */
export type Handlers = Record<string, Handler | TimedHandler<Handler>>;

/** A URI, or a configuration object of pg without functions. */
export type Database = string | Record<string, any>;

export interface Log {
  info?(line: string): void;
  warn(line: string): void;
  error(line: string): void;
}

export interface WorkerOptions {
  /** Number of tasks at a time.  Default: 4. */
  concurrency?: number;
  /** Seconds after which others may run the tasks of a worker that died.  Default: 60. */
  lease?: number;
  /** Seconds that a task may take before it fails and is retried.  Default: no limit. */
  timeout?: number;
  /** Seconds that running tasks have to end when the worker stops.  Default: 5. */
  grace?: number;
  /** Seconds between looks for tasks; 0: sleep in fairq.wait, also through a pooler. */
  poll?: number;
  /** A database, or all shards.  Default: that of PGHOST and so on. */
  databases?: Database | Database[];
  /** Seconds after which the worker ends if the server refuses its connections.  Default: 60.
   * Infinity: it waits. */
  giveUp?: number;
  /** The worker's name in fairq.tasks, and its application_name.  Default: host and process. */
  name?: string;
  /** The handler of tasks without a name, or with another name. */
  default?: DefaultHandler | TimedHandler<DefaultHandler>;
  /** Gets one line for each problem.  Default: stderr. */
  log?: Log;
}

export class Worker {
  constructor(queues: string | string[], handlers: Handlers | DefaultHandler,
    options?: WorkerOptions);
  /** Resolves when the worker has ended, or rejects with a WorkerError if it cannot work; null:
   * it has not been started. */
  readonly ended: Promise<void> | null;
  /** Starts the worker, and returns ended. */
  run(): Promise<void>;
  /** Ends the worker, and returns ended. */
  stop(): Promise<void> | null;
}

/** A worker that has been started. */
export interface StartedWorker extends Worker {
  readonly ended: Promise<void>;
  stop(): Promise<void>;
}

/** Starts a worker. */
export function work(queues: string | string[], handlers: Handlers | DefaultHandler,
  options?: WorkerOptions): StartedWorker;

/** Works until SIGTERM or SIGINT, resolves, and then ends the process. */
export function main(queues: string | string[], handlers: Handlers | DefaultHandler,
  options?: WorkerOptions): Promise<void>;

/** A handler throws this if no retry can help. */
export class Dead extends Error {
  constructor(message?: string, options?: { cause?: unknown });
}

/** A handler throws this for a retry after a delay in seconds, or with the queue's backoff. */
export class Retry extends Error {
  constructor(delay?: number, message?: string, options?: { cause?: unknown });
  readonly delay: number | undefined;
}

/** The task was cancelled, its lease is lost, its time is over, or the worker stops. */
export class Stopped extends Error {}

/** The worker cannot work. */
export class WorkerError extends Error {}
