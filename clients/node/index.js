// A client for fairq, the fair task queue in PostgreSQL: see README.md.
//
//     await fairq.enqueue(client, 'mail', 'bob', { to: 'x@example.com' }, { task: 'send' });
//
//     fairq.main('mail', { send: async ({ to }) => { ... } });
'use strict';
const { enqueue, enqueueBatch, cancel } = require('./lib/producer');
const { Dead, Retry, Stopped, WorkerError } = require('./lib/errors');
const { Worker } = require('./lib/worker');
const { work, main } = require('./lib/main');

// By this form an ES module finds the names, too.
module.exports = {
  enqueue,
  enqueueBatch,
  cancel,
  work,
  main,
  Worker,
  Dead,
  Retry,
  Stopped,
  WorkerError,
};
