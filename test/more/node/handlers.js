// Handlers: their arguments, and the effects of their results and errors.
'use strict';
const os = require('os');
const {
  fairq, check, equal, errorOf, until, sleep, admin, rows, ask, connect, queue, drop, add, taskOf, ended, said, work,
  Program,
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
    [{ none: true, text: null }, { none: false, text: 'null' }], 'undefined is not a result, null is one');
  const id = await add(name, { a: 1 }, 'task', { priority: 2, maxAttempts: 3, headers: { celery: { x: 1 } } });
  equal((await ended(id)).result, {
    id, attempt: 1, attemptsLeft: 2, queue: name, group: 'bob', payload: { a: 1 }, name: 'task',
    headers: { celery: { x: 1 }, task: 'task' }, priority: 2, lapses: 0, enqueuedAt: true, args: { a: 1 },
    aborted: false,
  }, 'the properties of a task');
  await worker.stop();
  await drop(name);
}

class Odd extends Error {
  get message() { return this.response.text; }
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
    caused: () => {
      const parts = ['::1', '127.0.0.1'].map((host) => new Error(`connect ${host}`));
      const cause = Object.assign(new AggregateError(parts), { code: 'ECONNREFUSED' });
      throw new TypeError('fetch failed', { cause });
    },
    odd: () => { throw new Odd(); },
    plain: () => { throw new fairq.Dead('no invoice', { cause: { code: 5 } }); },
    circle: () => {
      const error = new Error('a', { cause: new Error('b') });
      error.cause.cause = error;
      throw error;
    },
    many: () => { throw new AggregateError(Array.from({ length: 12 }, (_, i) => new Error(`${i}`)), 'many'); },
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
    ['caused', {}, 'TypeError: fetch failed; caused by AggregateError: ECONNREFUSED'
      + ' (Error: connect ::1; Error: connect 127.0.0.1)'],
    ['odd', {}, 'an error without a text, since TypeError: Cannot read properties of undefined (reading \'text\')'],
    ['plain', {}, 'no invoice; caused by { code: 5 }'],
    ['circle', {}, 'Error: a; caused by Error: b; caused by Error: a'],
    ['many', {}, `AggregateError: many (${Array.from('0123456789', (i) => `Error: ${i}`).join('; ')}; 2 more)`],
    ['bad', { what: 'bigint' }, 'TypeError: the result cannot be encoded as JSON: it contains the bigint 1'],
    ['bad', { what: 'circle' }, 'TypeError: the result cannot be encoded as JSON: it contains itself'],
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
    equal(said((await ended(id, 'failed')).error), error, `the error of ${task}, ${JSON.stringify(payload)}`);
  }
  const { error: kept } = await ended(await add(name, {}, 'caused', { maxAttempts: 1 }), 'failed');
  check(/^TypeError: fetch failed; caused by .*\n +at .*handlers\.js.*\ncaused by AggregateError: ECONNREFUSED\n +at .*\n +part: /
    .test(kept) && !/node:|lib.worker|anonymous/.test(kept), 'the error has its causes\' stacks', kept);
  const dead = await ended(await add(name, {}, 'dead'), 'failed');
  equal([dead.attempt, dead.error], [1, 'no such address'], 'Dead: no further attempt');
  const id = await add(name, { delay: 4 }, 'retry');
  await until(async () => (await taskOf(id)).error);
  const { error, run_at: at, popped_at: popped } = await taskOf(id);
  check(at - popped > 3900 && at - popped < 30e3 && error === 'retry in 4 s', 'Retry sets the time', at - popped, error);
  equal([(await ended(id)).result, (await ended(await add(name, {}, 'retry'))).result], [2, 2],
    'Retry without a time uses the backoff');
  check(worker.lines.some((line) => /RangeError: zero[^]*\n +at /.test(line)),
    'an error is logged with its stack');
  check(worker.lines.some((line) => new RegExp('TypeError: fetch failed\n +at [^]*\ncaused by [^]*ECONNREFUSED[^]*'
    + '\n +part: Error: connect ::1\n +at [^]*\n +part: Error: connect 127').test(line)), 'and with its causes',
  worker.lines);
  check(worker.lines.some((line) => line.startsWith(`task ${id}, attempt 1 (retry, queue ${name}, group bob): retried after `)
    && line.endsWith('retry in 4 s')), 'the log has a retry that a handler asked for', worker.lines);
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
  equal(seen.splice(0), [{ pages: 1 }, null, 'TypeError', 'TypeError'], 'progress is visible, and can be removed');
  const task = await ended(await add(name, { cancel: true }), 'cancelled');
  equal([task.status, ...seen.slice(4)], ['cancelled', true, true, true], 'setProgress of a cancelled task rejects');
  await worker.stop();
  await client.end();
  await drop(name);
}

