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

// Without an installed package, use the one of this tree.
function requirePackage() {
  try {
    return require('fairq');
  } catch (error) {
    if (error.code !== 'MODULE_NOT_FOUND') throw error;
    return require('../clients/node');
  }
}

// The work, to be replaced by yours.  When it returns, the task is done; its value is kept as the
// result if the queue retains.  When it throws, the task has failed and is retried later; the
// error is kept with its cause.  Long work looks at task.signal, an AbortSignal, which is aborted
// when the work is wasted: pass it on to what takes one.
async function handle(task) {
  console.log(`task ${task.id} of ${task.group}:`, task.payload);
}

const [queue, module_] = process.argv.slice(2);
const shards = (process.env.SHARDS || '').split(/\s+/).filter(Boolean); // connection URIs

// The package decodes each payload separately, and runs a task whose lease has expired with no
// other task.  So a task that is broken, or kills this process, fails alone.
fairq.main(queue, module_ ? require(path.resolve(module_)).handle : handle, {
  concurrency: Number(process.env.CONCURRENCY || 4), // tasks at a time
  lease: Number(process.env.LEASE || 60), // seconds
  timeout: Number(process.env.TIMEOUT || Infinity), // seconds per task
  grace: Number(process.env.GRACE || 5), // seconds for what runs at the end
  databases: shards.length > 0 ? shards : undefined,
});
