// Workers: from their start to their end, and what blocks them.
'use strict';
const fs = require('fs');
const path = require('path');
const {
  PACKAGE, WORK, fairq, check, equal, errorOf, until, sleep, admin, rows, ask, connect, queue, drop, add,
  taskOf, ended, backends, work, Program,
} = require('./harness');

async function settings() {
  const handler = () => {};
  for (const [wanted, ...args] of [
    ['a worker needs a queue', [], handler],
    ['a queue must be a string, and is 5', 5, handler],
    ['handlers must be a function, or an object of functions, and are undefined', 'q'],
    ['a worker needs a handler', 'q', {}],
    ['the handler send is no function', 'q', { send: 5 }],
    ['the handler default is no function', 'q', {}, { default: 5 }],
    ['a single handler leaves none for default', 'q', handler, { default: handler }],
    ['a worker has no option "conc"', 'q', handler, { conc: 1 }],
    ['concurrency must be at least 1, and is 0', 'q', handler, { concurrency: 0 }],
    ['concurrency must be at least 1, and is 1.5', 'q', handler, { concurrency: 1.5 }],
    ['lease must be more than 0 seconds', 'q', handler, { lease: 0 }],
    ['lease must be a number of seconds, and is NaN', 'q', handler, { lease: NaN }],
    ['grace must be at least 0, and is -1', 'q', handler, { grace: -1 }],
    ['timeout must be more than 0 seconds', 'q', handler, { timeout: 0 }],
    ['timeout must be a number of seconds, and is 5 s', 'q', handler, { timeout: '5 s' }],
    ['giveUp must be at least 0, and is -1', 'q', handler, { giveUp: -1 }],
    ['the timeout of the handler send must be at least 0, and is -1', 'q', { send: { run: handler, timeout: -1 } }],
    ['the handler send has no option "retries"', 'q', { send: { run: handler, retries: 1 } }],
    ['the handler send is no function', 'q', { send: { timeout: 5 } }],
    ['poll must be at least 0, and is -1', 'q', handler, { poll: -1 }],
    ['log must have warn() and error()', 'q', handler, { log: {} }],
    ['databases must not be empty', 'q', handler, { databases: [] }],
    ['a database must be a URI, postgresql://host/database', 'q', handler, { databases: 'dbname=x' }],
    ['a database must be a URI or an object, and is 5', 'q', handler, { databases: [5] }],
  ]) {
    const error = await errorOf(() => fairq.work(...args));
    equal([error.name, error.message], ['TypeError', wanted], `refused: ${wanted}`);
  }
  const error = await errorOf(() => fairq.work('q', handler, { databases: { password: () => 'x' } }));
  check(/^a database must have no functions/.test(error.message), 'and a function for a password', error);
  const worker = new fairq.Worker('nowhere', handler);
  equal((await errorOf(worker.run())).message, 'queue "nowhere" does not exist', 'run() starts a Worker');
  equal((await errorOf(() => worker.run())).message, 'a worker can be started only once', 'once');
}

// A worker within a program leaves that alone.
async function embedded() {
  const name = await queue('embedded');
  const listeners = () => ['SIGTERM', 'SIGINT', 'exit'].map((event) => process.listenerCount(event));
  const before = listeners();
  const worker = work(name, () => sleep(300));
  const id = await add(name, {});
  await until(async () => (await taskOf(id)).status === 'running');
  equal(listeners(), before, 'work() has no handlers of signals');
  const waiting = worker.stop();
  equal(waiting === worker.ended, true, 'stop() returns the promise of the end');
  await waiting;
  equal((await taskOf(id)).status, 'completed', 'what ran has ended by then');
  const left = () => rows('SELECT 1 FROM pg_stat_activity WHERE application_name = $1', worker.name);
  check(await until(async () => (await left()).length === 0), 'and no connection is left');

  const program = new Program(`
    const fairq = require('fairq');
    const worker = fairq.work('${name}', () => {}, { grace: 3600 });
    setTimeout(() => worker.stop().then(() => console.log('stopped')), 1000);`);
  equal([await program.status(), program.stdout, program.stderr], [0, 'stopped\n', ''],
    'nor anything else that would keep the process');
  await drop(name);
}

