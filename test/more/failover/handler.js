// The handler of worker.js in this test.  A task takes 50 ms, and writes a line
// at its beginning and at its end.  The clock is that of Python's
// time.monotonic().  Date.now() can be 1 ms early, so that tasks would seem to
// overlap.
'use strict';
const fs = require('fs');
const { setTimeout: sleep } = require('timers/promises');

const note = (what, task) => fs.appendFileSync(process.env.FAILOVER_LOG,
  `${what} ${task.id} ${task.attempt} ${task.group} ${Number(process.hrtime.bigint()) / 1e9}\n`);

exports.handle = async (task) => {
  note('begin', task);
  await sleep(50);
  note('end', task);
  return 'done';
};
