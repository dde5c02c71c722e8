// Enqueueing and cancelling.
'use strict';
const { Pool, types } = require('pg');
const {
  fairq, check, equal, errorOf, sleep, admin, rows, ask, connect, queue, drop, add, taskOf, ended, work,
} = require('./harness');

const AT = new Date('2099-01-02T03:04:05.678Z');

async function transactions() {
  const name = await queue('transactions');
  const count = () => ask('SELECT count(*)::int FROM fairq.tasks WHERE queue = $1', name);
  const pool = new Pool();
  const client = await connect();
  const lent = await pool.connect();
  for (const [what, one] of [['Client', client], ['PoolClient', lent]]) {
    await one.query('BEGIN');
    const id = await fairq.enqueue(one, name, 'bob', { n: 1 });
    await fairq.enqueueBatch(one, name, [{ group: 'bob' }, { group: 'alice' }]);
    equal(await count(), 0, `${what}: nothing is committed`);
    await one.query('ROLLBACK');
    equal([await count(), await fairq.cancel(one, id)], [0, false],
      `${what}: a rollback leaves no task`);
    await one.query('BEGIN');
    await fairq.enqueue(one, name, 'bob');
    await one.query('COMMIT');
    equal(await count(), 1, `${what}: a commit leaves the task`);
    await ask('SELECT fairq.purge($1)', name);
  }
  lent.release();
  const id = await fairq.enqueue(pool, name, 'bob', null);
  equal((await taskOf(id)).payload, null, 'Pool: the task exists');
  equal([await fairq.cancel(pool, id), await fairq.cancel(pool, id)], [true, false], 'cancel');
  await pool.end();
  await client.end();
  await drop(name);
}

async function enqueueArguments() {
  const name = await queue('arguments');
  const payload = { a: 'é\'"\\$1?', b: undefined, c: [null, 1e21], d: AT };
  const options = {
    task: 'send', runAt: AT, priority: 4, dedupKey: 'once', maxAttempts: 7, cost: 2.5,
    headers: { traceparent: '00-1' },
  };
  const ids = [];
  for (let i = 0; i < 2; i++) ids.push(await fairq.enqueue(admin, name, 'büb', payload, options));
  check(typeof ids[0] === 'number' && ids[0] === ids[1], 'a key is passed, an id is a number', ids);
  const task = await taskOf(ids[0]);
  equal([task.group_key, task.payload, task.headers, task.run_at, task.priority, task.max_attempts,
    task.cost], ['büb', { a: payload.a, c: payload.c, d: AT.toISOString() },
    { traceparent: '00-1', task: 'send' }, AT, 4, 7, 2.5], 'and all other arguments');
  equal(await add(name, { z: 1 }, 'later', { dedupKey: 'once', replace: true }), ids[0], 'replace');
  equal((await taskOf(ids[0])).payload, { z: 1 }, 'replaces');

  const later = await fairq.enqueue(admin, name, 'bob', undefined, { delay: 100.5, priority: null });
  const left = (await taskOf(later)).run_at - Date.now();
  check(left > 80e3 && left < 101e3 && (await taskOf(later)).headers === null, 'a delay', left);
  const never = await taskOf(await add(name, [], undefined, { runAt: 'infinity' }));
  equal(never.run_at, Infinity, 'a time as text');
  const zoned = ['2099-01-02T03:04:05.678Z', '2099-01-02 03:04:05.678+00', '20990102T050405.678+0200',
    '2099-01-02 04:04:05.678 +01:00', '2099-01-02 04:04:05.678 Europe/Berlin', '2099-01-01 22:04:05.678 EST'];
  for (const text of zoned) {
    const { run_at: at } = await taskOf(await add(name, [], undefined, { runAt: text }));
    equal(at, AT, `a time with a zone: ${text}`);
  }
  const empty = await fairq.enqueue(admin, name, '', {}, { emptyGroup: true });
  const [second] = await fairq.enqueueBatch(admin, name, [{ group: '' }], { emptyGroup: true });
  equal([(await taskOf(empty)).group_key, (await taskOf(second)).group_key], ['', ''],
    'an empty group, on purpose');

  await add(name, {}, 'x', { dedupKey: 'k', dedupUntil: 'started', dedupFor: 3600 });
  await ask('SELECT count(*) FROM fairq.take($1, 9)', name);
  equal((await fairq.enqueueOrFind(admin, name, 'bob', {}, { dedupKey: 'k' })).added, false, 'dedupUntil and dedupFor');
  const found = await fairq.enqueueOrFind(admin, name, 'bob', { n: 1 }, { dedupKey: 'new', task: 'x' });
  equal([found.added, (await taskOf(found.id)).payload], [true, { n: 1 }], 'enqueueOrFind adds a task');
  equal(await fairq.enqueueOrFind(admin, name, 'bob', {}, { dedupKey: 'new' }), { id: found.id, added: false }, 'or finds it');
  await drop(name);
}

