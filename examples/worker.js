#!/usr/bin/env node
// A worker for a fairq queue: Node.js, pg.
//
//     node worker.js QUEUE [MODULE]
//
// Runs the queue's tasks with handle(task) of MODULE, or with handle() below.  PGHOST, PGDATABASE
// and so on name the database.  SHARDS names several, if the queue is spread over them.  See
// README.md.
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

// Replace this by your work.  When it returns, the task is completed, and the
// archive keeps its value if the queue has retain.  When it throws, the task is
// retried later, and its error is stored with its cause.  Long work should
// check task.signal, an AbortSignal, or pass it on: the worker aborts the
// signal when the work is useless.
async function handle(task) {
  console.log(`task ${task.id} of ${task.group}:`, task.payload);
}

const [queue, module_] = process.argv.slice(2);
const shards = (process.env.SHARDS || '').split(/\s+/).filter(Boolean); // connection URIs

// The package decodes each payload separately.  A task whose lease has expired
// runs with no other task.  So if a task is broken, or kills this process, only
// that task fails.
fairq.main(queue, module_ ? require(path.resolve(module_)).handle : handle, {
  concurrency: Number(process.env.CONCURRENCY || 4), // tasks at a time
  lease: Number(process.env.LEASE || 60), // seconds
  timeout: Number(process.env.TIMEOUT || Infinity), // seconds per task
  grace: Number(process.env.GRACE || 5), // seconds for tasks that still run at the end
  databases: shards.length > 0 ? shards : undefined,
});
