// Handlers: what they are given, and what becomes of what they return and throw.
'use strict';
const {
  fairq, check, equal, errorOf, until, sleep, ask, connect, queue, drop, add, taskOf, ended, work,
} = require('./harness');

async function results() {
  const name = await queue('results');
  const worker = work(name, {
    sum: ([a, b]) => a + b,
    greet: async ({ to }) => `hello ${to}`,
    nothing: () => {},
    nil: () => null,
    several: () => Promise.all([1, undefined]),
    self({ key }) { return typeof this[key]; },
    task: (args, task) => ({ ...task, enqueuedAt: task.enqueuedAt instanceof Date, args, aborted: task.signal.aborted }),
  }, { default: (task) => ['rest', task.name, task.payload, task.headers] });
  for (const [task, payload, result] of [
    ['sum', [3, 4], 7],
    ['greet', { to: 'bob' }, 'hello bob'],
    ['several', {}, [1, null]],
    ['self', { key: 'sum' }, 'function'],
    ['other', 5, ['rest', 'other', 5, { task: 'other' }]],
    ['toString', {}, ['rest', 'toString', {}, { task: 'toString' }]],
    [undefined, 'x', ['rest', null, 'x', {}]],
  ]) equal((await ended(await add(name, payload, task))).result, result, `the result of ${task}`);
  const isNull = async (task) => {
    const { id } = await ended(await add(name, {}, task));
    return ask('SELECT result IS NULL AS none, result::text AS text FROM fairq.tasks WHERE id = $1', id);
  };
  equal([await isNull('nothing'), await isNull('nil')],
    [{ none: true, text: null }, { none: false, text: 'null' }], 'undefined is no result, null is one');
  const id = await add(name, { a: 1 }, 'task', { priority: 2, maxAttempts: 3, headers: { celery: { x: 1 } } });
  equal((await ended(id)).result, {
    id, attempt: 1, attemptsLeft: 2, queue: name, group: 'bob', payload: { a: 1 }, name: 'task',
    headers: { celery: { x: 1 }, task: 'task' }, priority: 2, enqueuedAt: true, args: { a: 1 }, aborted: false,
  }, 'what a task says of itself');
  await worker.stop();
  await drop(name);
}

async function failures() {
  const name = await queue('failures', "backoff => '0.1 s'");
  const circle = {};
  circle.circle = circle;
  const worker = work(name, {
    throw: ({ what }) => { throw { text: 'a text', nothing: undefined, object: { code: 5 } }[what]; },
    error: () => { throw new RangeError('zero \0, ü'); },
    dead: () => { throw new fairq.Dead('no such address'); },
    mute: () => { throw Object.assign(new AggregateError([]), { code: 'ECONNREFUSED' }); },
    retry: ({ delay }, task) => {
      if (task.attempt === 1) throw new fairq.Retry(delay);
      return task.attempt;
    },
    bad: ({ what }) => ({ bigint: 1n, circle, zero: 'a\0b' }[what]),
  });
  for (const [task, payload, error] of [
    ['throw', { what: 'text' }, 'a text'],
    ['throw', { what: 'nothing' }, 'undefined'],
    ['throw', { what: 'object' }, '{ code: 5 }'],
    ['error', {}, 'RangeError: zero \\x00, ü'],
    ['mute', {}, 'AggregateError: ECONNREFUSED'],
    ['bad', { what: 'bigint' }, 'TypeError: the result is no JSON: it has the bigint 1'],
    ['bad', { what: 'circle' }, 'TypeError: the result is no JSON: it is in itself'],
    ['bad', { what: 'zero' }, 'error: unsupported Unicode escape sequence'],
    ['retry', { delay: -1 }, 'error: retry_in must be between 0 and 100 years'],
    ['retry', { delay: 1e10 }, 'error: retry_in must be between 0 and 100 years'],
    ['nobody', {}, 'no handler for task nobody'],
    ['constructor', {}, 'no handler for task constructor'],
    [undefined, {}, `no handler for tasks of queue ${name}`],
    ['error', 5, 'TypeError: the payload of task error must be an object or an array'],
    ['error', null, 'TypeError: the payload of task error must be an object or an array'],
  ]) {
    const id = await add(name, payload, task, { maxAttempts: 1 });
    equal((await ended(id, 'failed')).error, error, `the error of ${task}, ${JSON.stringify(payload)}`);
  }
  const dead = await ended(await add(name, {}, 'dead'), 'failed');
  equal([dead.attempt, dead.error], [1, 'no such address'], 'Dead: no other attempt');
  const id = await add(name, { delay: 4 }, 'retry');
  await until(async () => (await taskOf(id)).error);
  const { error, run_at: at, popped_at: popped } = await taskOf(id);
  check(at - popped > 3900 && at - popped < 30e3 && error === 'retry in 4 s', 'Retry says when', at - popped, error);
  equal([(await ended(id)).result, (await ended(await add(name, {}, 'retry'))).result], [2, 2],
    'or leaves it to the backoff');
  check(worker.lines.some((line) => /RangeError: zero[^]*\n +at /.test(line)),
    'an error is told with where it was');
  equal(worker.lines.filter((line) => /retry/.test(line)), [], 'that a handler asked for a retry is not');
  await worker.stop();
  await drop(name);
}

