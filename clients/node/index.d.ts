// Types of the package fairq: see README.md.

declare global {
  interface SymbolConstructor {
    readonly asyncDispose: unique symbol;
  }
}

/** A Client, PoolClient or Pool of pg, or any object with this method.  The
 * method resolves to rows or to an object that has rows. */
export interface Queryable {
  query(text: string, values: any[]): PromiseLike<{ rows: any[] } | any[]>;
}

/** The payloads of an application's tasks, by their names.  The application declares them in
 * "declare module 'fairq'".  Without a declaration, names and payloads are not checked. */
export interface TaskMap {}

/** A name whose payload has no declared type. */
export type FreeName = keyof TaskMap extends never ? string : never;

/** Options of a task in each call that adds it. */
export interface TaskOptions<Name = FreeName> {
  /** The name of the handler. */
  task?: Name | null;
  /** Seconds until the task may run, by the server's clock. */
  delay?: number | null;
  /** The task does not run before that time.  A text must have a time zone. */
  runAt?: Date | string | null;
  /** From 0, which runs first, to 9. */
  priority?: number | null;
  /** At most one unfinished task of the queue has this key. */
  dedupKey?: string | null;
  /** The cost of the task in a cost-fair queue. */
  cost?: number | null;
  /** Data in addition to the payload, such as a traceparent. */
  headers?: Record<string, unknown> | null;
}

export interface EnqueueOptions<Name = FreeName> extends TaskOptions<Name> {
  /** The key is taken until the task is finished or started. */
  dedupUntil?: 'finished' | 'started' | null;
  /** Seconds for which the key stays taken after the event of dedupUntil. */
  dedupFor?: number | null;
  /** An unfinished task with the key gets this payload, these headers and these times. */
  replace?: boolean | null;
  /** Overrides the queue's max_attempts. */
  maxAttempts?: number | null;
  /** A task that has not started by this time does not run. */
  expiresAt?: Date | string | null;
  /** The id of the batch to which the task is added. */
  batch?: number | null;
  /** The ids of tasks that must succeed first. */
  after?: number | number[] | null;
  /** True: the tasks of "after" must end, but need not succeed. */
  afterAny?: boolean | null;
  /** True allows an empty group. */
  emptyGroup?: boolean;
}

export interface NewTask<Name = FreeName> extends TaskOptions<Name> {
  /** The unit of fairness, such as a tenant or user. */
  group: string;
  /** The arguments of the handler; left out: {}. */
  payload?: unknown;
}

/** A task of TaskMap. */
export type MappedTask = {
  [Name in keyof TaskMap]: NewTask<Name> & { task: Name; payload: TaskMap[Name] }
}[keyof TaskMap];

/** Adds a task of TaskMap, in the client's transaction; resolves to its id. */
export function enqueue<Name extends keyof TaskMap>(client: Queryable, queue: string, group: string,
  payload: TaskMap[Name], options: EnqueueOptions<Name> & { task: Name }): Promise<number>;

/** Adds a task, in the client's transaction; resolves to its id. */
export function enqueue(client: Queryable, queue: string, group: string, payload?: unknown,
  options?: EnqueueOptions): Promise<number>;

/** Does the same as enqueue with a task of TaskMap; also resolves to whether the task was
 * added. */
export function enqueueOrFind<Name extends keyof TaskMap>(client: Queryable, queue: string, group: string,
  payload: TaskMap[Name], options: EnqueueOptions<Name> & { task: Name }): Promise<{ id: number; added: boolean }>;

/** Does the same as enqueue; also resolves to whether the task was added. */
export function enqueueOrFind(client: Queryable, queue: string, group: string, payload?: unknown,
  options?: EnqueueOptions): Promise<{ id: number; added: boolean }>;

/** Adds all tasks or none in one call; resolves to their ids, in the same order.
 *  The options apply to all of them. */
export function enqueueBatch(client: Queryable, queue: string,
  tasks: Iterable<NewTask | MappedTask>, options?: Pick<EnqueueOptions, 'expiresAt' | 'batch' | 'after' | 'afterAny' | 'emptyGroup'>): Promise<number[]>;

/** Cancels a task; resolves to false if it is finished or unknown. */
export function cancel(client: Queryable, id: number): Promise<boolean>;

/** Options of the task that waits for a batch. */
export interface BatchOptions<Name = FreeName> {
  /** The name of the handler. */
  task?: Name | null;
  /** True: the task fails as soon as a task of the batch ends without success.
   * */
  onSuccess?: boolean | null;
  /** From 0, which runs first, to 9. */
  priority?: number | null;
  /** Overrides the queue's max_attempts. */
  maxAttempts?: number | null;
  /** Data in addition to the payload, such as a traceparent. */
  headers?: Record<string, unknown> | null;
  /** The id of another batch, to which the task is added. */
  batch?: number | null;
  /** True allows an empty group. */
  emptyGroup?: boolean;
}

