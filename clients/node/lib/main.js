// Workers that are started: within a program, or as one.
'use strict';
const { milliseconds, now } = require('./clock');
const { Worker } = require('./worker');

const PARTING = 1; // seconds for the program to end in, at least

// Starts a worker and returns it: ended is the promise of its end.
function work(queues, handlers, options) {
  const worker = new Worker(queues, handlers, options);
  worker.run();
  return worker;
}

// Works until SIGTERM or SIGINT; then the program ends with status 0.  If the worker cannot work
// it ends with status 1, and prints a line to stderr.  Resolves when the worker has ended.
//
// The program ends by itself, as soon as nothing keeps it: loggers flush what they have, and the
// connections that somebody closes then are closed properly.  What handlers have left running
// has the rest of the grace; then the process exits all the same.
function main(queues, handlers, options) {
  const worker = new Worker(queues, handlers, options);
  let stopped = Infinity; // since when it has been asked to end
  for (const signal of ['SIGTERM', 'SIGINT']) {
    process.on(signal, () => {
      stopped = Math.min(stopped, now());
      worker.stop();
    });
  }
  return worker.run().catch((error) => {
    console.error(`worker: ${error.message}`);
    process.exitCode = 1;
  }).then(() => {
    const rest = worker.grace - Math.max(0, now() - stopped);
    setTimeout(() => process.exit(), milliseconds(Math.max(PARTING, rest))).unref();
  });
}

module.exports = { work, main };
