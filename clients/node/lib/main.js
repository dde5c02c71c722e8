// Starts workers, within a program or as a program.
'use strict';
const { milliseconds, now } = require('./clock');
const { Worker } = require('./worker');

const PARTING = 1; // least number of seconds that the program has to end

// Starts a worker and returns it.  The worker's promise "ended" resolves when the
// worker has ended.
function work(queues, handlers, options) {
  const worker = new Worker(queues, handlers, options);
  worker.run();
  return worker;
}

// Works until SIGTERM or SIGINT; then the program ends with status 0.  If the worker cannot
// work, the program prints a line to stderr, and ends with status 1.  Resolves when the
// worker has ended.
//
// The program ends by itself as soon as its event loop is empty, so loggers flush their
// buffers and connections are closed properly.  If handlers have left something running,
// the process exits after the rest of the grace period.
function main(queues, handlers, options) {
  const worker = new Worker(queues, handlers, options);
  let stopped = Infinity; // time of the first signal
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
