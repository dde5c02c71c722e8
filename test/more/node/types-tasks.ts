// A program that declares the payloads of its tasks: see readme.js.
import {
  createBatch, enqueue, enqueueBatch, inBatch, work,
} from 'fairq';
import * as otel from 'fairq/otel';
import type { Queryable } from 'fairq';

declare module 'fairq' {
  interface TaskMap {
    send: { to: string; subject?: string };
    resize: [url: string, width: number];
  }
}

export async function accepted(rows: Queryable): Promise<void> {
  const batch: number = await enqueue(rows, 'mail', 'bob', { to: 'x' }, { task: 'send', delay: 5 });
  await enqueue(rows, 'mail', 'bob', ['https://x', 100], { task: 'resize' });
  await enqueue(rows, 'files', 'bob', { free: true }, { priority: 3 });
  await enqueueBatch(rows, 'mail', [
    { group: 'bob', task: 'send', payload: { to: 'x' }, priority: 1 }, { group: 'bob', task: 'resize', payload: ['x', 1] },
    { group: 'bob', payload: 5 },
  ], { batch });
  await createBatch(rows, 'mail', 'bob', { to: 'x' }, { task: 'send' });
  await inBatch(rows, { queue: 'mail', group: 'bob', task: 'send', payload: { to: 'x' } }, () => {});
  await otel.enqueue(rows, 'mail', 'bob', { to: 'x' }, { task: 'send' });
  work('mail', {
    send: ({ to, subject }, task) => to.length + (subject || task.payload.to).length,
    resize: { run: ([url, width]) => [url.length, width.toFixed()], timeout: 5 },
  }, { schedules: { daily: { every: 5, task: 'send', payload: { to: 'x' } } } });
  work('mail', { send: ({ to }) => to });
}

export function refused(rows: Queryable): void {
  // @ts-expect-error: an unknown name
  enqueue(rows, 'mail', 'bob', { to: 'x' }, { task: 'sned' });
  // @ts-expect-error: a payload of another type
  enqueue(rows, 'mail', 'bob', { to: 5 }, { task: 'send' });
  // @ts-expect-error: a payload that lacks a property
  enqueue(rows, 'mail', 'bob', {}, { task: 'send' });
  // @ts-expect-error: the payload of another task
  enqueue(rows, 'mail', 'bob', { to: 'x' }, { task: 'resize' });
  // @ts-expect-error: no payload
  enqueue(rows, 'mail', 'bob', undefined, { task: 'send' });
  // @ts-expect-error: an unknown name
  enqueueBatch(rows, 'mail', [{ group: 'bob', task: 'sned', payload: { to: 'x' } }]);
  // @ts-expect-error: a payload of another type
  enqueueBatch(rows, 'mail', [{ group: 'bob', task: 'send', payload: { to: 5 } }]);
  // @ts-expect-error: the task that waits
  createBatch(rows, 'mail', 'bob', { to: 5 }, { task: 'send' });
  // @ts-expect-error: the task that waits
  inBatch(rows, { queue: 'mail', group: 'bob', task: 'send', payload: {} }, () => {});
  // @ts-expect-error: a payload of another type, in a span
  otel.enqueue(rows, 'mail', 'bob', { to: 5 }, { task: 'send' });
  // @ts-expect-error: a handler of an unknown task
  work('mail', { sned: () => {} });
  // @ts-expect-error: a handler of other arguments
  work('mail', { send: ({ to }: { to: number }) => to });
  // @ts-expect-error: a schedule of an unknown task
  work('mail', {}, { schedules: { daily: { every: 5, task: 'sned' } } });
}