// What main() does at the end, and what it says.
async function programs() {
  const name = await queue('programs');
  await ask('CREATE ROLE node_nobody LOGIN');
  const text = (queue_) => `require('fairq').main('${queue_}', async () => {
    setInterval(() => {}, 1000);
    console.log('begun');
    await new Promise(() => {});
  }, { grace: 0.5, giveUp: 3 });`;
  for (const [queue_, environment, line] of [
    ['nowhere', {}, 'worker: queue "nowhere" does not exist'],
    [name, { PGUSER: 'node_nobody' }, `worker: permission denied for queue "${name}"`],
    [name, { PGDATABASE: 'postgres' }, 'worker: the database does not have the extension fairq'],
  ]) {
    const program = new Program(text(queue_), { environment });
    equal([await program.status(), program.stdout, program.stderr], [1, '', `${line}\n`], line);
  }
  for (const [environment, what] of [
    [{ PGDATABASE: 'nowhere' }, 'database "nowhere" does not exist'],
    [{ PGUSER: 'node_never' }, 'role "node_never" does not exist'],
  ]) {
    const began = Date.now();
    const program = new Program(text(name), { environment });
    equal([await program.status(), program.stdout, program.stderr], [1, '',
      `${what}; retrying each second, for 3 s\nworker: ${what}\n`], `${what}, for as long as it is told`);
    check(Date.now() - began > 3000, 'it is asked again', Date.now() - began);
  }
  await ask('DROP ROLE node_nobody');
  for (const signal of ['SIGTERM', 'SIGINT']) {
    const id = await add(name, {}, undefined, { maxAttempts: 1 });
    const program = new Program(text(name));
    await until(() => program.stdout);
    program.kill(signal);
    equal([await program.status(), program.stderr], [0, ''], `${signal}: status 0, whatever handlers leave`);
    equal((await taskOf(id)).status, 'queued', 'and the task is handed back');
    await fairq.cancel(admin, id);
  }
  // as programs end
  const end = async (body, signal = 'SIGTERM') => {
    const id = await add(name, {}, undefined, { maxAttempts: 1 });
    const program = new Program(`
      process.on('beforeExit', () => console.log('nothing is left'));
      process.on('exit', (status) => console.log('exit', status));
      const ended = require('fairq').main('${name}', async (task) => {
        console.log('begun');
        ${body}
      }, { grace: 1.5 });
      ended.then(() => console.log('ended'));`);
    await until(() => program.stdout);
    program.kill(signal);
    const status = await program.status();
    await fairq.cancel(admin, id);
    return [status, program.stdout, program.stderr];
  };
  equal(await end('await new Promise((resolve) => setTimeout(resolve, 200))'),
    [0, 'begun\nended\nnothing is left\nexit 0\n', ''], 'a program ends when nothing is left');
  equal(await end('setInterval(() => {}, 1000)'), [0, 'begun\nended\nexit 0\n', ''],
    'what a handler has left is left, after the grace');
  equal(await end('setInterval(() => {}, 1000); await new Promise(() => {})'), [0, 'begun\nended\nexit 0\n', ''],
    'as is a handler that does not end');
  // without pg, as who only enqueues may be
  const program = new Program(`
    const fairq = require('fairq');
    fairq.enqueue({ query: async () => [{ id: '5' }] }, 'q', 'g').then(console.log);
    try { fairq.work('q', () => {}); } catch (error) { console.log(error.message); }`,
  { environment: { NODE_PATH: '' } });
  await program.status();
  equal([program.stdout, program.stderr],
    ['a worker needs node-postgres, the package "pg", and it is not installed\n5\n', ''],
    'without pg it enqueues, and a worker says what it needs');
  // as npm installs a folder: by a link, beside which there is no pg
  const directory = path.join(WORK, 'linked');
  fs.mkdirSync(path.join(directory, 'node_modules/pg'), { recursive: true });
  fs.symlinkSync(PACKAGE, path.join(directory, 'node_modules/fairq'));
  fs.writeFileSync(path.join(directory, 'node_modules/pg/index.js'),
    "exports.Client = class { constructor() { console.log('found'); process.exit(); } };");
  const linked = new Program("require('fairq').main('q', () => {});", { directory, environment: { NODE_PATH: '' } });
  await linked.status();
  equal([linked.stdout, linked.stderr], ['found\n', ''], 'a package that is linked finds that of the program');
  await drop(name);
}

// What somebody waits for, until it is opened.
function gate() {
  let open;
  const passed = new Promise((resolve) => { open = resolve; });
  return { open, passed };
}