// A later attempt gets the steps and the cursor of an earlier attempt.
async function resumed() {
  const name = await queue('resumed', "backoff => '0.1 s'");
  const seen = [];
  const nameOf = async (promise) => (await errorOf(promise)).name;
  const worker = work(name, async (task) => {
    seen.push([task.progress, task.cursor]);
    if (task.attempt === 1) {
      await task.setProgress([1]);
      seen.push(await nameOf(task.step('s', () => 1)), await nameOf(task.checkpoint(1n)));
      await task.setProgress({ page: 1 });
      const both = ['a', 'b'].map((step) => task.step(step, async () => ({ step, at: undefined })));
      seen.push(await Promise.all(both), await nameOf(task.step('zero', () => '\0')));
      seen.push(await nameOf(task.setProgress(5)));
      for (let n = 0; n < 5; n++) await task.checkpoint({ n });
      throw new fairq.Retry(0);
    }
    await task.step('a', () => seen.push('not again'));
    await task.setProgress(null);
    return task.progress;
  });
  const done = await ended(await add(name, {}));
  const ours = { steps: { a: { step: 'a' }, b: { step: 'b' } }, cursor: { n: 4 } };
  equal(seen, [[null, undefined], 'TypeError', 'TypeError', [{ step: 'a' }, { step: 'b' }], 'error',
    'TypeError', [{ page: 1, fairq: ours }, { n: 4 }]], 'what attempts see', seen);
  equal([done.progress, done.result], [{ fairq: ours }, { fairq: ours }], 'steps and cursor stay');
  await worker.stop();
  await drop(name);
}

// README's way to run something exactly once, and how it can fail.
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
  }, { concurrency: 1, lease: 5 });
  const done = await ended(await add(name, {}));
  equal([done.status, done.result, await credited()], ['completed', { credited: true }, 1],
    'a task that is completed in a transaction ends with the transaction');
  const retried = await ended(await add(name, { fails: 1 }));
  equal([retried.status, retried.attempt, await credited()], ['completed', 2, 2],
    'a task whose transaction is rolled back is retried');
  const forgotten = await ended(await add(name, { forgets: 1 }));
  equal([forgotten.status, forgotten.attempt, await credited()], ['completed', 2, 3],
    'even if its handler then returns, the task is retried when its lease has expired');
  equal(worker.lines.filter((line) => !/it broke/.test(line)), [], 'the log has no other lines');
  const id = await add(name, { lost: true });
  await until(() => task_.id === id && task_.attempt >= 3);
  await worker.stop();
  equal([await credited(), (await taskOf(id)).status], [3, 'queued'], 'a lost task changes nothing');
  equal(task_.signal.reason instanceof fairq.Stopped, true, 'the signal of the lost task is aborted');
  await client.end();
  await ask('DROP TABLE credit');
  await drop(name);
}

// A task that is released while a worker runs it can start again in the same
// worker.
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
    'if a worker has two attempts of a task, the first one is stopped');
  await worker.stop();
  equal(worker.lines, [], 'the log is empty');
  await drop(name);
}

// The duration of the work does not include the call that reports its end.
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
  check(got > 0.09 && got < 5, 'the server gets the duration of the work', got);
  await worker.stop();
  await client.end();
  await drop(name);
}

