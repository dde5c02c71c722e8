// For tests: runs the ready tasks that the test's transaction sees, in this transaction.
//
//     const ran = await runTasks(client, new Worker('mail', handlers));
//
// No worker sees the tasks that the transaction has enqueued, since nothing is committed.
// A rollback at the end of the test removes them.
'use strict';
const { Attempt, jsonOf } = require('./lib/attempt');
const { now } = require('./lib/clock');
const { Dead, Retry, WorkerError } = require('./lib/errors');
const { fetch } = require('./lib/producer');
const { POP } = require('./lib/shard');

const CHANGED = 'SELECT pg_current_xact_id_if_assigned() IS NOT NULL AS changed';

const quoted = (name) => `"${name.replace(/["\\]/g, '\\$&')}"`;

// Replaces a worker's connections with the client.  As in producer.js, parameters are strings.
class OneConnection {
  constructor(client, { lease, log }) {
    this.client = client;
    this.keeper = this;
    this.worker = { lease, log, heartbeat: { drop() {} } };
  }

  query(sql, values) {
    return fetch(this.client, sql.replace(/\$\d+(?=::)/g, '$&::text'),
      values.map((value) => (value === null ? null : String(value))));
  }
}

// Runs ready tasks of the worker's queues one by one, including tasks that they enqueue.
// Resolves to a list of objects with the task, and the result of its handler, or its Dead or
// Retry.  Rejects with any other error of a handler.  The worker is not started.
async function runTasks(client, worker, { most = 1000 } = {}) {
  const place = new OneConnection(client, worker);
  const ran = [];
  const [{ changed }] = await fetch(client, CHANGED, []);
  while (changed) {
    const values = [`{${worker.queues.map(quoted).join()}}`, 1, worker.lease, worker.name];
    const [row] = await place.query(POP, values);
    if (row === undefined) break;
    const attempt = new Attempt(place, row);
    if (ran.length === most) {
      throw new WorkerError(`the limit of ${most} tasks is reached, and another one is ready, of queue ${attempt.task.queue}`);
    }
    ran.push(await runTask(attempt, worker));
  }
  return ran;
}

async function runTask(attempt, worker) {
  const { task } = attempt;
  attempt.begun = now();
  try {
    if (attempt.undecodable !== null) throw attempt.undecodable;
    const result = await worker.callOf(task).call();
    attempt.ended = now();
    if (!attempt.completed) await attempt.complete(jsonOf(result));
    return { task, result, error: undefined };
  } catch (error) {
    if (!(error instanceof Dead || error instanceof Retry)) throw error;
    attempt.ended = now();
    await attempt.fail(error);
    return { task, result: undefined, error };
  }
}

module.exports = { runTasks };