async function expiry() {
  const name = await queue('in_time');
  const late = await add(name, 'late', undefined, { expiresAt: new Date(Date.now() + 2000) });
  const early = await add(name, 'early', undefined, { expiresAt: AT });
  equal((await taskOf(early)).expires_at, AT, 'a time by which the task must start');
  await sleep(2500);
  const seen = [];
  const worker = work(name, (task) => { seen.push(task.payload); });
  await ended(early);
  await worker.stop();
  equal([seen, (await taskOf(late)).status], [['early'], 'expired'], 'the task does not start after that time');
  await drop(name);
}

async function batches() {
  const name = await queue('batches');
  const ids = await fairq.enqueueBatch(admin, name, [
    { group: 'a', payload: { n: 1 }, task: 'each', priority: 1, cost: 2, runAt: AT },
    { group: 'b', payload: null, headers: { n: 2 }, dedupKey: 'x', delay: 100 },
    { group: 'ü', payload: [3] },
    { group: 'c', dedupKey: 'x' },
  ]);
  equal([ids.length, ids.every(Number.isInteger), ids[1] === ids[3]], [4, true, true], 'ids of a batch');
  const tasks = await Promise.all(ids.slice(0, 3).map(taskOf));
  equal(tasks.map((t) => [t.group_key, t.payload, t.headers, t.priority, t.cost]), [
    ['a', { n: 1 }, { task: 'each' }, 1, 2], ['b', null, { n: 2 }, 0, 1], ['ü', [3], null, 0, 1],
  ], 'each task of a batch has its own arguments, in order');
  const left = tasks[1].run_at - Date.now();
  equal([tasks[0].run_at, left > 80e3 && left < 101e3, tasks[2].status], [AT, true, 'queued'],
    'and its own time');
  equal(await fairq.enqueueBatch(admin, name, []), [], 'a batch may be empty');
  equal(tasks.map((task) => task.expires_at), [null, null, null], 'tasks of a batch do not expire by default');
  const [one, other] = await fairq.enqueueBatch(admin, name, [{ group: 'a' }, { group: 'b' }], { expiresAt: AT });
  equal([(await taskOf(one)).expires_at, (await taskOf(other)).expires_at], [AT, AT], 'all may expire');
  const error = await errorOf(fairq.enqueueBatch(admin, name, [{ group: 'a' }, { group: 'a', payload: 1n }]));
  check(error instanceof TypeError && /^task 1 of the batch cannot be encoded as JSON/.test(error.message),
    'an error names the number of the task', error);
  await drop(name);
}

