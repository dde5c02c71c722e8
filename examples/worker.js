#!/usr/bin/env node
// A worker for a fairq queue: Node.js, pg.
//
//     node worker.js QUEUE [MODULE]
//
// Does the queue's tasks with handle(task, signal) of MODULE, or with handle()
// below.  The database is that of PGHOST, PGDATABASE and so on, or those of SHARDS
// are, if the queue is spread over several.  See README.md.
'use strict';
const os = require('os');
const path = require('path');
const { setTimeout: sleep } = require('timers/promises');
const { Client, DatabaseError } = require('pg');

const queue = process.argv[2];
const work = process.argv[3] ? require(path.resolve(process.argv[3])).handle : handle;
const CONCURRENCY = Number(process.env.CONCURRENCY || 4); // tasks at a time
const LEASE = Number(process.env.LEASE || 60); // seconds
const GRACE = Number(process.env.GRACE || 5); // seconds for what runs at the end
const SHARDS = (process.env.SHARDS || '').split(/\s+/).filter(Boolean); // connection URIs
const NAME = `${os.hostname()}:${process.pid}`;

// The work, to be replaced by yours.  To return is to have done it; what is
// returned is kept as the result if the queue retains.  To throw is to have
// failed: it is tried again later.  Long work heeds the AbortSignal, which says
// that the task was cancelled or its lease is lost.  Computing without a pause
// keeps heartbeats away: have that done by a worker thread or another process.
async function handle(task, signal) {
  console.log(`task ${task.id} of ${task.group_key}:`, task.payload);
}

// The hosts of a connection, each as pg takes it.  Of several, in PGHOST and PGPORT or
// in a URI, with commas between them, one is the primary.
function places(uri) {
  const timeout = { connectionTimeoutMillis: 1000 * (process.env.PGCONNECT_TIMEOUT || 10) };
  if (uri === undefined) {
    const ports = (process.env.PGPORT || '5432').split(',');
    return (process.env.PGHOST || '').split(',').map((host, i) => ({
      ...timeout, host: host || undefined, port: Number(ports[i % ports.length]) }));
  }
  const [, before, hosts, after] = /^(\w+:\/\/(?:[^@/?]*@)?)([^/?]*)(.*)$/.exec(uri);
  return hosts.split(',').map((host) => (
    { ...timeout, connectionString: before + host + after }));
}

// A connection that is made anew when it is lost: to the host that takes writes.
class Database {
  constructor(uri) {
    this.places = places(uri);
  }

  async connect() {
    let problem = new Error('no host takes writes');
    for (const place of this.places) {
      const client = new Client(place);
      client.on('error', () => {}); // the next query fails, and says it
      try {
        await client.connect();
        if (this.places.length === 1) return client;
        const { rows } = await client.query('SHOW transaction_read_only');
        if (rows[0].transaction_read_only === 'off') return client;
      } catch (error) {
        problem = error;
      }
      client.end().catch(() => {});
    }
    throw problem;
  }

  // If only the answer was lost, the attempt sees to it that a second complete
  // does no harm; what a lost pop took comes back when its lease ends.
  async query(sql, values, once = false) {
    for (let failures = 1; ; failures++) {
      this.client = this.client || this.connect();
      const client = this.client;
      try {
        return (await (await client).query(sql, values)).rows;
      } catch (error) {
        if (!isLost(error)) throw error;
        console.error(`${error}`);
        if (this.client === client) {
          this.client = null;
          client.then((c) => c.end()).catch(() => {});
        }
        if (once || (stopping && failures > 1)) throw error;
      }
      if (!stopping) await sleep(1000);
    }
  }
}

// May a new connection mend it?  25006, read-only, is a server that was the primary, or
// a shard that is being moved.
function isLost(error) {
  return !(error instanceof DatabaseError) || /^(08|25006|53|57P)/.test(error.code);
}

let stopping = false;
const stopped = new Promise((resolve) => {
  process.on('SIGTERM', resolve);
  process.on('SIGINT', resolve);
});
const running = new Set(); // tasks
let working = 0; // those whose work has begun, and has not ended

// A database that has a part of the queue's groups.
class Shard {
  constructor(uri) {
    this.popper = new Database(uri); // for pop and wait, which takes its time
    this.keeper = new Database(uri); // for all that must not wait
    this.groups = 1; // that have something to do
    this.counted = -Infinity; // when they were
    this.service = 0; // tasks taken, per group
    this.slots = 0; // that its pop, which has not returned, is to fill
    this.taking = -Infinity; // when it last had tasks, and room for them
  }

  tasks() {
    return [...running].filter((task) => task.shard === this);
  }

  // Does it have tasks, and has it said something within a second?
  answers() {
    return this.taking > performance.now() - 1000;
  }

  async countGroups() {
    if (shards.length < 2 || performance.now() - this.counted < 1000) return;
    const [row] = await this.popper.query(
      'SELECT groups_active FROM fairq.stats WHERE queue = $1', [queue]);
    const groups = (row && row.groups_active) || 1;
    // what it is ahead by is tasks: of each group it is another part now
    const least = Math.min(this.service,
      ...shards.filter((s) => s.answers()).map((s) => s.service));
    this.service = least + (this.service - least) * this.groups / groups;
    this.groups = groups;
    this.counted = performance.now();
  }

  // Takes those of the free slots that are this shard's; waits for one.  Each goes to
  // the shard that has had the fewest tasks per group, of those that have some: so
  // groups of all shards get the same.  A shard that does not answer within a second
  // is not waited for, and if it cannot be told what has ended it gets no more.
  async takeSlots() {
    while (!stopping) {
      const late = performance.now() - 1000;
      if (this.tasks().every((task) => task.ended > late)) {
        const others = shards.filter((s) => s !== this && s.answers());
        if (others.length > 0 && !this.answers()) {
          // it has saved up none; and not all workers come to it at once
          this.service = Math.max(this.service,
            Math.min(...others.map((s) => s.service)) + Math.random() / this.groups);
        }
        this.taking = performance.now();
        const free = freeSlots(late);
        while (this.slots < free && this.isNext()) this.count(1);
        if (this.slots > 0) break;
      }
      await change(500);
    }
    return this.slots;
  }