async function progress() {
  const name = await queue('progress');
  const seen = [];
  const worker = work(name, async (task) => {
    await task.setProgress({ pages: 1 });
    seen.push((await taskOf(task.id)).progress);
    await task.setProgress(null);
    seen.push((await taskOf(task.id)).progress);
    for (const bad of [undefined, 1n]) seen.push((await errorOf(task.setProgress(bad))).name);
    if (task.payload.cancel) {
      await fairq.cancel(await connection(), task.id);
      const error = await errorOf(task.setProgress(2));
      seen.push(error instanceof fairq.Stopped, task.signal.aborted, task.signal.reason === error);
      throw error;
    }
  });
  let client;
  const connection = async () => { client = client || await connect(); return client; };
  await ended(await add(name, {}));
  equal(seen.splice(0), [{ pages: 1 }, null, 'TypeError', 'TypeError'], 'progress is seen, and taken away');
  const task = await ended(await add(name, { cancel: true }), 'cancelled');
  equal([task.status, ...seen.slice(4)], ['cancelled', true, true, true], 'that of a cancelled task rejects');
  await worker.stop();
  await client.end();
  await drop(name);
}

// README's way to do something exactly once, and what may go wrong with it.
async function exactlyOnce() {
  const name = await queue('once', "backoff => '0.1 s'");
  await ask('CREATE TABLE credit (n int)');
  const client = await connect();
  const credited = () => ask('SELECT coalesce(sum(n), 0)::int FROM credit');
  let task_;
  const worker = work(name, async (task) => {
    task_ = task;
    await client.query('BEGIN');
    try {
      await client.query('INSERT INTO credit VALUES (1)');
      if (task.payload.lost) await ask('SELECT fairq.release($1)', task.id);
      await task.complete(client, { credited: true });
      if (task.payload.fails >= task.attempt) throw new Error('it broke');
      if (task.payload.forgets >= task.attempt) return await client.query('ROLLBACK');
      await client.query('COMMIT');
    } catch (error) {
      await client.query('ROLLBACK');
      throw error;
    }
    return 'not this';
  }, { concurrency: 1, lease: 1 });
  const done = await ended(await add(name, {}));
  equal([done.status, done.result, await credited()], ['succeeded', { credited: true }, 1],
    'a task that is completed in a transaction is done with it');
  const retried = await ended(await add(name, { fails: 1 }));
  equal([retried.status, retried.attempt, await credited()], ['succeeded', 2, 2],
    'one that is rolled back is retried');
  const forgotten = await ended(await add(name, { forgets: 1 }));
  equal([forgotten.status, forgotten.attempt, await credited()], ['succeeded', 2, 3],
    'also if the handler does not say so, when the lease ends');
  equal(worker.lines.filter((line) => !/it broke/.test(line)), [], 'there is no more to be told');
  const id = await add(name, { lost: true });
  await until(() => task_.id === id && task_.attempt >= 3);
  await worker.stop();
  equal([await credited(), (await taskOf(id)).status], [3, 'queued'], 'one that is lost changes nothing');
  equal(task_.signal.reason instanceof fairq.Stopped, true, 'and its signal is aborted');
  await client.end();
  await ask('DROP TABLE credit');
  await drop(name);
}

// A task that was handed back while its worker had it, which then gets it again.
async function again() {
  const name = await queue('again');
  const events = [];
  const worker = work(name, async (task) => {
    events.push(`begin ${task.attempt}`);
    if (task.attempt > 1) return;
    task.signal.addEventListener('abort', () => events.push('abort 1'));
    await sleep(60e3, undefined, { signal: task.signal });
  });
  const id = await add(name, {});
  await until(() => events.length === 1);
  await ask('SELECT fairq.release($1)', id);
  equal([(await ended(id)).attempt, events], [2, ['begin 1', 'abort 1', 'begin 2']],
    'of two attempts of a task in the same hands, the first one is stopped');
  await worker.stop();
  equal(worker.lines, [], 'there is nothing to be told');
  await drop(name);
}

// How long the work took, and not until when the server has been told.
async function took() {
  const name = await queue('took', "fair_by => 'time'");
  const client = await connect();
  const worker = work(name, async (task) => {
    await client.query('BEGIN');
    await client.query('SELECT 1 FROM fairq.task WHERE id = $1 FOR UPDATE', [task.id]);
    await sleep(100);
  });
  const id = await add(name, {});
  await until(async () => (await ask(`SELECT count(*)::int FROM pg_stat_activity
    WHERE wait_event_type = 'Lock' AND query LIKE '%fairq.complete%'`)) > 0);
  await sleep(6000);
  await client.query('COMMIT');
  await ended(id);
  const got = await ask("SELECT got::float8 FROM fairq.groups WHERE queue = $1 AND group_key = 'bob'", name);
  check(got > 0.09 && got < 5, 'the server is told how long the work took', got);
  await worker.stop();
  await client.end();
  await drop(name);
}

module.exports = { results, failures, progress, exactlyOnce, again, took };
