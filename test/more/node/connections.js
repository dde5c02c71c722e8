// Workers survive connections that are lost in each state, and servers that do
// not answer.  Workers connect to several hosts and databases.
'use strict';
const net = require('net');
const {
  INSTALLED, fairq, check, equal, errorOf, until, sleep, admin, rows, ask, connect, queue, drop, add,
  taskOf, ended, backends, work, Program,
} = require('./harness');
const { Database } = require(`${INSTALLED}/lib/database.js`);
const { placesOf } = require(`${INSTALLED}/lib/places.js`);
const { pathOf } = require(`${INSTALLED}/lib/packages.js`);

// Ends the backend of a worker while it runs a statement that matches the pattern.
async function kill(worker, like) {
  const found = await until(async () => (await rows(`SELECT pg_terminate_backend(pid)
    FROM pg_stat_activity WHERE application_name = $1 AND state = 'active' AND query LIKE $2`,
  worker.name, like)).length > 0);
  if (!found) throw new Error(`no backend of ${worker.name} is in ${like}`);
}

async function lost() {
  const name = await queue('lost');
  const lock = await connect();
  const seen = [];
  const worker = work(name, async (task) => {
    seen.push(task.attempt);
    const { seconds = 0 } = task.payload;
    await sleep(seconds * 1000, undefined, { signal: task.signal });
  }, { lease: 9, concurrency: 2 });
  const doneOnce = async (id, what) => {
    const task = await ended(id);
    equal([task.status, task.attempt, seen.splice(0)], ['completed', 1, [1]], what);
  };

  await kill(worker, 'CALL fairq.wait%');
  await doneOnce(await add(name, {}), 'in wait: the worker continues');

  // a pop that waits for the table's lock
  await lock.query('BEGIN');
  await lock.query('LOCK TABLE fairq.task IN ACCESS EXCLUSIVE MODE');
  let id = await fairq.enqueue(lock, name, 'bob');
  await kill(worker, 'CALL fairq.wait%');
  await kill(worker, '%fairq.pop%');
  await lock.query('COMMIT');
  await doneOnce(id, 'in pop: no task is lost');

  // a completion that waits for the lock of the task's row
  id = await add(name, { seconds: 4 });
  await until(async () => (await taskOf(id)).status === 'running');
  await lock.query('BEGIN');
  await lock.query('SELECT 1 FROM fairq.task WHERE id = $1 FOR UPDATE', [id]);
  await kill(worker, '%fairq.complete%');
  await lock.query('COMMIT');
  await doneOnce(id, 'in complete: the worker repeats the call');

  // a heartbeat that waits for the table's lock
  id = await add(name, { seconds: 13 });
  await until(async () => (await taskOf(id)).status === 'running');
  await lock.query('BEGIN');
  await lock.query('LOCK TABLE fairq.task IN ACCESS EXCLUSIVE MODE');
  await kill(worker, '%fairq.extend_batch%');
  await lock.query('COMMIT');
  const other = work(name, () => 'another did it');
  equal((await ended(id)).result, null, 'in a heartbeat: the worker keeps the lease');
  equal(seen.splice(0), [1], 'the task runs once');
  await other.stop();

  const lines = worker.lines.filter((line) => !/another transaction has locked the task/.test(line));
  // the second text is logged if the connection ends before the client has
  // read the reason
  const reasons = ['terminating connection due to administrator command; retrying each second',
    'Connection terminated unexpectedly; retrying each second'];
  equal(lines.filter((line) => !reasons.includes(line)), [], 'the log has each loss, and what the worker does');
  equal(lines.includes(reasons[0]), true, 'and why');
  await worker.stop();
  await lock.end();
  await drop(name);
}