// A task waits until all tasks of a batch have ended, or until one fails.
async function waiting() {
  const name = await queue('waiting', 'max_attempts => 1');
  const create = (options) => fairq.createBatch(admin, name, 'bob', { n: 1 }, { task: 'report', ...options });
  const outer = await create({ priority: 4, maxAttempts: 7, headers: { a: 1 } });
  const strict = await create({ batch: outer, onSuccess: true });
  const { status, payload, headers, priority, max_attempts: attempts } = await taskOf(outer);
  equal([status, payload, headers, priority, attempts], ['blocked', { n: 1 }, { a: 1, task: 'report' }, 4, 7],
    'a task that waits, with its arguments');
  equal([typeof strict, (await taskOf(strict)).batch], ['number', String(outer)], 'and its batch');
  await add(name, {}, 'fails', { batch: strict });
  const [later] = await fairq.enqueueBatch(admin, name, [{ group: 'bob', task: 'works' }], { batch: outer });
  equal([await fairq.closeBatch(admin, strict), await fairq.closeBatch(admin, outer),
    await fairq.closeBatch(admin, outer)], [true, true, false], 'closeBatch');
  const seen = [];
  const worker = work(name, {
    fails: () => { throw new Error('it broke'); },
    works: (_, task) => { seen.push(task.batch); },
    report: (_, task) => { seen.push([task.id, task.batch, task.headers.batch]); },
  });
  await ended(outer);
  await worker.stop();
  equal(seen, [outer, [outer, undefined, { completed: 1, failed: 1, cancelled: 0, expired: 0, purged: 0 }]],
    'the waiting task runs when all tasks have ended, one of them without success');
  equal([(await taskOf(later)).status, (await taskOf(strict)).status], ['completed', 'failed'], 'onSuccess');

  const first = await add(name, {}, 'x', { delay: 3600 });
  const second = await add(name, {}, 'x', { after: first });
  const [third] = await fairq.enqueueBatch(admin, name, [{ group: 'bob' }], { after: [first, second], afterAny: true });
  const waitsFor = async (id) => [(await taskOf(id)).status, (await taskOf(id)).waits_for];
  equal([await waitsFor(second), await waitsFor(third)], [['blocked', [`${first}`]], ['blocked', [`${first}`, `${second}`]]], 'after');
  for (const id of [third, second, first]) await fairq.cancel(admin, id);

  const open = await create();
  await add(name, {}, 'works', { batch: open });
  equal([await fairq.cancelBatch(admin, open), await fairq.cancelBatch(admin, open)], [1, 0], 'cancelBatch');
  const { code } = await errorOf(add(name, {}, 'works', { batch: open }));
  equal(code, 'QF009', 'a closed batch takes no task');
  const broken = await errorOf(fairq.inBatch(admin, { queue: name, group: 'bob' }, async (batch) => {
    throw new Error(`batch ${batch}`);
  }));
  const last = Number(/^batch (\d+)$/.exec(broken.message)[1]);
  equal(await fairq.closeBatch(admin, last), true, 'inBatch does not close a batch whose tasks were not added');
  for (const bad of ['x', 1.5, {}]) {
    check((await errorOf(add(name, {}, 'x', { batch: bad }))) instanceof TypeError, `no batch: ${bad}`);
  }
  await drop(name);
}

// When a task's predecessors have ended, the task starts or is cancelled.
async function successors() {
  const name = await queue('successors', 'max_attempts => 1');
  const good = await add(name, {}, 'works', { delay: 3600 });
  const bad = await add(name, {}, 'fails', { delay: 3600 });
  const stopped = await add(name, {}, 'works', { delay: 3600 });
  const once = (after, afterAny) => add(name, {}, 'works', { after, afterAny });
  const wanted = [
    [await once(good), 'completed'], [await once(good, true), 'completed'],
    [await once(bad), 'cancelled'], [await once([bad, good], true), 'completed'],
    [await once(stopped), 'cancelled'], [await once([good, stopped]), 'cancelled'], [await once(stopped, true), 'completed'],
  ];
  const chained = await once(wanted[0][0]);
  const [first, second] = await fairq.enqueueBatch(admin, name, [{ group: 'alice', task: 'works' }, { group: 'bob', task: 'works' }],
    { after: [good, chained] });
  const order = [];
  const worker = work(name, {
    works: (_, task) => { order.push(task.id); },
    fails: (_, task) => { order.push(task.id); throw new Error('it broke'); },
  });
  await fairq.cancel(admin, stopped);
  for (const id of [bad, good]) {
    equal((await taskOf(wanted[0][0])).status, 'blocked', 'a successor waits');
    await fairq.reschedule(admin, id);
    await ended(id, id === bad ? 'failed' : 'completed');
  }
  for (const id of [first, second]) wanted.push([id, 'completed']);
  const seen = [];
  for (const [id, status] of wanted) seen.push([id, (await ended(id, status)).status]);
  await worker.stop();
  equal(seen, wanted, 'the waiting task runs, or is cancelled if a predecessor has not succeeded');
  const ran = wanted.filter(([, status]) => status === 'completed').map(([id]) => id);
  equal(order.slice().sort(), [good, bad, chained, ...ran].sort(), 'each task runs at most once');
  const at = (id) => order.indexOf(id);
  equal([good, wanted[0][0], chained, first].map(at), [good, wanted[0][0], chained, first].map(at).sort((a, b) => a - b),
    'after its predecessors');
  await drop(name);
}

