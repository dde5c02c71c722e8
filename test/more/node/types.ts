// The code that TypeScript must accept in strict mode, and the code that it
// must refuse: see readme.js.
import {
  cancel, cancelBatch, closeBatch, createBatch, Dead, enqueue, enqueueBatch, ensureQueues, find,
  inBatch, main, redrive, redriveTask, reschedule, Retry, Stopped, work,
  Worker, WorkerError,
} from 'fairq';
import * as otel from 'fairq/otel';
import { Metrics } from 'fairq/prometheus';
import { runTasks } from 'fairq/testing';
import type {
  EnqueueOptions, Handler, Handlers, Hooks, NewTask, Queryable, StartedWorker, Task, WorkerOptions,
} from 'fairq';

interface Mail {
  to: string;
  subject?: string;
}

export async function produce(rows: Queryable): Promise<number[]> {
  const options: EnqueueOptions = {
    task: 'send', delay: 1.5, priority: 3, dedupKey: 'k', dedupUntil: 'started', dedupFor: 5, replace: true,
    maxAttempts: 3, cost: 2, headers: { traceparent: '00' },
  };
  const id: number = await enqueue(rows, 'mail', 'bob', { to: 'x@example.com' }, options);
  await enqueue(rows, 'mail', '', undefined, { runAt: new Date(), expiresAt: 'infinity', emptyGroup: true });
  const there: boolean = await cancel(rows, id);
  const tasks: NewTask[] = [{ group: 'bob', payload: [1], runAt: new Date() }, { group: 'alice' }];
  const own: Queryable = { query: async (text, values) => [{ id: text.length + values.length }] };
  return there ? enqueueBatch(own, 'mail', new Set(tasks), { emptyGroup: true }) : [];
}

export async function wait(rows: Queryable, task: Task): Promise<number> {
  const outer: number = await createBatch(rows, 'mail', 'bob', { to: 'x' }, { task: 'report', onSuccess: true });
  await inBatch(rows, { queue: 'mail', group: 'bob', batch: outer, maxAttempts: 3 }, async (batch) => {
    await enqueue(rows, 'mail', 'bob', {}, { batch });
    await enqueueBatch(rows, 'mail', [{ group: 'bob' }], { batch: task.batch });
  });
  const closed: boolean = await closeBatch(rows, outer);
  return closed ? 0 : cancelBatch(rows, outer);
}

const send: Handler = async ({ to, subject }: Mail, task) => {
  task.signal.addEventListener('abort', () => console.log(task.id, task.attemptsLeft));
  await task.setProgress({ to, subject });
  const half: number = await task.step('half', async () => task.progress.all / 2);
  await task.checkpoint(task.cursor + half);
  if (task.name === undefined) throw new Retry(30, 'later');
  if (task.headers.dead) throw new Dead('no such address', { cause: 5 });
  return task.enqueuedAt.getTime();
};

export async function deploy(rows: Queryable): Promise<boolean> {
  await ensureQueues(rows, { mail: { concurrency: 2, retain: 3600, fairBy: 'time' }, reports: {} });
  const id: number | null = await find(rows, 'mail', 'k');
  const n: number = await redrive(rows, 'mail', { group: 'bob', maxTasks: 5, toQueue: 'other' });
  return id !== null && n > 0 && await reschedule(rows, id, new Date()) && redriveTask(rows, id, { toPriority: 3 });
}

const hooks: Hooks = {
  before: (task) => console.log(task.id),
  error: async (task, error) => console.log(task.batch, error),
  around: async (task, next) => [await next(), task.name],
};

export async function traced(rows: Queryable): Promise<number> {
  work('mail', { send }, { hooks: otel.hooks(), log: 'info' });
  const [id]: number[] = await otel.enqueueBatch(rows, 'mail', [{ group: 'bob' }], { emptyGroup: true });
  return id + await otel.enqueue(rows, 'mail', 'bob', {}, { task: 'send', batch: id });
}

export function measured(): string {
  const metrics = new Metrics();
  metrics.serve(9100, '127.0.0.1').close();
  work('mail', { send }, { hooks: { ...otel.hooks(), ...metrics.hooks } });
  return metrics.text();
}

export async function consume(rows: Queryable): Promise<void> {
  const options: WorkerOptions = {
    concurrency: 2, lease: 60, timeout: 300, giveUp: Infinity, grace: 5, poll: 0.2, databases: ['postgresql:///a', { host: 'b' }], name: 'w',
    default: (task) => task.complete(rows, task.payload), log: console, hooks,
    schedules: { tidy: { every: 5 }, daily: { cron: '0 8 * * *', zone: 'Asia/Tokyo', task: 'send', payload: [1], catchUp: 0 } },
  };
  const worker: StartedWorker = work(['a', 'b'], { send, other: ([n]: number[], { group }) => [n, group] }, options);
  await worker.stop();
  await worker.ended.catch((error) => console.log(error instanceof WorkerError));
  const later = new Worker('a', async (task: Task<Mail>) => {
    const to: string = task.payload.to;
    throw new Stopped(to);
  });
  await later.run();
  const handlers: Handlers = { send: { run: send, timeout: 30 }, other: (args, task) => task.lapses };
  main('a', handlers, { default: { run: (task) => task.lapses, timeout: Infinity } }).then(() => 5);
}

export async function tested(rows: Queryable): Promise<boolean> {
  const [{ task, result, error }] = await runTasks(rows, new Worker('mail', { send }), { most: 5 });
  return task.id > 5 && result === 5 && error instanceof Dead;
}

export function refused(rows: Queryable, task: Task): void {
  // @ts-expect-error: a group is a string
  enqueue(rows, 'mail', 5);
  // @ts-expect-error: an unknown option
  enqueue(rows, 'mail', 'bob', {}, { run_at: new Date() });
  // @ts-expect-error: not in a batch
  enqueueBatch(rows, 'mail', [{ group: 'bob', maxAttempts: 3 }]);
  const worker = work('mail', { send }, { alive: '/tmp/alive' });
  const ids: number[] = worker.status().tasks.map((task) => task.id);
  const end: () => Promise<void> = worker[Symbol.asyncDispose];
  ids.push(worker.status().running, end.length);
  // @ts-expect-error: a task of a batch has a group
  enqueueBatch(rows, 'mail', [{ payload: 1 }]);
  // @ts-expect-error: a task that waits for a batch has no time
  createBatch(rows, 'mail', 'bob', {}, { delay: 5 });
  // @ts-expect-error: a client has query()
  cancel({}, 1);
  // @ts-expect-error: a handler is a function
  work('mail', { send: 5 });
  // @ts-expect-error: a timeout is a number
  work('mail', { send: { run: send, timeout: '30 s' } });
  // @ts-expect-error: an unknown option
  work('mail', { send }, { retries: 3 });
  // @ts-expect-error: an unknown setting
  ensureQueues(rows, { mail: { concurency: 2 } });
  // @ts-expect-error: an unknown hook
  work('mail', { send }, { hooks: { begin: () => {} } });
  // @ts-expect-error: an interval is a number
  work('mail', { send }, { schedules: { tidy: { every: '5 min' } } });
  // @ts-expect-error: a worker
  runTasks(rows, 'mail');
  // @ts-expect-error: an unknown level
  work('mail', { send }, { log: 'debug' });
  // @ts-expect-error: a task is read-only
  task.id = 5;
}
