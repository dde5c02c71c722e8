// Types of the package fairq: see README.md.

/** What tasks are enqueued through: a Client, PoolClient or Pool of pg, or whatever else has
 * this method, which resolves to rows or to an object that has them. */
export interface Queryable {
  query(text: string, values: any[]): PromiseLike<{ rows: any[] } | any[]>;
}

/** What a task may have in every call that adds it. */
export interface TaskOptions {
  /** The name of the handler. */
  task?: string | null;
  /** Not before so many seconds from now, by the server's clock. */
  delay?: number | null;
  /** Not before that time; PostgreSQL reads a text, which must have a time zone. */
  runAt?: Date | string | null;
  /** 0, the first, to 9. */
  priority?: number | null;
  /** At most one unfinished task of the queue has it. */
  dedupKey?: string | null;
  /** What it is charged in a queue that is fair by cost. */
  cost?: number | null;
  /** What goes with it beside its payload, such as a traceparent. */
  headers?: Record<string, unknown> | null;
}

export interface EnqueueOptions extends TaskOptions {
  /** Until when the key is taken. */
  dedupUntil?: 'finished' | 'started' | null;
  /** For so many seconds after that, too. */
  dedupFor?: number | null;
  /** A task that has the key already gets this payload, these headers and these times. */
  replace?: boolean | null;
  /** Instead of the queue's. */
  maxAttempts?: number | null;
  /** If it has not begun by then, it never does. */
  expiresAt?: Date | string | null;
  /** An empty group is refused unless this is true. */
  emptyGroup?: boolean;
}

export interface NewTask extends TaskOptions {
  /** What is to be treated fairly: a tenant, a user. */
  group: string;
  /** The arguments of the handler; left out: {}. */
  payload?: unknown;
}

/** Adds a task, in the client's transaction; resolves to its id. */
export function enqueue(client: Queryable, queue: string, group: string, payload?: unknown,
  options?: EnqueueOptions): Promise<number>;

/** Adds many tasks in one call, all or none; resolves to their ids, in the same order.
 *  The options are of all of them. */
export function enqueueBatch(client: Queryable, queue: string,
  tasks: Iterable<NewTask>, options?: Pick<EnqueueOptions, 'expiresAt' | 'emptyGroup'>): Promise<number[]>;

/** Takes a task back; false: it is finished, or unknown. */
export function cancel(client: Queryable, id: number): Promise<boolean>;

/** A task as its handler gets it. */
export interface Task<Payload = any> {
  readonly id: number;
  /** 1 the first time. */
  readonly attempt: number;
  /** After this one; 0 the last time. */
  readonly attemptsLeft: number;
  /** How many of its attempts have ended because their leases lapsed. */
  readonly lapses: number;
  readonly queue: string;
  readonly group: string;
  /** The handler that is to do it; undefined: it says none. */
  readonly name: string | undefined;
  readonly payload: Payload;
  readonly headers: Record<string, any>;
  readonly priority: number;
  readonly enqueuedAt: Date;
  /** Is aborted when the work is wasted. */
  readonly signal: AbortSignal;
  /** Shows it in fairq.tasks; rejects with Stopped if the work is wasted. */
  setProgress(progress: unknown): Promise<void>;
  /** Ends the task in the client's transaction; rejects with Stopped if the work is wasted. */
  complete(client: Queryable, result?: unknown): Promise<void>;
}

/** Does the tasks of a name; what it returns is kept as the result. */
export type Handler = (args: any, task: Task) => unknown;

/** Does all other tasks. */
export type DefaultHandler = (task: Task) => unknown;

/** A handler with a timeout of its own, in seconds; Infinity: none. */
export interface TimedHandler<Run> {
  run: Run;
  timeout: number;
}

/** The handlers, by the names of their tasks. */
export type Handlers = Record<string, Handler | TimedHandler<Handler>>;

/** What pg takes for a connection, without functions. */
export type Database = string | Record<string, any>;

export interface Log {
  info?(line: string): void;
  warn(line: string): void;
  error(line: string): void;
}

export interface WorkerOptions {
  /** Tasks at a time; 4. */
  concurrency?: number;
  /** Seconds after which others may do the tasks of a worker that is dead; 60. */
  lease?: number;
  /** Seconds that a task may take; then it fails, and is retried as usual; without limit. */
  timeout?: number;
  /** Seconds that tasks have to finish in when the worker is to end; 5. */
  grace?: number;
  /** Seconds between looks for tasks; 0: it sleeps in fairq.wait, also through a pooler. */
  poll?: number;
  /** That of PGHOST and so on; or all shards. */
  databases?: Database | Database[];
  /** Seconds after which it ends if the server can never answer, as there is no such database or
   * role; 60.  Infinity: it waits. */
  giveUp?: number;
  /** What fairq.tasks shows as the worker, and PostgreSQL as application_name; the host and the
   * process. */
  name?: string;
  /** The handler of tasks without a name, and of those of other names. */
  default?: DefaultHandler | TimedHandler<DefaultHandler>;
  /** Gets a line about what goes wrong; stderr. */
  log?: Log;
}

export class Worker {
  constructor(queues: string | string[], handlers: Handlers | DefaultHandler,
    options?: WorkerOptions);
  /** The promise of its end, which is rejected with a WorkerError if it cannot work; null: it
   * has not been started. */
  readonly ended: Promise<void> | null;
  /** Starts it, and returns ended. */
  run(): Promise<void>;
  /** Has it end; returns ended. */
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

/** Works until SIGTERM or SIGINT, and then ends the process; resolves in between. */
export function main(queues: string | string[], handlers: Handlers | DefaultHandler,
  options?: WorkerOptions): Promise<void>;

/** To be thrown by a handler: no retry would help. */
export class Dead extends Error {
  constructor(message?: string, options?: { cause?: unknown });
}

/** To be thrown by a handler: retry in so many seconds, or by the queue's backoff. */
export class Retry extends Error {
  constructor(delay?: number, message?: string, options?: { cause?: unknown });
  readonly delay: number | undefined;
}

/** The task was cancelled, its lease is lost, its time is over, or the worker is to end. */
export class Stopped extends Error {}

/** The worker cannot do its work. */
export class WorkerError extends Error {}
