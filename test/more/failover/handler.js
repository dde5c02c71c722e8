// The work of worker.js here: 50 ms, and a line for its beginning and its end.
'use strict';
const fs = require('fs');
const { setTimeout: sleep } = require('timers/promises');

const note = (what, task) => fs.appendFileSync(process.env.FAILOVER_LOG,
  `${what} ${task.id} ${task.attempt} ${task.group_key} ${Date.now() / 1000}\n`);

exports.handle = async (task) => {
  note('begin', task);
  await sleep(50);
  note('end', task);
  return 'done';
};
