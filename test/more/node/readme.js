// README.md, word for word, and the types.
'use strict';
const fs = require('fs');
const path = require('path');
const { spawnSync } = require('child_process');
const { Pool } = require('pg');
const {
  TREE, WORK, INSTALLED, fairq, read, check, equal, until, admin, ask, queue, drop, add, taskOf, ended, said,
  work, Program,
} = require('./harness');

const README = read('clients/node/README.md');
const TYPES = fs.readFileSync(path.join(INSTALLED, 'index.d.ts'), 'utf8');

function section(heading) {
  return new RegExp(`^##+ ${heading}\n([^]*?)(?=^##|(?![^]))`, 'm').exec(README)[1];
}

function blocks(language, heading) {
  return [...section(heading).matchAll(/^```(\w+)\n([^]*?)^```/gm)]
    .filter((match) => match[1] === language).map((match) => match[2]);
}

// The code in the first cells of the tables.
function cells(heading) {
  const rows = [...section(heading).matchAll(/^\| (`.*?) \|/gm)].map((match) => match[1]);
  return rows.flatMap((row) => [...row.matchAll(/`(\w+)/g)].map((match) => match[1])).sort();
}

// The fields of an interface.
function fields(name) {
  const [, base, body] = new RegExp(`^export (?:interface|class) ${name}\\b(.*) \\{\n([^]*?)^\\}`, 'm').exec(TYPES);
  const inherited = /extends (\w+)/.exec(base);
  return [...(inherited ? fields(inherited[1]) : []),
    ...[...body.matchAll(/^ {2}(?:readonly )?(\w+)\??[:(<]/gm)].map((match) => match[1])].sort();
}

async function hello() {
  const [sql] = blocks('sql', 'Hello');
  const [tasks, producer] = blocks('javascript', 'Hello');
  const [, printed] = /The worker prints `(.*?)`/.exec(section('Hello'));
  await admin.query(sql);
  const worker = new Program(tasks);
  const enqueued = new Program(producer);
  equal([await enqueued.status(), enqueued.stdout, enqueued.stderr], [0, '', ''], 'README\'s producer enqueues');
  await until(() => worker.stdout);
  equal(worker.stdout, `${printed}\n`, 'README\'s worker runs the task');
  worker.kill();
  equal([await worker.status(), worker.stderr], [0, ''], 'the worker ends at SIGTERM with status 0');
  equal(await ask("SELECT status FROM fairq.tasks WHERE queue = 'mail'"), 'completed', 'and the task is done');
  await drop('mail');
}

async function examples() {
  const AsyncFunction = (async () => {}).constructor;
  const pool = new Pool();
  await queue('mail');
  await pool.query('CREATE TABLE orders (customer text); CREATE TABLE accounts (owner text, credit int)');
  await pool.query("INSERT INTO accounts VALUES ('bob', 0)");
  const [batch, transaction] = blocks('javascript', 'Enqueueing');
  const customers = [{ id: 'bob', address: 'x' }, { id: 'alice', address: 'y' }];
  await new AsyncFunction('client', 'enqueueBatch', 'customers', batch)(pool, fairq.enqueueBatch, customers);
  await new AsyncFunction('pool', 'enqueue', transaction)(pool, fairq.enqueue);
  equal(await ask('SELECT array_agg(concat(group_key, payload, headers) ORDER BY id) FROM fairq.tasks'
    + " WHERE queue = 'mail'"), ['bob{"to": "x"}{"task": "send"}', 'alice{"to": "y"}{"task": "send"}',
    'bob{"to": "x@example.com"}{"task": "send"}'], 'README\'s examples enqueue');
  equal(await ask('SELECT count(*)::int FROM orders'), 1, 'and commit');
  const [deploy] = blocks('javascript', 'Queues and failed tasks');
  await new AsyncFunction('client', 'ensureQueues', deploy)(pool, fairq.ensureQueues);
  equal(await ask("SELECT array_agg(concat(name, concurrency, max_attempts, max_run_time) ORDER BY name) FROM fairq.queue"
    + " WHERE name IN ('mail', 'reports')"), ['mail220', 'reports300:10:00'], 'README\'s queues are created');
  await drop('reports');
  const [fanIn] = blocks('javascript', 'Batches');
  await new AsyncFunction('client', 'inBatch', 'enqueue', 'enqueueBatch', 'customers', fanIn)(admin, fairq.inBatch,
    fairq.enqueue, fairq.enqueueBatch, customers);
  equal(await ask("SELECT row(status, (SELECT count(*) FROM fairq.tasks WHERE batch = b.id))::text"
    + " FROM fairq.batches b WHERE queue = 'mail'"), '(closed,3)', 'README\'s batch is closed');
  const [regular] = blocks('javascript', 'Schedules');
  const seen = [];
  new Function('main', 'handlers', regular)((...args) => seen.push(...args), { report: () => {} });
  const { daily, ...others } = seen[2].schedules; // "daily" needs croner
  new fairq.Worker(seen[0], seen[1], { schedules: others });
  equal(daily.task, 'report', 'README\'s schedules are schedules');
  const [once] = blocks('javascript', 'Exactly once');
  const credit = new Function('pool', `${once}; return credit;`)(pool);
  await ask("SELECT fairq.purge('mail')");
  let completed = 0;
  const worker = work('mail', {
    credit: (args, task) => credit(args, { complete: (client) => { completed++; return task.complete(client); } }),
  });
  await ended(await add('mail', { owner: 'bob', amount: 5 }, 'credit'));
  const failed = await add('mail', { owner: 'bob', amount: 'much' }, 'credit', { maxAttempts: 1 });
  equal(said((await ended(failed, 'failed')).error), 'error: invalid input syntax for type integer: "much"',
    'README\'s handler may fail');
  await worker.stop();
  equal([await ask('SELECT credit FROM accounts'), completed], [5, 1], 'or works once');
  for (const [, code] of section('Enqueueing').matchAll(/\| `(\{ query.*)` \|$/gm)) {
    check(typeof new Function(`return (${code});`)().query === 'function', `a client: ${code}`);
  }
  await pool.query('DROP TABLE orders, accounts');
  await pool.end();
  await drop('mail');
}

// README, the types and the code agree.
async function reference() {
  const functions = [...TYPES.replace(/\n {2}/g, ' ').matchAll(/^export (function .*)$/gm)].map((match) => match[1]);
  const has_ = ['Enqueueing', 'Batches', 'Queues and failed tasks', 'Workers'].flatMap((part) => blocks('typescript', part)).join('').trim().split('\n');
  equal(has_.sort(), functions.sort(), 'README has the functions');
  const named = [...new Set([...TYPES.matchAll(/^export (?:function|class) (\w+)/gm)].map((match) => match[1]))];
  equal(named.sort(), Object.keys(fairq).sort(), 'the types have all exported names');
  equal(named.filter((name) => !new RegExp(`\\b${name}\\b`).test(README)), [], 'README has all exported names');

  const code = (file, pattern) => pattern.exec(fs.readFileSync(path.join(INSTALLED, 'lib', file), 'utf8'))[1];
  const keys = (text, pattern) => [...text.matchAll(pattern)].map((match) => match[1]);
  const all = [...keys(code('producer.js', /ARGUMENTS = \{\n([^]*?)^\}/m), /^ {2}(\w+):/gm), 'task', 'emptyGroup'].sort();
  equal([cells('Enqueueing'), fields('EnqueueOptions')], [all, all], 'README and the types have the options of a task');
  const ofBatch = [...keys(code('producer.js', /OF_BATCH = \[(.*?)\]/), /'(\w+)'/g), 'group', 'payload', 'task'].sort();
  equal(fields('NewTask'), ofBatch, 'README and the types have the options of a task of enqueueBatch');
  const waits = [...keys(code('batch.js', /BATCH_ARGUMENTS = \{\n([^]*?)^\}/m), /(\w+)[,:]/g), 'task', 'emptyGroup'].sort();
  equal([cells('Batches'), fields('BatchOptions')], [waits, waits], 'the options of a task that waits for a batch');
  const settings = fields('QueueSettings').map((one) => one.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`));
  const arguments_ = "SELECT array_agg(name ORDER BY name) FROM unnest((SELECT proargnames FROM pg_proc WHERE oid = $1::regproc)) name";
  equal(settings.sort(), (await ask(arguments_, 'fairq.create_queue')).filter((one) => !['queue', 'if_not_exists'].includes(one)).sort(),
    'README and the types have the settings of create_queue');
  const options = keys(code('settings.js', /OPTIONS = \[([^]*?)\]/), /'(\w+)'/g).sort();
  equal([cells('Workers'), fields('WorkerOptions')], [options, options], 'the options of a worker');
  const hooks = keys(code('settings.js', /HOOKS = \{\n([^]*?)^\}/m), /(\w+): \(/g).sort();
  equal([cells('Hooks'), fields('Hooks')], [hooks, hooks], 'and the hooks');

  const schedule = keys(code('schedule.js', /FIELDS = \[(.*?)\]/), /'(\w+)'/g).sort();
  equal([cells('Schedules'), fields('Schedule')], [schedule, schedule], 'the properties of a schedule');

  const name = await queue('fields');
  let has;
  const worker = work(name, (task) => {
    has = [...Object.keys(task), ...Object.getOwnPropertyNames(Object.getPrototypeOf(task))];
  });
  await ended(await add(name, {}));
  await worker.stop();
  await drop(name);
  has = has.filter((field) => field !== 'constructor').sort();
  equal([cells('Handlers').filter((cell) => cell !== 'new'), fields('Task')], [has, has], 'the fields of a task');

  const version = JSON.parse(read('META.json')).version;
  equal(require(path.join(INSTALLED, 'package.json')).version, version, 'the version is META.json\'s');
  const names = Object.keys(fairq).join(', ');
  const module_ = new Program(`import { ${names} } from 'fairq'; console.log([${names}].length);`, { extension: 'mjs' });
  equal([await module_.status(), module_.stdout], [0, `${named.length}\n`], 'an ES module imports the names');
}

async function typescript() {
  const tsc = (...args) => spawnSync(path.join(__dirname, 'tsc'), args, { cwd: WORK, encoding: 'utf8' });
  const version = tsc('--version');
  if (version.status !== 0) {
    console.log('ok - types # SKIP Debian\'s node-typescript cannot be downloaded');
    return;
  }
  const parts = ['otel', 'prometheus', 'testing'].map((part) => [`fairq/${part}`, [path.join(INSTALLED, `${part}.d.ts`)]]);
  const paths = { fairq: [INSTALLED], ...Object.fromEntries(parts) };
  const strict = {
    strict: true, noEmit: true, target: 'es2020', lib: ['es2020', 'dom'], module: 'node16',
    moduleResolution: 'node16', types: [], paths,
  };
  const compile = (file, compilerOptions) => {
    const config = path.join(WORK, `${file}.json`);
    fs.writeFileSync(config, JSON.stringify({ compilerOptions, files: [path.join(__dirname, file)] }));
    const done = tsc('-p', config);
    check(done.status === 0, `${version.stdout.trim()} --strict: ${file}`, done.stdout, done.stderr);
  };
  compile('types.ts', strict);
  compile('types-tasks.ts', strict);
  const modules = [path.join(TREE, 'test/readme.d/modules'), '/usr/share/nodejs']
    .find((directory) => fs.existsSync(path.join(directory, '@types/pg')));
  if (modules === undefined) {
    console.log('ok - types of node-postgres # SKIP Debian\'s node-pg has none');
    return;
  }
  Object.assign(paths, { pg: [path.join(modules, '@types/pg')], 'pg-types': [path.join(modules, 'pg-types')] });
  // these examples need the types of node-postgres
  compile('types-pg.ts', { ...strict, skipLibCheck: true });
}

module.exports = { hello, examples, reference, typescript };
