// What TypeScript is to accept, in strict mode, and what it is to refuse: see readme.js.
import {
  cancel, Dead, enqueue, enqueueBatch, main, Retry, Stopped, work, Worker, WorkerError,
} from 'fairq';
import type { EnqueueOptions, Handler, Handlers, NewTask, Queryable, StartedWorker, Task, WorkerOptions } from 'fairq';

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

const send: Handler = async ({ to, subject }: Mail, task) => {
  task.signal.addEventListener('abort', () => console.log(task.id, task.attemptsLeft));
  await task.setProgress({ to, subject });
  if (task.name === undefined) throw new Retry(30, 'later');
  if (task.headers.dead) throw new Dead('no such address', { cause: 5 });
  return task.enqueuedAt.getTime();
};

export async function consume(rows: Queryable): Promise<void> {
  const options: WorkerOptions = {
    concurrency: 2, lease: 60, timeout: 300, giveUp: Infinity, grace: 5, poll: 0.2, databases: ['postgresql:///a', { host: 'b' }], name: 'w',
    default: (task) => task.complete(rows, task.payload), log: console,
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

export function refused(rows: Queryable, task: Task): void {
  // @ts-expect-error: a group is a string
  enqueue(rows, 'mail', 5);
  // @ts-expect-error: an option that there is not
  enqueue(rows, 'mail', 'bob', {}, { run_at: new Date() });
  // @ts-expect-error: not in a batch
  enqueueBatch(rows, 'mail', [{ group: 'bob', maxAttempts: 3 }]);
  // @ts-expect-error: a task of a batch has a group
  enqueueBatch(rows, 'mail', [{ payload: 1 }]);
  // @ts-expect-error: a client has query()
  cancel({}, 1);
  // @ts-expect-error: a handler is a function
  work('mail', { send: 5 });
  // @ts-expect-error: a timeout is a number
  work('mail', { send: { run: send, timeout: '30 s' } });
  // @ts-expect-error: an option that there is not
  work('mail', { send }, { retries: 3 });
  // @ts-expect-error: a task is as it is
  task.id = 5;
}