// Payloads and headers that jsonb can store, but JavaScript cannot represent.
async function undecodable() {
  const name = await queue('undecodable', "max_attempts => 2, backoff => '0.1 s'");
  const enqueue = (group, payload, headers) => ask(`SELECT fairq.enqueue($1, $2, $3::text::jsonb,
    headers => $4::text::jsonb)`, name, group, payload, headers);
  const digits = '9'.repeat(5000);
  const nested = `${'['.repeat(12000)}${']'.repeat(12000)}`;
  const bad = [
    [await enqueue('a', `[1, {"x": [-${digits}]}]`, '{}'), 'the payload'],
    [await enqueue('b', '{}', `{"task": "it", "x": ${digits}}`), 'headers'],
  ];
  const good = [await enqueue('c', nested, '{}'), await enqueue('d', '{}', `{"x": ${nested}}`),
    await enqueue('e', `{"x": "${digits}", "y": ${'9'.repeat(308)}, "z": 1e-400}`, '{}'), await enqueue('f', '5', null)];
  let seen = 0;
  const worker = work(name, () => { seen++; }, { concurrency: 10 });
  for (const id of good) {
    const task = await ended(id);
    equal([task.status, task.attempt], ['completed', 1], 'other tasks, and a deep payload, are completed');
  }
  for (const [id, what] of bad) {
    const task = await ended(id, 'failed');
    equal([task.attempt, said(task.error)], [2, `TypeError: ${what} cannot be decoded: it has a number that is out of`
      + ' the range of JavaScript'], 'a payload that cannot be decoded fails alone, after its attempts');
  }
  equal(seen, good.length, 'without its handler');

  // payloads of a few kB, whose text is larger than the server can print, or than
  // JavaScript can hold
  const numbers = (count) => ask(`SELECT fairq.enqueue($1, 'bob', jsonb_agg(1e131071::numeric), max_attempts => 1)
    FROM generate_series(1, $2)`, name, count);
  const enough = os.freemem() > 3 * 2 ** 30;
  if (!enough) console.log('ok - payloads that are too large # SKIP there are no 3 GB of memory');
  for (const [count, error] of !enough ? [] : [
    [10000, 'TypeError: the payload or headers cannot be read: out of memory'],
    [2500, 'TypeError: the payload or headers cannot be read: they have 256 MB of text'],
  ]) {
    await ask('BEGIN');
    const bomb = await numbers(count);
    const beside = await fairq.enqueue(admin, name, 'alice');
    await ask('COMMIT');
    const bombed = () => ask('SELECT status, attempt, error FROM fairq.tasks WHERE id = $1', bomb);
    equal((await ended(beside)).status, 'completed', 'a task popped with a payload that is too large is completed');
    await until(async () => (await bombed()).status === 'failed');
    const failed = await bombed();
    // PostgreSQL 18 has another message for this error
    failed.error = failed.error.replace(/string buffer exceeds maximum allowed length .*/, 'out of memory');
    equal(failed, { status: 'failed', attempt: 1, error }, 'the payload that is too large fails alone');
  }
  await worker.stop();
  await drop(name);
}

// A worker logs that the server has refused to complete a task whose work is
// done.
async function refusal() {
  const name = await queue('refusal');
  let over;
  const until_ = new Promise((resolve) => { over = resolve; });
  const worker = work(name, (task) => (task.attempt === 1 ? until_ : null), { concurrency: 1 });
  const id = await fairq.enqueue(admin, name, 'alice');
  await until(async () => (await taskOf(id)).status === 'running');
  await ask('SELECT fairq.release($1)', id);
  over();
  equal((await ended(id)).attempt, 2, 'another attempt runs it');
  equal(worker.lines, [`task ${id}, attempt 1 (queue refusal, group alice): the server refused its complete: it was`
    + ' cancelled, its lease was lost, or an earlier call had ended it'],
  'the log has the refusal of the first task');
  await worker.stop();
  await drop(name);
}

async function timeouts() {
  const name = await queue('timeouts', "max_attempts => 2, backoff => '0.1 s'");
  const events = [];
  let over;
  const opened = new Promise((resolve) => { over = resolve; });
  let pass;
  const passed = new Promise((resolve) => { pass = resolve; });
  const worker = work(name, {
    heeds: async (args, task) => {
      events.push(task.attempt);
      if (task.attempt === 1) await sleep(60e3, undefined, { signal: task.signal });
    },
    catches: async (args, task) => {
      await sleep(60e3, undefined, { signal: task.signal }).catch(() => events.push(task.signal.reason.message));
      return 'done after all';
    },
    own: { run: (args, task) => sleep(60e3, undefined, { signal: task.signal }), timeout: 0.7 },
    none: { run: () => sleep(2500), timeout: Infinity },
    quick: () => {},
    deaf: async () => { await opened; },
    gated: { run: async (args, task) => { events.push(task.id); await passed; }, timeout: Infinity },
  }, { concurrency: 2, timeout: 1.5 });
  const heeds = await ended(await add(name, {}, 'heeds'));
  equal([heeds.status, heeds.attempt, events.splice(0)], ['completed', 2, [1, 2]],
    'a timed out task is retried');
  const errorOf_ = async (task) => (await ended(await add(name, {}, task, { maxAttempts: 1 }), 'failed')).error;
  equal([await errorOf_('catches'), events], ['timed out after 1.5 s', ['timed out after 1.5 s']],
    'the task has failed, in spite of its handler\'s later result');
  equal(await errorOf_('own'), 'timed out after 0.7 s', 'a handler has its own timeout');
  equal((await ended(await add(name, {}, 'none'))).status, 'completed', 'or none');
  equal(worker.lines.filter((line) => /slot/.test(line)), [], 'no slot is lost');

  const id = await add(name, {}, 'deaf', { maxAttempts: 1 });
  equal((await ended(id, 'failed')).error, 'timed out after 1.5 s', 'the worker does not wait for a handler that ignores its signal');
  const lost = `task ${id}, attempt 1 (deaf, queue timeouts, group bob): timed out, and its handler still runs;`
    + ' until it ends, 1 of 2 slots are left';
  check(await until(() => worker.lines.includes(lost)), 'a handler that still runs keeps its slot', worker.lines);
  events.length = 0;
  const gated = [await add(name, {}, 'gated'), await add(name, {}, 'gated')];
  await until(() => events.length > 0);
  await sleep(500);
  equal((await Promise.all(gated.map(taskOf))).map((task) => task.status), ['running', 'queued'],
    'the worker runs one task less at a time');
  pass();
  equal((await ended(gated[1])).status, 'completed', 'the tasks run one after the other');
  over();
  check(await until(() => worker.lines.some((line) => /its handler has ended; its slot is free again/.test(line))),
    'until it ends', worker.lines);
  await worker.stop();
  await drop(name);
}