/** The task that waits for a batch. */
export interface NewBatch<Name = FreeName> extends BatchOptions<Name> {
  queue: string;
  group: string;
  payload?: unknown;
}

/** The task of TaskMap that waits for a batch. */
export type MappedBatch = {
  [Name in keyof TaskMap]: NewBatch<Name> & { task: Name; payload: TaskMap[Name] }
}[keyof TaskMap];

/** Creates a batch, and adds a task of TaskMap that waits for its end; resolves to their
 * common id. */
export function createBatch<Name extends keyof TaskMap>(client: Queryable, queue: string, group: string,
  payload: TaskMap[Name], options: BatchOptions<Name> & { task: Name }): Promise<number>;

/** Creates a batch, and adds a task that waits for its end; resolves to their common id. */
export function createBatch(client: Queryable, queue: string, group: string, payload?: unknown,
  options?: BatchOptions): Promise<number>;

/** Creates a batch, calls addTasks with its id, and closes it; resolves to the id. */
export function inBatch(client: Queryable, then: NewBatch | MappedBatch,
  addTasks: (batch: number) => unknown): Promise<number>;

/** Closes a batch, so that no more tasks can be added; resolves to false if it is
 * closed, finished or unknown. */
export function closeBatch(client: Queryable, id: number): Promise<boolean>;

/** Closes a batch and cancels its tasks that are not running; resolves to their number. */
export function cancelBatch(client: Queryable, id: number): Promise<number>;

/** Resolves to the id of the unfinished task that has the key; null: there is none. */
export function find(client: Queryable, queue: string, dedupKey: string): Promise<number | null>;

/** Moves a task that is not running to another time, or to now; resolves to false
 * if it is running, finished or unknown. */
export function reschedule(client: Queryable, id: number, runAt?: Date | string): Promise<boolean>;

/** The queue, priority and group that redriven tasks get. */
export interface RedriveTarget {
  toQueue?: string | null;
  toPriority?: number | null;
  toGroup?: string | null;
}

export interface RedriveOptions extends RedriveTarget {
  /** Only failed tasks of this group. */
  group?: string | null;
  /** The maximum number of tasks, the oldest failures first. */
  maxTasks?: number | null;
}

/** Enqueues the failed tasks of a queue again; resolves to their number. */
export function redrive(client: Queryable, queue: string, options?: RedriveOptions): Promise<number>;

/** Enqueues one failed task again; resolves to false if it has not failed, or
 * another task has its key. */
export function redriveTask(client: Queryable, id: number, options?: RedriveTarget): Promise<boolean>;

/** Settings of a queue, with seconds for intervals.  A missing setting is not
 * changed. */
export interface QueueSettings {
  concurrency?: number | null;
  maxRunning?: number | null;
  lease?: number | null;
  maxAttempts?: number | null;
  backoff?: number | null;
  backoffMax?: number | null;
  retain?: number | null;
  retainFailed?: number | null;
  notify?: boolean | null;
  blockLength?: number | null;
  fairBy?: 'tasks' | 'cost' | 'time' | null;
  rate?: number | null;
  per?: number | null;
  burst?: number | null;
  maxRate?: number | null;
  shares?: number[] | null;
  inOrder?: boolean | null;
  maxRunTime?: number | null;
  /** Separates tenant and user in the keys of groups.  It cannot be changed: a
   * different one is rejected.  */
  separator?: string | null;
}

/** Creates missing queues, and changes the given settings of existing queues. */
export function ensureQueues(client: Queryable, queues: Record<string, QueueSettings>): Promise<void>;

/** The task that a handler gets. */
export interface Task<Payload = any> {
  readonly id: number;
  /** 1 for the first attempt. */
  readonly attempt: number;
  /** The number of attempts left if this one fails. */
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
  /** The id of its batch; undefined: none. */
  readonly batch: number | undefined;
  readonly enqueuedAt: Date;
  /** Aborted when further work is wasted. */
  readonly signal: AbortSignal;
  /** The progress that this or an earlier attempt set last; null: none. */
  readonly progress: any;
  /** Sets the progress, for fairq.tasks and later attempts; rejects with Stopped if the work is
   *  wasted. */
  setProgress(progress: unknown): Promise<void>;
  /** Runs a part of the work and saves its result, or resolves to the saved
   * result. */
  step<Result>(name: string, run: () => Result | Promise<Result>): Promise<Result>;
  /** The last value of checkpoint() in this or an earlier attempt; undefined:
   * there is none. */
  readonly cursor: any;
  /** Records how far the work has got; rejects with Stopped if the work is wasted. */
  checkpoint(cursor: unknown): Promise<void>;
  /** Completes the task in the client's transaction; rejects with Stopped if the work is wasted. */
  complete(client: Queryable, result?: unknown): Promise<void>;
}

