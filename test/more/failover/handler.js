// The work of worker.js here: 50 ms, and a line for its beginning and its end, by the clock
// that Python calls monotonic: Date.now() is up to 1 ms early, and by that tasks overlap
// that did not.
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
