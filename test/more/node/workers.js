// The start and the end of workers, and handlers and pops that block them.
'use strict';
const fs = require('fs');
const os = require('os');
const path = require('path');
const {
  PACKAGE, WORK, fairq, read, check, equal, errorOf, until, sleep, admin, rows, ask, connect, queue, drop, add,
  taskOf, ended, backends, work, Program,
} = require('./harness');

async function settings() {
  const handler = () => {};
  for (const [wanted, ...args] of [
    ['a worker needs a queue', [], handler],
    ['a queue must be a string, and is 5', 5, handler],
    ['handlers must be a function, or an object of functions, and are undefined', 'q'],
    ['a worker needs a handler', 'q', {}],
    ['the handler send is not a function', 'q', { send: 5 }],
    ['the handler default is not a function', 'q', {}, { default: 5 }],
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
    ['the handler send is not a function', 'q', { send: { timeout: 5 } }],
    ['poll must be at least 0, and is -1', 'q', handler, { poll: -1 }],
    ['log must have warn() and error()', 'q', handler, { log: {} }],
    ['log must be error, warn, info or a logger, and is debug', 'q', handler, { log: 'debug' }],
    ['databases must not be empty', 'q', handler, { databases: [] }],
    ['a database must be a URI, postgresql://host/database', 'q', handler, { databases: 'dbname=x' }],
    ['a database must be a URI or an object, and is 5', 'q', handler, { databases: [5] }],
    ['alive must be a string, and is true', 'q', handler, { alive: true }],
  ]) {
    const error = await errorOf(() => fairq.work(...args));
    equal([error.name, error.message], ['TypeError', wanted], `refused: ${wanted}`);
  }
  const error = await errorOf(() => fairq.work('q', handler, { databases: { password: () => 'x' } }));
  check(/^a database must have no functions/.test(error.message), 'a password can be a function', error);
  const worker = new fairq.Worker('nowhere', handler);
  equal((await errorOf(worker.run())).message, 'queue "nowhere" does not exist', 'run() starts a Worker');
  equal((await errorOf(() => worker.run())).message, 'a worker can be started only once', 'run() works once');
}

// A worker that a program starts with work() does not affect the program.
async function embedded() {
  const name = await queue('embedded');
  const listeners = () => ['SIGTERM', 'SIGINT', 'exit'].map((event) => process.listenerCount(event));
  const before = listeners();
  let begun = false;
  const worker = work(name, () => { begun = true; return sleep(300); });
  const id = await add(name, {});
  // a task whose handler has not begun is released, even if its status is
  // "running"
  await until(() => begun);
  equal(listeners(), before, 'work() installs no signal handlers');
  const waiting = worker.stop();
  equal(waiting === worker.ended, true, 'stop() returns a promise for the end of the worker');
  await waiting;
  equal((await taskOf(id)).status, 'completed', 'the running task has ended when the worker ends');
  const left = () => rows('SELECT 1 FROM pg_stat_activity WHERE application_name = $1', worker.name);
  check(await until(async () => (await left()).length === 0), 'no connection is left');

  const program = new Program(`
    const fairq = require('fairq');
    const worker = fairq.work('${name}', () => {}, { grace: 3600 });
    setTimeout(() => worker.stop().then(() => console.log('stopped')), 1000);`);
  equal([await program.status(), program.stdout, program.stderr], [0, 'stopped\n', ''],
    'nothing keeps the process');
  await drop(name);
}