// A worker ends if its handlers keep all slots after their timeouts.  If a
// handler computes forever, only its task fails.
async function hanging() {
  const name = await queue('hanging', "max_attempts => 1");
  const program = (handler) => new Program(`
    const { main } = require('fairq');
    process.on('exit', (status) => console.log('exit', status));
    main('${name}', ${handler}, { timeout: 1, grace: 1, lease: 6, concurrency: 2 });`);
  const deaf = program('() => new Promise((resolve) => setInterval(() => {}, 1000))');
  for (let i = 0; i < 3; i++) await add(name, i);
  const limit = await deaf.status();
  equal([limit, deaf.stdout], [1, 'exit 1\n'], 'a worker whose slots are all lost ends');
  check(/^worker: no slot is left: all handlers have timed out and still run$/m.test(deaf.stderr), 'and says so',
    deaf.stderr);
  const tasks = await rows('SELECT status, error FROM fairq.tasks WHERE queue = $1 ORDER BY id', name);
  equal(tasks.map(({ status, error }) => [status, error]), [...Array(2).fill(['failed', 'timed out after 1 s']),
    ['queued', null]], 'its tasks have failed, and the next one was not started');
  await ask('SELECT fairq.purge($1)', name);
  await ask('SELECT fairq.purge_failed($1)', name);

  const endless = program('() => { for (;;); }');
  const [first, second] = [await add(name, 1), await add(name, 2)];
  equal((await ended(first, 'failed')).error, 'timed out after 1 s: a handler keeps the event loop from turning',
    'the thread ends the attempt of a handler that computes');
  equal((await taskOf(second)).status, 'running', 'the other task, which that handler blocks, keeps its lease');
  endless.kill('SIGKILL');
  await endless.closed;
  await drop(name);
}

// A task whose lease has expired runs alone.
async function suspects() {
  const name = await queue('suspects', "backoff => '0.1 s'");
  const other = await queue('near suspects');
  const add_ = (queue_, payload, group) => fairq.enqueue(admin, queue_, group, payload);
  const running = new Set();
  const events = [];
  const began = async (task) => {
    running.add(task.id);
    if (task.lapses > 0 || events.alone) events.push([task.lapses, [...running]]);
    events.alone = task.lapses > 0;
    await sleep(700);
    running.delete(task.id);
    events.alone = false;
  };
  const ids = [];
  for (const group of 'abc') ids.push(await add_(name, {}, group));
  await ask("SELECT count(*) FROM fairq.pop($1, 3, lease => '0.1 s')", name);
  await sleep(300);
  for (const group of 'def') await add_(other, {}, group);
  const worker = work([other, name], began, { concurrency: 6 });
  for (const id of ids) {
    const task = await ended(id);
    equal([task.status, task.lapses], ['completed', 1], 'a task whose lease has expired is completed');
  }
  await worker.stop();
  equal(events.map(([lapses, beside]) => [lapses, beside.length]), Array(3).fill([1, 1]),
    'and runs alone', events);
  equal(worker.lines, [], 'the log is empty');
  await drop(name);
  await drop(other);
}

module.exports = {
  results, failures, progress, resumed, exactlyOnce, again, took, undecodable, refusal, timeouts, hanging, suspects,
};