// Other leases are still renewed while an open transaction has completed a
// task, which locks the task's row.
async function heartbeats() {
  const name = await queue('heartbeats');
  const client = await connect();
  let aborted;
  const worker = work(name, {
    slow: async (args, task) => {
      await client.query('BEGIN');
      await task.complete(client);
      await sleep(11e3);
      await client.query('COMMIT');
    },
    beside: async (args, task) => {
      await sleep(11e3, undefined, { signal: task.signal });
    },
    lost: (args, task) => new Promise((resolve) => {
      task.signal.addEventListener('abort', () => { aborted = task.signal.reason; resolve(); });
    }),
  }, { lease: 7, grace: 0.5 });
  const slow = await add(name, {}, 'slow');
  const beside = await add(name, {}, 'beside');
  await until(async () => (await taskOf(beside)).status === 'running');
  const other = work(name, () => 'another did it', { lease: 7 });
  equal([(await ended(beside)).result, (await ended(slow)).result], [null, null],
    'a transaction that completes a task delays no other heartbeat');
  await other.stop();

  const id = await add(name, {}, 'lost');
  await until(async () => (await taskOf(id)).status === 'running');
  await fairq.cancel(admin, id);
  equal((await ended(id, 'cancelled')).status, 'cancelled', 'a heartbeat finds a cancelled task');
  check(aborted instanceof fairq.Stopped, 'by its signal', aborted);
  await client.end();

  const held = await add(name, {}, 'beside', { maxAttempts: 1 });
  await until(async () => (await taskOf(held)).status === 'running');
  worker.heartbeat.thread.terminate();
  const error = await errorOf(Promise.race([worker.ended, sleep(30e3)]));
  equal([error.name, error.message], ['WorkerError', 'the thread of heartbeats has ended'],
    'a worker without a heartbeat ends');
  equal((await taskOf(held)).status, 'queued', 'and releases its tasks');
  await drop(name);
}

// A worker takes tasks of two databases, whose tasks have the same ids.
async function databases() {
  const name = await queue('databases');
  const first = admin.database;
  await ask('CREATE DATABASE fairq_node TEMPLATE template0');
  const second = await connect({ database: 'fairq_node' });
  await second.query('CREATE EXTENSION fairq');
  await second.query('SELECT fairq.set_shard(1023)');
  await second.query("SELECT fairq.create_queue('databases', retain => '1 hour')");
  const ids = [];
  const uri = `postgresql:///fairq_node?host=${encodeURIComponent(process.env.PGHOST)}`;
  const seen = [];
  const worker = work(name, async (task) => {
    seen.push(task.group);
    await sleep(task.payload, undefined, { signal: task.signal });
  }, { databases: [{ database: first }, uri], lease: 7 });
  ids.push(await fairq.enqueue(admin, name, 'here', 11e3));
  ids.push(await fairq.enqueue(second, name, 'there', 11e3), await fairq.enqueue(second, name, 'cancelled', 60e3));
  check(ids[1] > 2 ** 52 && Number.isSafeInteger(ids[1]), 'an id with a shard is a number', ids);
  await until(() => seen.length === 3);
  const others = [{ database: first }, uri].map((one) => work(name, () => 'another did it', { databases: one }));
  await fairq.cancel(second, ids[2]);
  await ended(ids[0]);
  const there = async () => (await second.query(
    'SELECT group_key, status, attempt, result FROM fairq.tasks ORDER BY id')).rows;
  await until(async () => (await there()).every((task) => /completed|cancelled/.test(task.status)));
  equal(await there(), [{ group_key: 'there', status: 'completed', attempt: 1, result: null },
    { group_key: 'cancelled', status: 'cancelled', attempt: 1, result: null }],
  'both databases are served, each with its heartbeats');
  equal(await ask('SELECT result FROM fairq.tasks WHERE id = $1', ids[0]), null, 'none by another');
  for (const one of [worker, ...others]) await one.stop();
  await second.end();
  await ask('DROP DATABASE fairq_node WITH (FORCE)');
  await drop(name);
}