// An application can declare queues, and find, move and redrive tasks.
async function queuesAndTasks() {
  const all = { concurrency: 1, maxRunning: 9, lease: 1.5, maxAttempts: 1, backoff: 2, backoffMax: 60, retain: 3600, retainFailed: 7200,
    notify: true, fairBy: 'cost', rate: 5, per: 10, burst: 2, maxRate: 50, shares: Array.from('9876543211', Number), inOrder: true,
    maxRunTime: 30 };
  const seen = async (name) => (await ask('SELECT (to_jsonb(q) - \'queue_id\')::text AS q FROM fairq.queue q WHERE name = $1', name));
  await fairq.ensureQueues(admin, { first: {}, second: all });
  await ask("SELECT fairq.create_queue('like second', concurrency => 1, max_running => 9, lease => '1.5 s', max_attempts => 1,"
    + " backoff => '2 s', backoff_max => '60 s', retain => '3600 s', retain_failed => '7200 s', notify => true, fair_by => 'cost',"
    + " rate => 5, per => '10 s', burst => 2, max_rate => 50, shares => '{9,8,7,6,5,4,3,2,1,1}', in_order => true, max_run_time => '30 s')");
  await ask("SELECT fairq.create_queue('like first')");
  for (const name of ['first', 'second']) {
    equal(await seen(name), (await seen(`like ${name}`)).replace(`like ${name}`, name), `the queue ${name} is created with its settings`);
  }
  await fairq.ensureQueues(admin, { second: { maxRunning: 8 } });
  equal(await seen('second'), (await seen('like second')).replace('like second', 'second').replace('"max_running": 9', '"max_running": 8'),
    'a queue keeps settings that are not given');

  await fairq.ensureQueues(admin, { second: { rate: 0, maxRate: 0 } });
  const id = await add('second', {}, 'x', { dedupKey: 'k' });
  equal([await fairq.find(admin, 'second', 'k'), await fairq.find(admin, 'second', 'other')], [id, null], 'find');
  equal(await fairq.reschedule(admin, id, AT), true, 'reschedule');
  equal((await taskOf(id)).run_at, AT, 'to a time');
  equal([await fairq.reschedule(admin, id), (await taskOf(id)).status], [true, 'queued'], 'or to now');
  const fail = () => ask("SELECT count(fairq.fail(t.id, t.attempt, 'x', dead => true)) FROM fairq.pop('second', 9, per_group => 9) t");
  await add('second', {}, 'x');
  await fairq.enqueue(admin, 'second', 'alice');
  while (Number(await fail()) > 0);
  equal([await fairq.redrive(admin, 'second', { group: 'alice' }), await fairq.redrive(admin, 'second', { maxTasks: 1 })], [1, 1], 'redrive');
  equal([await fairq.redriveTask(admin, id, { toQueue: 'first' }), await fairq.reschedule(admin, id + 99)], [false, false],
    'the result is false for a task in another state');
  while (Number(await fail()) > 0);
  equal(await fairq.redriveTask(admin, id, { toQueue: 'first', toPriority: 3, toGroup: 'carol' }), true, 'redriveTask');
  const { queue: place, priority, group_key: group } = await taskOf(id);
  equal([place, priority, group], ['first', 3, 'carol'], 'tasks are redriven into another queue, priority and group');
  for (const bad of [{ concurency: 1 }, { lease: '5 s' }, { shares: ['1'] }]) {
    check((await errorOf(fairq.ensureQueues(admin, { bad }))) instanceof TypeError, 'a bad setting is refused', bad);
  }
  for (let i = 0; i < 2; i++) await fairq.ensureQueues(admin, { tenants: { separator: '/', notify: true } });
  equal(await ask("SELECT separator FROM fairq.queues WHERE queue = 'tenants'"), '/', 'a separator');
  for (const [name, separator] of [['tenants', '/'], ['first', null]]) {
    equal((await errorOf(fairq.ensureQueues(admin, { [name]: { separator: ':' } }))).message,
      `the queue ${name} has the separator ${separator}, which cannot be changed`, 'which cannot be changed');
  }
  for (const name of ['first', 'second', 'like first', 'like second', 'tenants']) await drop(name);
}

