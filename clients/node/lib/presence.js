// A worker's row in the view fairq.workers, and its file for a probe.
'use strict';
const fs = require('fs/promises');
const os = require('os');
const { pause } = require('./clock');
const { explain, isTransient } = require('./errors');
const { version } = require('../package.json');

const EVERY = 10; // seconds between calls that register the worker
const TOUCH = 1; // seconds between writes of the file
const PARTING = 1; // seconds for the server to answer when the worker ends

const REGISTER = `SELECT fairq.register_worker($1::uuid, $2::text, $3::text[], host => $4::text,
  client => 'node', version => $5::text, concurrency => $6::int, running => $7::int)`;
const UNREGISTER = 'SELECT fairq.unregister_worker($1::uuid)';

// Keeps the worker in fairq.workers of a shard until the signal is aborted.  If a call
// fails, the worker continues.  The log gets the first failure that is not temporary.
async function keepRegistered(shard, ended) {
  const { worker, keeper } = shard;
  const { id, name, queues, concurrency } = worker;
  let told = false;
  while (!ended.aborted) {
    const running = [...worker.working].filter((attempt) => attempt.shard === shard).length;
    const values = [id, name, queues, os.hostname(), version, concurrency, running];
    await keeper.query(REGISTER, values, { once: true, brief: true }).catch((error) => {
      if (told || isTransient(error)) return;
      worker.log.warn(`the worker is not in fairq.workers: ${explain(error)}`);
      told = true;
    });
    await pause(EVERY, ended);
  }
  await keeper.query(UNREGISTER, [id], { once: true, brief: true, limit: PARTING }).catch(() => {});
}

// Writes the file every second until the signal is aborted.  A handler that blocks the
// event loop delays the writes.
async function keepAlive({ alive, name, log }, ended) {
  while (!ended.aborted) {
    try {
      await fs.writeFile(alive, `${name}\n`);
    } catch (error) {
      log.error(`the file of the option alive: ${error.message}`);
      return;
    }
    await pause(TOUCH, ended);
  }
}

module.exports = { keepAlive, keepRegistered };