async function hosts() {
  const timeout = { connectionTimeoutMillis: 10e3 };
  const uri = (text) => placesOf(text).map((place) => place.connectionString);
  equal(uri('postgresql://u:p,w@a:1,b:2/d?x=1,2'), ['postgresql://u:p,w@a:1/d?x=1,2',
    'postgresql://u:p,w@b:2/d?x=1,2'], 'the hosts of a URI');
  equal(placesOf({ host: 'a,b', port: '1,2', user: 'u' }), [{ ...timeout, user: 'u', host: 'a', port: 1 },
    { ...timeout, user: 'u', host: 'b', port: 2 }], 'the hosts of an object');
  const { PGHOST, PGPORT } = process.env;
  Object.assign(process.env, { PGHOST: 'a,b', PGPORT: '7', PGCONNECT_TIMEOUT: '2' });
  equal(placesOf({}), ['a', 'b'].map((host) => ({ connectionTimeoutMillis: 2000, host, port: 7 })),
    'the hosts of the environment');
  Object.assign(process.env, { PGHOST, PGPORT });
  delete process.env.PGCONNECT_TIMEOUT;
  const ssl = { ca: Buffer.from('x') };
  Object.defineProperty(ssl, 'key', { value: 'hidden', enumerable: false });
  equal(Object.keys(placesOf({ ssl })[0].ssl), ['ca', 'key'], 'the key of TLS is kept');

  // the host that accepts writes
  const options = { pg: pathOf('pg'), name: 'hosts', stopping: new AbortController().signal, warn: () => {} };
  const standby = { ...placesOf({})[0], options: '-c default_transaction_read_only=on' };
  const database = new Database([standby, placesOf({})[0]], options);
  const [row] = await database.query("SELECT current_setting('transaction_read_only') AS it");
  equal(row.it, 'off', 'the host that accepts writes is found among several');
  database.close();
  const nowhere = { ...placesOf({})[0], database: 'nowhere' };
  const away = { ...placesOf({})[0], port: 1 };
  for (const places of [[nowhere, away], [away, nowhere]]) {
    const one = new Database(places, { ...options, giveUp: 0 });
    const error = await errorOf(one.query('SELECT 1', [], { once: true }));
    equal(error.code, 'ENOENT', 'a host that is down may return with another database');
    one.close();
  }
  const none = new Database([standby, standby], options);
  equal((await errorOf(none.query('SELECT 1', [], { once: true }))).message, 'no host accepts writes',
    'if no host accepts writes, the worker finds none');
  none.close();
}

// A worker waits until its database is created.  If the database is not
// created, the worker gives up.
async function hopeless() {
  const lines = [];
  const options = {
    pg: pathOf('pg'), name: 'hopeless', stopping: new AbortController().signal, giveUp: 3,
    warn: (line) => lines.push(line),
  };
  const place = { ...placesOf({})[0], database: 'fairq_later' };
  const database = new Database([place], options);
  const asked = database.query('SELECT 5 AS five');
  await until(() => lines.length > 0);
  await ask('CREATE DATABASE fairq_later TEMPLATE template0');
  equal((await asked)[0].five, 5, 'a database that is created meanwhile is found');
  database.drop(database.client);
  await sleep(3000);
  await ask('DROP DATABASE fairq_later WITH (FORCE)');
  const began = Date.now();
  const error = await errorOf(database.query('SELECT 6'));
  equal([error.code, error.message], ['3D000', 'database "fairq_later" does not exist'], 'a database that is not created is an error');
  check(Date.now() - began > 2500, 'after the same time', Date.now() - began);
  database.close();
  equal(lines, Array(2).fill('database "fairq_later" does not exist; retrying each second, for 3 s'),
    'the log has the missing database, and what the worker does');
  const passwords = await errorOf(new Database([place], { ...options, giveUp: 0 })
    .query('SELECT 1', [], { once: true }));
  equal(passwords.code, '3D000', 'without giveUp the error occurs at once');
}

// A worker survives a network that drops connections silently.
async function vanished() {
  const sockets = new Set();
  let passing = true;
  // the end of a connection is not answered
  const server = net.createServer({ allowHalfOpen: true }, (here) => {
    const there = net.connect(`${process.env.PGHOST}/.s.PGSQL.${process.env.PGPORT}`);
    for (const [one, other] of [[here, there], [there, here]]) {
      sockets.add(one);
      one.on('data', (data) => { if (passing) other.write(data); });
      one.on('error', () => {});
    }
  });
  await new Promise((resolve) => { server.listen(0, '127.0.0.1', resolve); });
  const name = await queue('vanished');
  const program = new Program(`
    const worker = require('fairq').work('${name}', async () => {}, {
      databases: { host: '127.0.0.1', port: ${server.address().port} } });
    process.on('SIGTERM', () => worker.stop().then(() => console.log('stopped')));
    console.log('started');`);
  await ended(await add(name, {}));
  const kept = [...sockets].length;
  check(kept > 0, 'a worker is connected', kept);
  passing = false;
  program.kill();
  equal([await program.status(), program.stdout], [0, 'started\nstopped\n'],
    'a worker ends after its server has vanished, and no connection keeps the process');
  for (const socket of sockets) socket.destroy();
  server.close();
  await drop(name);
}

