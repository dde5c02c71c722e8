#!/usr/bin/env node
// A worker for a fairq queue: Node.js, pg.
//
//     node worker.js QUEUE [MODULE]
//
// Does the queue's tasks with handle(task) of MODULE, or with handle() below.  The database
// is that of PGHOST, PGDATABASE and so on, or those of SHARDS are, if the queue is spread
// over several.  See README.md.
'use strict';
const path = require('path');
const fairq = requirePackage();

// The package is beside this, if it is not installed.
function requirePackage() {
  try {
    return require('fairq');
  } catch (error) {
    if (error.code !== 'MODULE_NOT_FOUND') throw error;
    return require('../clients/node');
  }
}

// The work, to be replaced by yours.  To return is to have done it; what is returned is kept
// as the result if the queue retains.  To throw is to have failed: it is tried again later.
// Long work heeds task.signal, an AbortSignal, which says that it is in vain.
async function handle(task) {
  console.log(`task ${task.id} of ${task.group}:`, task.payload);
}

const [queue, module_] = process.argv.slice(2);
const shards = (process.env.SHARDS || '').split(/\s+/).filter(Boolean); // connection URIs

fairq.main(queue, module_ ? require(path.resolve(module_)).handle : handle, {
  concurrency: Number(process.env.CONCURRENCY || 4), // tasks at a time
  lease: Number(process.env.LEASE || 60), // seconds
  grace: Number(process.env.GRACE || 5), // seconds for what runs at the end
  databases: shards.length > 0 ? shards : undefined,
});
