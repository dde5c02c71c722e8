#!/usr/bin/env node
// A worker for a fairq queue: Node.js, pg.
//
//     node worker.js QUEUE [MODULE]
//
// Does the queue's tasks with handle(task, signal) of MODULE, or with handle()
// below.  The database is that of PGHOST, PGDATABASE and so on.  See README.md.
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
const NAME = `${os.hostname()}:${process.pid}`;

// The work, to be replaced by yours.  To return is to have done it; what is
// returned is kept as the result if the queue retains.  To throw is to have
// failed: it is tried again later.  Long work heeds the AbortSignal, which says
// that the task was cancelled or its lease is lost.  Computing without a pause
// keeps heartbeats away: have that done by a worker thread or another process.
async function handle(task, signal) {
  console.log(`task ${task.id} of ${task.group_key}:`, task.payload);
}

// A connection that is made anew when it is lost.
class Database {
  async connect() {
    const client = new Client();
    client.on('error', () => {}); // the next query fails, and says it
    await client.connect();
    return client;
  }

  // If only the answer was lost, the attempt sees to it that a second complete
  // does no harm; what a lost pop took comes back when its lease ends.
  async query(sql, values) {
    for (let failures = 1; ; failures++) {
      this.client = this.client || this.connect();
      const client = this.client;
      try {
        return (await (await client).query(sql, values)).rows;
      } catch (error) {
        const lost = !(error instanceof DatabaseError) || /^(08|53|57P)/.test(error.code);
        if (!lost) throw error;
        console.error(`${error}`);
        if (this.client === client) {
          this.client = null;
          client.then((c) => c.end()).catch(() => {});
        }
        if (stopping && failures > 1) throw error;
      }
      if (!stopping) await sleep(1000);
    }
  }
}

let stopping = false;
const stopped = new Promise((resolve) => {
  process.on('SIGTERM', resolve);
  process.on('SIGINT', resolve);
});
const running = new Set(); // tasks
const popper = new Database(); // for pop and wait, which takes its time
const keeper = new Database(); // for all that must not wait

async function pop() {
  while (!stopping) {
    const free = CONCURRENCY - running.size;
    if (free === 0) {
      await Promise.race([stopped, ...[...running].map((task) => task.end)]);
      continue;
    }
    try {
      const claims = await popper.query(
        'SELECT * FROM fairq.pop($1, $2, lease => $3, worker => $4)',
        [queue, free, `${LEASE} seconds`, NAME]);
      for (const task of claims) {
        task.abort = new AbortController();
        running.add(task);
        task.end = run(task).catch((error) => console.error(error));
      }
      if (claims.length === 0) await popper.query('CALL fairq.wait($1)', [queue]);
    } catch (error) {
      // Cancelled by main(), or by a statement_timeout
      if (error.code !== '57014') throw error;
    }
  }
}

async function run(task) {
  const begun = performance.now();
  // for queues that are fair by time
  const took = () => `${Math.round(performance.now() - begun)} ms`;
  try {
    const result = await work(task, task.abort.signal);
    await keeper.query('SELECT fairq.complete($1, $2, $3, took => $4)',
      [task.id, task.attempt, result === undefined ? null : JSON.stringify(result), took()]);
  } catch (error) {
    if (task.abort.signal.aborted) {
      await release(task);
    } else {
      console.error(`task ${task.id}, attempt ${task.attempt}:`, error);
      await keeper.query('SELECT fairq.fail($1, $2, $3, took => $4)',
        [task.id, task.attempt, `${error}`, took()]);
    }
  } finally {
    running.delete(task);
  }
}

// Hands it back; ends it if it is cancelled; nothing if it is lost.
async function release(task) {
  await keeper.query('SELECT fairq.release($1, $2)', [task.id, task.attempt]);
}

async function heartbeat() {
  for (;;) {
    await sleep(LEASE * 1000 / 3);
    for (const task of running) {
      try {
        const [{ until }] = await keeper.query('SELECT fairq.extend($1, $2, $3) AS until',
          [task.id, task.attempt, `${LEASE} seconds`]);
        if (until === null) task.abort.abort();
      } catch (error) {
        console.error('heartbeat:', error);
      }
    }
  }
}

// Ends pop(), which most likely is in fairq.wait.  The first try may come
// before its statement; through a pooler none arrives, and nothing is lost.
async function endPop(popping) {
  let over = false;
  popping.catch(() => {}).then(() => { over = true; });
  for (let tries = 0; tries < 20 && !over; tries++) {
    try {
      const { processID } = await popper.client;
      await keeper.query('SELECT pg_cancel_backend($1)', [processID]);
    } catch (error) {
      console.error(`${error}`);
    }
    await sleep(50);
  }
}

async function main() {
  const popping = pop();
  heartbeat();
  try {
    await Promise.race([stopped, popping]);
  } catch (error) {
    console.error(error);
    process.exitCode = 1;
  }
  stopping = true;
  await endPop(popping);
  await Promise.race([Promise.all([...running].map((task) => task.end)), sleep(GRACE * 1000)]);
  await Promise.all([...running].map(release));
  process.exit();
}

main();
