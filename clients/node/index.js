// A client for fairq, the fair task queue in PostgreSQL: see README.md.
//
//     await fairq.enqueue(client, 'mail', 'bob', { to: 'x@example.com' }, { task: 'send' });
//
//     fairq.main('mail', { send: async ({ to }) => { ... } });
'use strict';
const {
  createBatch, inBatch, closeBatch, cancelBatch,
} = require('./lib/batch');
const {
  ensureQueues, find, redrive, redriveTask, reschedule,
} = require('./lib/manage');
const { enqueue, enqueueOrFind, enqueueBatch, cancel } = require('./lib/producer');
const { Dead, Retry, Stopped, WorkerError } = require('./lib/errors');
const { Worker } = require('./lib/worker');
const { work, main } = require('./lib/main');

// ES modules find the names only in this form.
module.exports = {
  enqueue,
  enqueueOrFind,
  enqueueBatch,
  cancel,
  createBatch,
  inBatch,
  closeBatch,
  cancelBatch,
  find,
  reschedule,
  redrive,
  redriveTask,
  ensureQueues,
  work,
  main,
  Worker,
  Dead,
  Retry,
  Stopped,
  WorkerError,
};
