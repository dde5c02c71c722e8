// The thread of heartbeat.js.  It connects to a database when it first has a lease to renew there.
'use strict';
const { parentPort, workerData } = require('worker_threads');
const { milliseconds, pause } = require('./clock');
const { Database, CALL } = require('./database');
const { TimedOut, explain, isTransient } = require('./errors');
const { extend } = require('./leases');

const {
  databases, lease, name, pg,
} = workerData;
const EVERY = lease / 3;
// Time limit of a call and of a connection attempt, in seconds.  It leaves time for a
// second try.
const LIMIT = Math.min(Math.max(EVERY, 3), CALL);
// Seconds after a timeout until this thread assumes that a handler blocks the event loop.
const SLACK = 5;

const FAIL = `SELECT fairq.fail($1::bigint, $2::int, $3::text,
  took => make_interval(secs => $4::float8))`;

const stopping = new AbortController().signal; // never aborted: the worker ends the whole thread
const warn = (warning) => parentPort.postMessage({ warning });

class Beats {
  constructor(places, shard) {
    this.shard = shard;
    this.database = new Database(places.map((place) => ({
      ...place,
      connectionTimeoutMillis: Math.min(place.connectionTimeoutMillis, 1000 * LIMIT),
    })), {
      pg, name, stopping, warn,
    });
    this.numbers = new Map(); // of the attempts, by the ids of their tasks
    this.timers = new Map(); // of attempts with a timeout, by the same ids
  }

  keep({ id, number, timeout }) {
    this.numbers.set(id, number);
    this.forget(id);
    if (timeout === undefined) return;
    this.timers.set(id, setTimeout(() => this.timeOut(id, number, timeout),
      milliseconds(timeout + SLACK)));
  }

  drop({ id, number }) {
    if (this.numbers.get(id) !== number) return;
    this.numbers.delete(id);
    this.forget(id);
  }

  forget(id) {
    clearTimeout(this.timers.get(id));
    this.timers.delete(id);
  }

  // Fails the task, so that another process can retry it.  The worker has not
  // done that in time, since a handler blocks its event loop.
  async timeOut(id, number, timeout) {
    if (this.numbers.get(id) !== number) return;
    const text = `${new TimedOut(timeout).message}: a handler keeps the event loop from turning`;
    try {
      await this.database.query(FAIL, [id, number, text, timeout], { once: true, limit: LIMIT });
      warn(`task ${id}, attempt ${number}: ${text}`);
      this.lose(id, number);
    } catch (error) {
      if (!isTransient(error)) warn(`task ${id}, attempt ${number}: ${explain(error)}`);
      this.timers.set(id, setTimeout(() => this.timeOut(id, number, timeout), 1000));
    }
  }

  lose(id, number) {
    parentPort.postMessage({ shard: this.shard, lost: { id, number } });
    this.drop({ id, number });
  }

  // Renews the leases, and reports tasks whose lease is lost or that were cancelled.
  async beat() {
    const asked = new Map(this.numbers);
    if (asked.size === 0) return;
    const options = { once: true, limit: LIMIT };
    for (const id of await extend(this.database, asked, lease, options)) {
      parentPort.postMessage({ shard: this.shard, lost: { id, number: asked.get(id) } });
    }
  }

  async go() {
    for (let wait = EVERY; ;) {
      await pause(wait);
      try {
        await this.beat();
        wait = EVERY;
      } catch (error) {
        if (!isTransient(error)) warn(`heartbeat: ${explain(error)}`);
        wait = Math.min(1, EVERY);
      }
    }
  }
}

const beats = databases.map((places, shard) => new Beats(places, shard));

parentPort.on('message', ({ shard, kept, ...attempt }) => {
  if (kept) beats[shard].keep(attempt);
  else beats[shard].drop(attempt);
});

for (const each of beats) each.go();
