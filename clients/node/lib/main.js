// Workers that are started: within a program, or as one.
'use strict';
const { Worker } = require('./worker');

// Starts a worker and returns it: ended is the promise of its end.
function work(queues, handlers, options) {
  const worker = new Worker(queues, handlers, options);
  worker.run();
  return worker;
}

// Works until SIGTERM or SIGINT, and ends the process: with status 0; or with status 1 and a
// line on stderr if it cannot work.  What handlers have left running ends with it.
function main(queues, handlers, options) {
  const worker = new Worker(queues, handlers, options);
  for (const signal of ['SIGTERM', 'SIGINT']) process.on(signal, () => worker.stop());
  worker.run().then(
    () => process.exit(0),
    (error) => {
      console.error(`worker: ${error.message}`);
      process.exit(1);
    },
  );
}

module.exports = { work, main };