/** Runs the tasks of one name; its return value is the task's result. */
export type Handler<Args = any> = (args: Args, task: Task<Args>) => unknown;

/** Runs all other tasks. */
export type DefaultHandler = (task: Task) => unknown;

/** A handler with a timeout of its own, in seconds; Infinity: none. */
export interface TimedHandler<Run> {
  run: Run;
  timeout: number;
}

/** The handlers, by the names of their tasks. */
export type Handlers = keyof TaskMap extends never ? Record<string, Handler | TimedHandler<Handler>>
  : { [Name in keyof TaskMap]?: Handler<TaskMap[Name]> | TimedHandler<Handler<TaskMap[Name]>> };

/** A URI, or a configuration object of pg without functions. */
export type Database = string | Record<string, any>;

/** A logger, such as console, that gets lines. */
export interface Log {
  info?(line: string): void;
  warn(line: string): void;
  error(line: string): void;
}

/** A logger such as pino, which gets an object of fields and a line. */
export interface StructuredLog {
  info(fields: Record<string, any>, line: string): void;
  warn(fields: Record<string, any>, line: string): void;
  error(fields: Record<string, any>, line: string): void;
  fatal(...args: any[]): void;
  child(...args: any[]): any;
}

/** Functions that a worker calls around each attempt.  After "before", the worker calls
 * one of "after", "error" and "lost".  The worker logs their errors, except those of
 * "around". */
export interface Hooks {
  before?(task: Task): unknown;
  /** The handler has returned. */
  after?(task: Task, result: unknown): unknown;
  /** The handler has thrown, or its timeout is over. */
  error?(task: Task, error: unknown): unknown;
  /** The attempt has ended without effect: the task was cancelled, its lease is lost, or the worker
   * stops. */
  lost?(task: Task): unknown;
  /** Calls the handler with next(), and returns the handler's result. */
  around?(task: Task, next: () => Promise<unknown>): unknown;
}

/** A task at regular times, by the server's clock.  All workers together add one task for each
 * time. */
export interface Schedule {
  /** Seconds between the times, which are the multiples of this number since
   * 1970. */
  every?: number;
  /** A cron line, instead of every. */
  cron?: string;
  /** The time zone of cron.  Default: UTC. */
  zone?: string;
  /** The name of the handler.  Default: the schedule's name. */
  task?: FreeName | keyof TaskMap;
  /** Default: the worker's first queue. */
  queue?: string;
  /** Default: schedule. */
  group?: string;
  /** The arguments of the handler.  Default: {}. */
  payload?: unknown;
  /** How old a missed time may be, in seconds, for a starting worker to
   * enqueue it.  Default: 3600.  */
  catchUp?: number;
}

export interface WorkerOptions {
  /** Number of tasks at a time.  Default: 4. */
  concurrency?: number;
  /** Seconds after which other workers may run the tasks of a dead worker.
   * Default: 60. */
  lease?: number;
  /** Seconds that a task may take before it fails and is retried.  Default: no limit. */
  timeout?: number;
  /** Seconds for which running tasks may continue when the worker stops.
   * Default: 5. */
  grace?: number;
  /** Seconds between polls; 0: sleep in fairq.wait, also through a pooler. */
  poll?: number;
  /** A database, or all shards.  Default: the database of PGHOST and so on. */
  databases?: Database | Database[];
  /** Seconds after which the worker ends if the server refuses its connections.  Default: 60.
   * Infinity: it waits without a limit. */
  giveUp?: number;
  /** The worker's name in fairq.tasks, and its application_name.  Default: host and process. */
  name?: string;
  /** The handler of tasks without a name, or with a name that no handler has. */
  default?: DefaultHandler | TimedHandler<DefaultHandler>;
  /** A logger, or the level of the lines on stderr.  Default: 'warn'. */
  log?: 'error' | 'warn' | 'info' | Log | StructuredLog;
  /** Functions that the worker calls around each attempt. */
  hooks?: Hooks;
  /** Tasks at regular times, by the names of their schedules. */
  schedules?: Record<string, Schedule>;
  /** A file that the worker writes every second while it works. */
  alive?: string;
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
  /** The present state of the worker. */
  status(): WorkerStatus;
  /** Calls stop(), for "await using". */
  [Symbol.asyncDispose](): Promise<void>;
}

/** The state of a worker. */
export interface WorkerStatus {
  name: string;
  queues: string[];
  concurrency: number;
  /** The number of tasks whose handlers run. */
  running: number;
  stopping: boolean;
  /** The tasks that run. */
  tasks: Task[];
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