// How main() ends, and its messages.
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
      `warn: ${what}; retrying each second, for 3 s\nworker: ${what}\n`], `${what}, for the time that giveUp sets`);
    check(Date.now() - began > 3000, 'the worker retries', Date.now() - began);
  }
  await ask('DROP ROLE node_nobody');
  for (const signal of ['SIGTERM', 'SIGINT']) {
    const id = await add(name, {}, undefined, { maxAttempts: 1 });
    const program = new Program(text(name));
    await until(() => program.stdout);
    program.kill(signal);
    equal([await program.status(), program.stderr], [0, ''], `${signal}: status 0, even with leftover handlers`);
    equal((await taskOf(id)).status, 'queued', 'the task is released');
    await fairq.cancel(admin, id);
  }
  // the ways in which programs end
  const end = async (body, signal = 'SIGTERM') => {
    const id = await add(name, {}, undefined, { maxAttempts: 1 });
    const program = new Program(`
      process.on('beforeExit', () => console.log('nothing is left'));
      process.on('exit', (status) => console.log('exit', status));
      const ended = require('fairq').main('${name}', async (task) => {
        console.log('begun');
        ${body}
      }, { grace: 3 });
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
    'the program ends after the grace, in spite of a handler\'s remains');
  equal(await end('setInterval(() => {}, 1000); await new Promise(() => {})'), [0, 'begun\nended\nexit 0\n', ''],
    'the program ends in spite of a handler that does not end');
  // a program that only enqueues does not need pg
  const program = new Program(`
    const fairq = require('fairq');
    fairq.enqueue({ query: async () => [{ id: '5' }] }, 'q', 'g').then(console.log);
    try { fairq.work('q', () => {}); } catch (error) { console.log(error.message); }`,
  { environment: { NODE_PATH: '' } });
  await program.status();
  equal([program.stdout, program.stderr],
    ['a worker needs node-postgres, the package "pg", and it is not installed\n5\n', ''],
    'without pg a program enqueues, and a worker\'s error names pg');
  // npm installs a folder as a link, without pg next to it
  const directory = path.join(WORK, 'linked');
  fs.mkdirSync(path.join(directory, 'node_modules/pg'), { recursive: true });
  fs.symlinkSync(PACKAGE, path.join(directory, 'node_modules/fairq'));
  fs.writeFileSync(path.join(directory, 'node_modules/pg/index.js'),
    "exports.Client = class { constructor() { console.log('found'); process.exit(); } };");
  const linked = new Program("require('fairq').main('q', () => {});", { directory, environment: { NODE_PATH: '' } });
  await linked.status();
  equal([linked.stdout, linked.stderr], ['found\n', ''], 'a linked package finds the program\'s pg');
  await drop(name);
}

// A promise that is pending until open() is called.
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
  check(seconds > 2.9 && seconds < 15, 'the worker ends after its grace', seconds);
  equal(events, ['begin short', 'begin heeds', 'begin deaf', 'begin fails', 'end short',
    'abort heeds', 'abort deaf', 'abort fails'],
    'tasks that have not ended in time are aborted, and none is started');
  const tasks = await Promise.all(ids.map(taskOf));
  equal(tasks.map((task) => task.status), ['completed', 'queued', 'queued', 'queued', 'queued'],
    'such tasks are released, even if the handler ignores the signal');
  over.open();
  await sleep(1500);
  equal((await taskOf(ids[2])).status, 'queued', 'a handler that continues does not end its released task');
  equal(worker.lines, [], 'the log is empty');
  const next = work(name, () => {});
  equal((await Promise.all(ids.map((id) => ended(id)))).map((task) => task.status),
    Array(5).fill('completed'), 'a released attempt does not count');
  await next.stop();
  await drop(name);
}

// In a process of its own, a handler blocks the event loop for longer than the
// lease.
async function computing() {
  const name = await queue('computing');
  const second = await queue('computing together', "fair_by => 'time'");
  const program = new Program(`
    const { main } = require('fairq');
    main(['${name}', '${second}'], (task) => {
      console.log('begin', task.id, task.attempt);
      const begun = Date.now();
      while (Date.now() - begun < 1000 * task.payload);
      console.log('took', (Date.now() - begun) / 1000);
    }, { lease: 6, concurrency: 3 });`);
  const first = await add(name, 8);
  await until(() => program.stdout);
  const idle = work(name, () => 'another did it', { lease: 6 });
  equal((await ended(first)).result, null, 'a handler that computes keeps its lease');
  await idle.stop();

  // the tasks are popped together, and run one after the other
  const ids = [];
  program.kill('SIGSTOP');
  for (const group of 'abc') ids.push(await fairq.enqueue(admin, second, group, 2.5));
  program.kill('SIGCONT');
  await until(async () => (await taskOf(ids[0])).status === 'running');
  const other = work(second, () => 'another did it', { lease: 6 });
  const tasks = await Promise.all(ids.map((id) => ended(id)));
  equal(tasks.map((task) => [task.attempt, task.result]), Array(3).fill([1, null]),
    'tasks that wait for this handler keep their leases');
  await other.stop();
  const apart = tasks.map((task) => +task.finished_at).sort();
  check(apart[2] - apart[0] > 1500, 'each end is reported before the next task computes', apart);
  // the column "got" would not show this, since a newly active group starts
  // with another group's value
  const longest = await ask(`SELECT extract(epoch FROM longest)::float8 FROM fairq.fairness
    WHERE queue = $1`, second);
  const took = [...program.stdout.matchAll(/took (.*)/g)].slice(1).map(([, seconds]) => +seconds);
  check(longest > 2.4 && longest < Math.max(...took) + 2, 'each task has its own time', longest, took);

  const last = await add(name, 3);
  const later = [await add(name, 1), await add(name, 1)];
  await until(() => program.stdout.includes(`begin ${last} `));
  program.kill();
  equal(await program.status(), 0, 'it ends at SIGTERM');
  equal((await Promise.all([last, ...later].map(taskOf))).map((task) => task.status),
    ['completed', 'queued', 'queued'], 'SIGTERM takes effect when the computing task has ended');
  await drop(name);
  await drop(second);
}

// If a process was stopped, it may read the answer of a pop after the leases
// have expired.  In that case the worker does not begin these tasks.
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
    .some((backend) => backend.wait_event_type === 'Lock')), 'a pop is running');
  first.kill('SIGSTOP');
  await lock.query('COMMIT');
  await lock.end();
  const second = program('second', 30);
  await until(() => second.stdout.includes('\n'));
  equal([(await ended(id)).attempt, second.stdout], [2, `${id} 2\n`], 'another worker runs the popped tasks');
  second.kill();
  equal(await second.status(), 0, 'and ends');
  first.kill('SIGCONT');
  const next = await add(name, {});
  await ended(next);
  await until(() => first.stdout.includes('\n'));
  equal([first.stdout, first.stderr], [`${next} 1\n`, ''], 'the first worker does not start the tasks, and continues');
  first.kill();
  equal(await first.status(), 0, 'to its end');
  await drop(name);
}

// The log has the lines of its level, and their fields.
async function logs() {
  const name = await queue('logs', "backoff => '0.1 s'");
  const text = `require('fairq').main('${name}', {
    works: () => {},
    fails: (_, task) => { throw new Error('attempt ' + task.attempt); },
    dead: () => { throw new (require('fairq').Dead)('no such address'); },
    waits: async (_, { signal }) => { console.log('begun'); await new Promise((resolve) => { signal.addEventListener('abort', resolve); }); throw signal.reason; },
  }, { log: process.env.LOG, grace: 0.1, lease: 6, concurrency: 2, name: 'me' });`;
  const versions = await ask("SELECT concat('extension ', fairq.version(), ', PostgreSQL ', current_setting('server_version'))");
  const { version } = require(path.join(PACKAGE, 'package.json'));
  const levels = {};
  for (const level of ['info', 'warn', 'error']) {
    const program = new Program(text, { environment: { LOG: level } });
    const ids = [];
    for (const [task, status] of [['works', 'completed'], ['fails', 'failed'], ['dead', 'failed'], ['waits', 'cancelled']]) {
      const id = await add(name, {}, task, { maxAttempts: 2 });
      ids.push(id);
      if (status === 'cancelled') {
        await until(() => program.stdout === 'begun\n');
        await fairq.cancel(admin, id);
      }
      await ended(id, status);
    }
    const last = await add(name, {}, 'waits');
    // the status is "running" before the handler begins
    await until(() => program.stdout === 'begun\nbegun\n');
    program.kill();
    equal(await program.status(), 0, 'a worker with a log ends');
    await ask('SELECT fairq.purge($1)', name);
    levels[level] = program.stderr.split('\n').filter((line) => /^\w+: /.test(line))
      .map((line) => line.replace(/after \d+\.\d{3} s/, 'after a while'));
    const line = (id, attempt, task, end) => `task ${id}, attempt ${attempt} (${task}, queue ${name}, group bob): ${end}`;
    const all = [
      `info: fairq ${version}: worker me takes tasks of ${name}, 2 at a time; ${versions}`,
      `info: ${line(ids[0], 1, 'works', 'completed after a while')}`,
      `warn: ${line(ids[1], 1, 'fails', 'retried after a while: Error: attempt 1')}`,
      `error: ${line(ids[1], 2, 'fails', 'failed after a while: Error: attempt 2')}`,
      `error: ${line(ids[2], 1, 'dead', 'failed after a while: no such address')}`,
      `info: ${line(ids[3], 1, 'waits', 'stopped after a while')}`,
      `info: ${line(last, 1, 'waits', 'released after a while')}`,
    ];
    const shown = { info: /./, warn: /^(warn|error)/, error: /^error/ }[level];
    equal(levels[level], all.filter((one) => shown.test(one)), `the lines of the level ${level}`);
  }

  const seen = [];
  const at = (level) => (...args) => { seen.push([level, ...args]); };
  const log = {
    info: at('info'), warn: at('warn'), error: at('error'), fatal: () => {}, child: () => log,
  };
  const worker = work(name, { fails: () => { throw new RangeError('zero'); } }, { log, concurrency: 3, name: 'you' });
  const id = await add(name, {}, 'fails', { maxAttempts: 1 });
  await ended(id, 'failed');
  await worker.stop();
  const [, start] = seen[0];
  equal([seen[0][0], start.worker, start.queues, start.concurrency, start.client, start.extension,
    typeof start.server, typeof seen[0][2]], ['info', 'you', [name], 3, version, await ask('SELECT fairq.version()'),
    'string', 'string'], 'a logger of pino\'s kind gets the fields of the start');
  const [level, { err, duration, ...fields }] = seen.find((one) => one[1].id === id);
  equal([level, err instanceof RangeError, duration < 60, fields], ['error', true, true, {
    id, task: 'fails', queue: name, group: 'bob', attempt: 1, outcome: 'failed',
  }], 'and the fields of an attempt');
  await drop(name);
}

// fairq.workers and the worker's file show that a worker works.
async function presence() {
  const name = await queue('presence');
  const alive = path.join(WORK, 'alive');
  let release;
  const worker = work(name, () => new Promise((resolve) => { release = resolve; }), { alive, concurrency: 3 });
  const row = async () => ask(`SELECT host, client, version, queues, concurrency, running, last_seen - started_at < '1 minute' AS young
    FROM fairq.workers WHERE worker = $1`, worker.name);
  const { version } = JSON.parse(read('clients/node/package.json'));
  const seen = {
    host: os.hostname(), client: 'node', version, queues: [name], concurrency: 3, running: 0, young: true,
  };
  equal(await until(row), seen, 'a worker is in fairq.workers');
  const id = await add(name, {});
  equal(await until(async () => (await row()).running === 1), true, 'with its running tasks');
  const { tasks, ...status } = worker.status();
  equal([status, tasks.map((task) => task.id)], [{
    name: worker.name, queues: [name], concurrency: 3, running: 1, stopping: false,
  }, [id]], 'status() has the same');
  const { mtimeMs: before } = fs.statSync(alive);
  equal(await until(() => fs.statSync(alive).mtimeMs > before), true, 'the worker writes its file');
  release();
  await ended(id);
  await (Symbol.asyncDispose === undefined ? worker.stop() : worker[Symbol.asyncDispose]());
  equal([await row(), worker.status().stopping], [undefined, true], 'the worker removes its row when it ends');

  const unwritable = work(name, () => {}, { alive: path.join(WORK, 'none/alive') });
  await ask('ALTER FUNCTION fairq.register_worker RENAME TO register_worker_no_more');
  const other = work(name, () => {});
  equal(Boolean(await until(() => other.lines.find((line) => /^the worker is not in fairq.workers: function/.test(line)))),
    true, 'a worker that cannot register works');
  await ask('ALTER FUNCTION fairq.register_worker_no_more RENAME TO register_worker');
  equal(Boolean(await until(() => unwritable.lines.find((line) => /^the file of the option alive: ENOENT/.test(line)))),
    true, 'a worker whose file cannot be written works');
  equal((await ended(await add(name, {}))).status, 'completed', 'work nonetheless');
  await unwritable.stop();
  await other.stop();
  await drop(name);
}

module.exports = { settings, embedded, logs, programs, stopping, computing, lateAnswer, presence };