  isNext() {
    return shards.every((s) => this.service <= s.service || !s.answers());
  }

  count(slots) {
    this.slots += slots;
    this.service += slots / this.groups;
  }

  // What its pop has brought; the other slots are free again.
  got(tasks) {
    this.count(tasks.length - this.slots);
    this.slots = 0;
    if (tasks.length === 0) this.taking = -Infinity;
    for (const task of tasks) {
      task.shard = this;
      task.abort = new AbortController();
      task.ended = Infinity;
      running.add(task);
      task.end = run(task).catch((error) => console.error(error));
    }
    changed();
  }

  async pop() {
    while (!stopping) {
      let tasks = [];
      try {
        await this.countGroups();
        if (await this.takeSlots() === 0) return;
        tasks = await this.popper.query(
          'SELECT * FROM fairq.pop($1, $2, lease => $3, worker => $4)',
          [queue, this.slots, `${LEASE} seconds`, NAME], true);
      } catch (error) {
        if (isLost(error)) {
          this.got([]);
          this.counted = -Infinity; // it connects again by that, without slots
          await sleep(1000);
          continue;
        }
        ignoreCancel(error);
      }
      this.got(tasks);
      if (tasks.length === 0) {
        await this.popper.query('CALL fairq.wait($1)', [queue]).catch(ignoreCancel);
      }
    }
  }

  // Lets its tasks end, and hands back what does not.
  async end() {
    await this.endPop();
    await Promise.race([Promise.all(this.tasks().map((task) => task.end)), sleep(GRACE * 1000)]);
    await Promise.all(this.tasks().map((task) => release(task).catch(
      (error) => console.error(`release: ${error}`))));
  }

  // Ends pop(), which most likely is in fairq.wait.  The first try may come before
  // its statement; through a pooler none arrives, and nothing is lost.
  async endPop() {
    let over = false;
    this.popping.catch(() => {}).then(() => { over = true; });
    for (let tries = 0; tries < 20 && !over; tries++) {
      try {
        const client = await this.popper.client; // null: it is lost
        if (client) await this.keeper.query('SELECT pg_cancel_backend($1)', [client.processID]);
      } catch (error) {
        console.error(`${error}`);
      }
      await sleep(50);
    }
  }

  async heartbeat() {
    for (;;) {
      await sleep(LEASE * 1000 / 3);
      for (const task of this.tasks()) {
        try {
          const [{ until }] = await this.keeper.query('SELECT fairq.extend($1, $2, $3) AS until',
            [task.id, task.attempt, `${LEASE} seconds`]);
          if (until === null) task.abort.abort();
        } catch (error) {
          console.error('heartbeat:', error);
        }
      }
    }
  }
}

const shards = (SHARDS.length > 0 ? SHARDS : [undefined]).map((uri) => new Shard(uri));

// Cancelled by main(), or by a statement_timeout
function ignoreCancel(error) {
  if (error.code !== '57014') throw error;
}

// What a shard has not answered since then keeps no others from running.
function freeSlots(late) {
  const popping = shards.filter((s) => s.answers()).reduce((sum, s) => sum + s.slots, 0);
  return CONCURRENCY - popping - [...running].filter((t) => t.ended > late).length;
}

// Slots are free, or taken: who waits for one looks again.
let waiting = [];
function changed() {
  for (const resolve of waiting.splice(0)) resolve();
}
function change(milliseconds) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, milliseconds);
    waiting.push(() => { clearTimeout(timer); resolve(); });
  });
}

async function run(task) {
  // for queues that are fair by time
  const took = () => `${Math.round(task.ended - task.begun)} ms`;
  try {
    const result = await callHandle(task);
    await task.shard.keeper.query('SELECT fairq.complete($1, $2, $3, took => $4)',
      [task.id, task.attempt, result === undefined ? null : JSON.stringify(result), took()]);
  } catch (error) {
    if (task.abort.signal.aborted) {
      await release(task);
    } else {
      console.error(`task ${task.id}, attempt ${task.attempt}:`, error);
      await task.shard.keeper.query('SELECT fairq.fail($1, $2, $3, took => $4)',
        [task.id, task.attempt, `${error}`, took()]);
    }
  } finally {
    running.delete(task);
    changed();
  }
}

async function callHandle(task) {
  // there is room, unless a shard has answered late
  while (working >= CONCURRENCY && !stopping) await change(500);
  working++;
  task.begun = performance.now();
  try {
    if (stopping) task.abort.abort();
    if (task.abort.signal.aborted) throw new Error('stopped');
    return await work(task, task.abort.signal);
  } finally {
    working--;
    task.ended = performance.now();
    changed();
  }
}

// Hands it back; ends it if it is cancelled; nothing if it is lost.
async function release(task) {
  await task.shard.keeper.query('SELECT fairq.release($1, $2)', [task.id, task.attempt]);
}

async function main() {
  for (const shard of shards) {
    shard.popping = shard.pop();
    shard.heartbeat();
  }
  try {
    await Promise.race([stopped, ...shards.map((shard) => shard.popping)]);
  } catch (error) {
    console.error(error);
    process.exitCode = 1;
  }
  stopping = true;
  changed();
  // a shard may be down, or mute
  await Promise.race([Promise.all(shards.map((s) => s.end())), sleep((GRACE + 4) * 1000)]);
  process.exit();
}

main();
