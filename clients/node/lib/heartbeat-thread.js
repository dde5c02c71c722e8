// The thread of heartbeat.js.  It has a connection for each database, made when it first has
// a lease to prolong there.
'use strict';
const { parentPort, workerData } = require('worker_threads');
const { pause } = require('./clock');
const { Database } = require('./database');
const { explain, isTransient } = require('./errors');
const { extend } = require('./leases');

const { databases, lease, name, pg } = workerData;
const EVERY = lease / 3;

const stopping = new AbortController().signal; // never: the worker ends the whole thread
const warn = (warning) => parentPort.postMessage({ warning });

// Of each database, the numbers of the attempts by the ids of their tasks.
const attempts = databases.map(() => new Map());

parentPort.on('message', ({ shard, id, number, kept }) => {
  if (kept) attempts[shard].set(id, number);
  else if (attempts[shard].get(id) === number) attempts[shard].delete(id);
});

// Prolongs the leases of a database's tasks, and says which are lost or cancelled.
async function beat(database, shard) {
  const asked = new Map(attempts[shard]);
  if (asked.size === 0) return;
  for (const id of await extend(database, asked, lease, { once: true })) {
    parentPort.postMessage({ shard, lost: { id, number: asked.get(id) } });
  }
}

async function go(places, shard) {
  const database = new Database(places, { pg, name, stopping, warn });
  for (let wait = EVERY; ;) {
    await pause(wait);
    try {
      await beat(database, shard);
      wait = EVERY;
    } catch (error) {
      if (!isTransient(error)) warn(`heartbeat: ${explain(error)}`);
      wait = Math.min(1, EVERY);
    }
  }
}

databases.forEach(go);
