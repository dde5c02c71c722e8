// The common parts of the package's tests: see run.
'use strict';
const fs = require('fs');
const os = require('os');
const path = require('path');
const util = require('util');
const { spawn, spawnSync } = require('child_process');
const { setTimeout: sleep } = require('timers/promises');
const { Client } = require('pg');

const TREE = path.join(__dirname, '../../..');
const PACKAGE = path.join(TREE, 'clients/node');
const LIMIT = 60; // seconds, for any wait
const WORK = fs.mkdtempSync(path.join(os.tmpdir(), 'node.'));
const read = (...file) => fs.readFileSync(path.join(TREE, ...file), 'utf8');

// The installed package: only the files of package.json.
const INSTALLED = path.join(WORK, 'node_modules/fairq');
fs.mkdirSync(INSTALLED, { recursive: true });
for (const file of ['package.json', ...JSON.parse(read('clients/node/package.json')).files]) {
  fs.cpSync(path.join(PACKAGE, file), path.join(INSTALLED, file), { recursive: true });
}
const fairq = require(INSTALLED);

// ---- results

let checks = 0;
let failures = 0;

function check(good, name, ...seen) {
  checks++;
  if (!good) failures++;
  console.log(`${good ? 'ok' : 'not ok'} ${checks} - ${name}`);
  if (!good) {
    const text = seen.map((one) => (typeof one === 'string' ? one : util.inspect(one, { depth: 9 })));
    console.log(text.join('\n').replace(/^/gm, '#   '));
  }
}

function equal(seen, wanted, name) {
  check(util.isDeepStrictEqual(seen, wanted), name, 'seen:', seen, 'wanted:', wanted);
}

// The error with which a promise is rejected, or that a function throws.
async function errorOf(what) {
  try {
    await (typeof what === 'function' ? what() : what);
  } catch (error) {
    return error;
  }
  return new Error('nothing was thrown');
}

async function until(condition, seconds = LIMIT) {
  for (const end = Date.now() + seconds * 1000; Date.now() < end;) {
    const value = await condition();
    if (value) return value;
    await sleep(30);
  }
  return condition();
}

// The packages of npm for the tests that need them, or null if npm is not available.
function fromNpm(...packages) {
  const done = spawnSync(path.join(__dirname, 'npm'), packages, { encoding: 'utf8' });
  if (done.status === 0) return done.stdout.trim();
  if (done.status !== 2) throw new Error(done.stderr);
  console.log(`ok - ${packages.join(', ')} # SKIP npm does not have them: ${done.stderr.trim().split('\n').pop()}`);
  return null;
}

// ---- the server

const admin = new Client();

async function rows(sql, ...values) {
  return (await admin.query(sql, values)).rows;
}

// The result of a query, which is a value, or a row if it has several values.
async function ask(sql, ...values) {
  const [row] = await rows(sql, ...values);
  if (row === undefined) return undefined;
  return Object.keys(row).length === 1 ? Object.values(row)[0] : row;
}

async function connect(config) {
  const client = new Client(config);
  client.on('error', () => {});
  await client.connect();
  return client;
}

// A new queue, with these settings of create_queue.
async function queue(name, settings = '') {
  await ask(`SELECT fairq.create_queue($1, retain => '1 hour' ${settings && `, ${settings}`})`, name);
  return name;
}

const drop = (name) => ask('SELECT fairq.drop_queue($1, true)', name);
const add = (name, payload, task, options) => fairq.enqueue(admin, name, 'bob', payload, { task, ...options });
const taskOf = (id) => ask('SELECT * FROM fairq.tasks WHERE id = $1', id);

// The task, once it has that status or the time is up.
async function ended(id, status = 'completed') {
  await until(async () => ((await taskOf(id)) || {}).status === status);
  return taskOf(id);
}

// The texts of a task's error, without the stacks.
const said = (error) => error.split('\n')[0];

// The backends of a worker. With a pattern, only the backends that run a matching
// statement.
function backends(worker, like = '%') {
  return rows(`SELECT pid, query, wait_event_type FROM pg_stat_activity WHERE application_name = $1
    AND state = 'active' AND query LIKE $2`, worker.name || worker, like);
}

// ---- workers

// A worker in this process. Its log is in lines.
function work(queues, handlers, options = {}) {
  const lines = [];
  const log = { warn: (line) => lines.push(line), error: (line) => lines.push(line) };
  const worker = fairq.work(queues, handlers, { name: `worker ${checks}`, log, ...options });
  worker.lines = lines;
  worker.ended.catch(() => {});
  return worker;
}

// A program that can require the package, in its own process.
class Program {
  static count = 0;

  constructor(text, { environment = {}, extension = 'js', directory = WORK } = {}) {
    const file = path.join(directory, `program${Program.count++}.${extension}`);
    fs.writeFileSync(file, text);
    this.stdout = '';
    this.stderr = '';
    this.process = spawn(process.execPath, [file], {
      cwd: directory, stdio: ['ignore', 'pipe', 'pipe'], env: { ...process.env, ...environment } });
    for (const name of ['stdout', 'stderr']) {
      this.process[name].setEncoding('utf8').on('data', (text_) => { this[name] += text_; });
    }
    this.closed = new Promise((resolve) => { this.process.once('close', resolve); });
  }

  kill(signal = 'SIGTERM') {
    this.process.kill(signal);
  }

  // The status of the program, or "has not ended".
  async status(seconds = LIMIT) {
    const limit = new AbortController();
    const late = sleep(seconds * 1000, 'has not ended', { signal: limit.signal }).catch(() => {});
    const status = await Promise.race([this.closed, late]);
    limit.abort();
    if (status === 'has not ended') this.kill('SIGKILL');
    return status;
  }
}

async function run(tests) {
  await admin.connect();
  for (const [name, test] of Object.entries(tests)) {
    const began = Date.now();
    try {
      await test();
    } catch (error) {
      check(false, `${name} ends`, error.stack);
    }
    console.log(`# ${name}: ${((Date.now() - began) / 1000).toFixed(1)} s`);
  }
  console.log(`1..${checks}`);
  await admin.end();
  fs.rmSync(WORK, { recursive: true, force: true });
  process.exit(failures > 0 ? 1 : 0);
}

module.exports = {
  TREE, PACKAGE, WORK, INSTALLED, fairq, read, check, equal, errorOf, until, fromNpm, sleep, admin, rows, ask, connect,
  queue, drop, add, taskOf, ended, said, backends, work, Program, run,
};