// If a server does not answer, the client drops the connection, and the server
// ends the calls.
async function silence() {
  const lines = [];
  const database = new Database(placesOf({}), {
    pg: pathOf('pg'), name: 'silence', stopping: new AbortController().signal, warn: (line) => lines.push(line) });
  const began = Date.now();
  const error = await errorOf(database.query('SELECT pg_sleep(30)', [], { once: true, limit: 0.5 }));
  equal(error.message, 'the server has not answered within 0.5 seconds', 'a call has a time limit');
  check(Date.now() - began < 20e3, 'and no more', Date.now() - began);
  check(await until(async () => (await backends('silence')).length === 0), 'the server has ended the call');
  const [row] = await database.query('SELECT 5 AS five');
  equal(row.five, 5, 'the next call has a new connection');
  equal(lines.length, 1, 'that is reported');
  database.close();
}

// A statement that fails for a temporary reason is repeated. Meanwhile other tasks are
// served.
async function refusals() {
  await ask(`CREATE FUNCTION refuse() RETURNS int LANGUAGE plpgsql AS $$ BEGIN
    RAISE 'no memory' USING ERRCODE = '53200'; END $$`);
  const lines = [];
  const database = new Database(placesOf({}), {
    pg: pathOf('pg'), name: 'refusals', stopping: new AbortController().signal, warn: (line) => lines.push(line) });
  const refused = database.query('SELECT refuse() AS n');
  const other = await Promise.race([database.query('SELECT 5 AS n'), sleep(5000, [])]);
  equal(other, [{ n: 5 }], 'another statement is served');
  await ask('CREATE OR REPLACE FUNCTION refuse() RETURNS int LANGUAGE sql AS $$ SELECT 6 $$');
  equal(await refused, [{ n: 6 }], 'the statement is repeated');
  equal(lines.length, 1, 'that is reported');
  database.close();
  await ask('DROP FUNCTION refuse');
}

// A task fails if its result or error has characters that the database's
// encoding lacks.
async function encodings() {
  await ask("CREATE DATABASE fairq_latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0");
  const latin = await connect({ database: 'fairq_latin' });
  await latin.query('CREATE EXTENSION fairq');
  await latin.query("SELECT fairq.create_queue('latin', retain => '1 hour')");
  const worker = work('latin', (task) => {
    if (task.payload === 'result') return '€';
    throw new fairq.Dead(task.payload === 'price' ? '5 €' : `${task.group} ${task.payload}`);
  }, { databases: { database: 'fairq_latin' } });
  await fairq.enqueue(latin, 'latin', 'bücher', 'süß');
  await fairq.enqueue(latin, 'latin', 'bücher', 'price');
  await fairq.enqueue(latin, 'latin', 'bücher', 'result', { maxAttempts: 1 });
  const tasks = async () => (await latin.query("SELECT status, split_part(error, E'\\n', 1) AS error FROM fairq.tasks ORDER BY id")).rows;
  await until(async () => (await tasks()).every((task) => task.status === 'failed'));
  const refused = 'error: character with byte sequence 0xe2 0x82 0xac in encoding "UTF8" has no'
    + ' equivalent in encoding "LATIN1"';
  equal(await tasks(), ['bücher süß', refused, refused].map((error) => ({ status: 'failed', error })),
    'a task ends with any encoding');
  await worker.stop();
  await latin.end();
  await ask('DROP DATABASE fairq_latin WITH (FORCE)');
}

// If the server is unreachable when the worker ends, but returns in time, the worker still
// ends its tasks there.
async function lostAtTheEnd() {
  const name = await queue('lost at the end');
  const database = await ask('SELECT current_database()');
  const allow = async (truth) => {
    const other = await connect({ database: 'postgres' });
    await other.query(`ALTER DATABASE ${database} ALLOW_CONNECTIONS ${truth}`);
    await other.end();
  };
  const worker = work(name, () => sleep(2000), { grace: 5 });
  const id = await add(name, {});
  await until(async () => (await taskOf(id)).status === 'running');
  await allow(false);
  let stopped;
  try {
    await ask(`SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = $1`,
      worker.name);
    stopped = worker.stop();
    await sleep(5500);
  } finally {
    await allow(true);
  }
  await stopped;
  const task = await taskOf(id);
  equal([task.status, task.attempt], ['completed', 1], 'the ended task is completed');
  await drop(name);
}

module.exports = {
  lost, lostAtTheEnd, heartbeats, databases, hosts, hopeless, vanished, silence, refusals, encodings,
};