// Clients of other libraries get queries that they can run, and may answer in
// other forms.
async function otherClients() {
  const name = await queue('others');
  const seen = [];
  const client = {
    async query(text, values) {
      seen.push([text, values]);
      return (await admin.query(text, values)).rows;
    },
  };
  await fairq.enqueue(client, name, 'bob', {}, { task: 'x', delay: 1, cost: 2, dedupKey: 'k', replace: true });
  const [id] = await fairq.enqueueBatch(client, name, [{ group: 'bob' }]);
  equal(await fairq.cancel(client, id), true, 'a client may resolve to rows');
  for (const [text, values] of seen) {
    equal([text.match(/\$\d+/g).join(), values.every((value) => typeof value === 'string'), /[?:]\w/.test(text.replace(/::/g, ''))],
      [values.map((_, i) => `$${i + 1}`).join(), true, false],
      'each parameter is a string, and occurs once and in order');
  }
  // an application may have changed how pg reads a bigint
  for (const parser of [BigInt, Number]) {
    types.setTypeParser(20, parser);
    check(Number.isInteger(await fairq.enqueue(admin, name, 'bob')), `an id that is read as ${parser.name}`);
  }
  types.setTypeParser(20, (value) => value);
  await drop(name);
}

async function refused() {
  const name = await queue('refused');
  const asked = [];
  const client = { query: async (text) => { asked.push(text); return []; } };
  const circular = { a: [] };
  circular.a.push(circular);
  const deep = JSON.parse('['.repeat(100e3) + ']'.repeat(100e3));
  const enqueue = (payload, options) => fairq.enqueue(client, name, 'bob', payload, options);
  for (const [what, call, wanted] of [
    ['a BigInt', () => enqueue({ a: 1n }), 'the payload cannot be encoded as JSON: it contains the bigint 1'],
    ['NaN', () => enqueue([NaN]), 'the payload cannot be encoded as JSON: it contains the number NaN'],
    ['infinity', () => enqueue(-Infinity), 'the payload cannot be encoded as JSON: it contains the number -Infinity'],
    ['undefined in an array', () => enqueue([undefined]), 'the payload cannot be encoded as JSON: an array contains undefined'],
    ['a symbol', () => enqueue({ a: Symbol('s') }), 'the payload cannot be encoded as JSON: it contains the symbol Symbol(s)'],
    ['a function', () => enqueue(() => 1), 'the payload cannot be encoded as JSON: it contains a function'],
    ['a circle', () => enqueue(circular), 'the payload cannot be encoded as JSON: it contains itself'],
    ['deep nesting', () => enqueue(deep), 'the payload cannot be encoded as JSON: it is nested too deeply'],
    ['an object without a value', () => enqueue({ toJSON() {} }), 'the payload cannot be encoded as JSON: it is undefined'],
    ['such headers', () => enqueue({}, { headers: { a: NaN } }), 'headers cannot be encoded as JSON: it contains the number NaN'],
    ['headers that are a list', () => enqueue({}, { headers: [1] }), 'headers must be an object, and is 1'],
    ['no group', () => fairq.enqueue(client, name), 'group must be a string, and is undefined'],
    ['a number as group', () => fairq.enqueue(client, name, 5), 'group must be a string, and is 5'],
    ['an empty group', () => fairq.enqueue(client, name, ''),
      'group must not be empty; if it is meant, give the option emptyGroup'],
    ['an empty group in a batch', () => fairq.enqueueBatch(client, name, [{ group: 'a' }, { group: '' }]),
      'the group of task 1 of the batch must not be empty; if it is meant, give the option emptyGroup'],
    ...['2099-01-02 03:04', '2099-01-02', '2099-01-02T03:04:05', '2099-01-02 03:04 PM', 'tomorrow', '']
      .map((text) => [`a time without a zone: ${text}`, () => enqueue({}, { runAt: text }),
        `runAt must have a time zone, such as Z or +02:00, and is ${text}`]),
    ['such a time in a batch', () => fairq.enqueueBatch(client, name, [], { expiresAt: '2099-01-02 03:04' }),
      'expiresAt must have a time zone, such as Z or +02:00, and is 2099-01-02 03:04'],
    ['an unknown option', () => enqueue({}, { run_at: AT }), 'enqueue has no option "run_at"'],
    ['two times', () => enqueue({}, { delay: 1, runAt: AT }), 'delay and runAt cannot both be given'],
    ['an invalid time', () => enqueue({}, { runAt: new Date('x') }), 'runAt must be a Date, and is Invalid Date'],
    ['a number as time', () => enqueue({}, { runAt: 5 }), 'runAt must be a Date, and is 5'],
    ['a delay as text', () => enqueue({}, { delay: '5 s' }), 'delay must be a number of seconds, and is 5 s'],
    ['an unknown option of a batch', () => fairq.enqueueBatch(admin, 'q', [], { delay: 1 }),
      'enqueueBatch has no option "delay"'],
    ['a number as expiresAt', () => enqueue({}, { expiresAt: 1 }), 'expiresAt must be a Date, and is 1'],
    ['a number as name', () => enqueue({}, { task: 5 }), 'task must be a string, and is 5'],
    ['no client', () => fairq.enqueue(undefined, name, 'bob'), 'a client must have query(text, values)'],
    ['an object as batch', () => fairq.enqueueBatch(client, name, { group: 'bob' }),
      'tasks must be an array, and is [object Object]'],
    ['no task in a batch', () => fairq.enqueueBatch(client, name, [null]),
      'task 0 of the batch must be an object, and is null'],
    ['no id', () => fairq.cancel(client, 'x'), 'id must be an integer, and is x'],
  ]) {
    const error = await errorOf(call);
    equal([error.name, error.message], ['TypeError', wanted], `${what} is refused`);
  }
  equal(asked, [], 'before any query');

  for (const [what, call, code] of [
    ['an unknown queue', () => fairq.enqueue(admin, 'nowhere', 'bob'), 'QF001'],
    ['a zero byte', () => fairq.enqueue(admin, name, 'bob', 'a\0b'), '22P05'],
    ['half a character', () => fairq.enqueue(admin, name, 'bob', '\ud800'), '22P02'],
    ['no extension', async () => {
      const other = await connect({ database: 'postgres' });
      try {
        await fairq.enqueue(other, name, 'bob');
      } finally {
        await other.end();
      }
    }, '3F000'],
  ]) equal((await errorOf(call)).code, code, `${what}: the server's error`);
  equal(await rows('SELECT id FROM fairq.tasks WHERE queue = $1', name), [], 'nothing was added');
  await drop(name);
}

module.exports = { transactions, enqueueArguments, expiry, batches, waiting, successors, queuesAndTasks, otherClients, refused };