async function stopping() {
  const [stopped, over] = [gate(), gate()];
  const name = await queue('stopping');
  const events = [];
  const handler = async (task) => {
    task.signal.addEventListener('abort', () => events.push(`abort ${task.payload}`));
    events.push(`begin ${task.payload}`);
    if (task.payload === 'short') {
      await stopped.passed;
      await sleep(300);
    } else if (task.payload === 'heeds') {
      await sleep(60e3, undefined, { signal: task.signal });
    } else if (task.payload !== 'later') {
      await over.passed;
    }
    if (task.payload === 'fails') throw new Error('too late');
    events.push(`end ${task.payload}`);
  };
  const worker = work(name, handler, { grace: 3, concurrency: 4 });
  const ids = [];
  for (const payload of ['short', 'heeds', 'deaf', 'fails', 'later']) {
    ids.push(await add(name, payload, undefined, { maxAttempts: 1 }));
  }
  await until(() => events.length === 4);
  const began = Date.now();
  const ending = worker.stop();
  stopped.open();
  await ending;
  const seconds = (Date.now() - began) / 1000;
  check(seconds > 2.9 && seconds < 15, 'it ends after its grace', seconds);
  equal(events, ['begin short', 'begin heeds', 'begin deaf', 'begin fails', 'end short',
    'abort heeds', 'abort deaf', 'abort fails'],
    'what has not ended by then is aborted, and nothing new is begun');
  const tasks = await Promise.all(ids.map(taskOf));
  equal(tasks.map((task) => task.status), ['completed', 'queued', 'queued', 'queued', 'queued'],
    'and handed back, whether it heeds that or not');
  over.open();
  await sleep(1500);
  equal((await taskOf(ids[2])).status, 'queued', 'it is not ended by a handler that goes on');
  equal(worker.lines, [], 'nothing is to be told');
  const next = work(name, () => {});
  equal((await Promise.all(ids.map((id) => ended(id)))).map((task) => task.status),
    Array(5).fill('completed'), 'the attempt was none');
  await next.stop();
  await drop(name);
}

// The event loop stands still for longer than the lease, in a process of its own.
async function computing() {
  const name = await queue('computing');
  const second = await queue('computing together', "fair_by => 'time'");
  const program = new Program(`
    const { main } = require('fairq');
    main(['${name}', '${second}'], (task) => {
      console.log('begin', task.id, task.attempt);
      const end = Date.now() + 1000 * task.payload;
      while (Date.now() < end);
    }, { lease: 4.5, concurrency: 3 });`);
  const first = await add(name, 7);
  await until(() => program.stdout);
  const idle = work(name, () => 'another did it', { lease: 4.5 });
  equal((await ended(first)).result, null, 'a handler that computes keeps its lease');
  await idle.stop();

  // popped together, and done one after the other
  const ids = [];
  program.kill('SIGSTOP');
  for (const group of 'abc') ids.push(await fairq.enqueue(admin, second, group, 2.5));
  program.kill('SIGCONT');
  await until(async () => (await taskOf(ids[0])).status === 'running');
  const other = work(second, () => 'another did it', { lease: 4.5 });
  const tasks = await Promise.all(ids.map((id) => ended(id)));
  equal(tasks.map((task) => [task.attempt, task.result]), Array(3).fill([1, null]),
    'as do those that wait for it to end');
  await other.stop();
  const apart = tasks.map((task) => +task.finished_at).sort();
  check(apart[2] - apart[0] > 1500, 'the end of each is told before the next one computes', apart);
  // not what groups have got: one that comes is given as much as another has
  const longest = await ask(`SELECT extract(epoch FROM longest)::float8 FROM fairq.fairness
    WHERE queue = $1`, second);
  check(longest > 2.4 && longest < 4.9, 'each took its own time', longest);

  const last = await add(name, 3);
  const later = [await add(name, 1), await add(name, 1)];
  await until(() => program.stdout.includes(`begin ${last} `));
  program.kill();
  equal(await program.status(), 0, 'it ends at SIGTERM');
  equal((await Promise.all([last, ...later].map(taskOf))).map((task) => task.status),
    ['completed', 'queued', 'queued'], 'as soon as what computes has ended');
  await drop(name);
  await drop(second);
}

// A pop whose answer is read when its leases are over: the process stood still meanwhile.
async function lateAnswer() {
  const name = await queue('late');
  const program = (worker, lease) => new Program(`require('fairq').main('${name}', (task) => {
    console.log(task.id, task.attempt);
  }, { lease: ${lease}, name: '${worker}', poll: 0.2 });`);
  const first = program('first', 3);
  const lock = await connect();
  await lock.query('BEGIN');
  await lock.query('LOCK TABLE fairq.task IN ACCESS EXCLUSIVE MODE');
  const id = await fairq.enqueue(lock, name, 'bob');
  check(await until(async () => (await backends('first', '%fairq.pop%'))
    .some((backend) => backend.wait_event_type === 'Lock')), 'a pop is under way');
  first.kill('SIGSTOP');
  await lock.query('COMMIT');
  await lock.end();
  const second = program('second', 30);
  await until(() => second.stdout.includes('\n'));
  equal([(await ended(id)).attempt, second.stdout], [2, `${id} 2\n`], 'another worker does what it has popped');
  second.kill();
  equal(await second.status(), 0, 'and ends');
  first.kill('SIGCONT');
  const next = await add(name, {});
  await ended(next);
  await until(() => first.stdout.includes('\n'));
  equal([first.stdout, first.stderr], [`${next} 1\n`, ''], 'the first one does not begin it, and goes on');
  first.kill();
  equal(await first.status(), 0, 'to its end');
  await drop(name);
}

module.exports = { settings, embedded, programs, stopping, computing, lateAnswer };
