// The work of the test tasks for examples/worker.js; see handler.py.
'use strict';
const fs = require('fs');
const { setTimeout: sleep } = require('timers/promises');

function record(event, task) {
  fs.appendFileSync(process.env.EXAMPLES_LOG, JSON.stringify({
    event, time: Date.now() / 1000, worker: process.env.PGAPPNAME, id: task.id,
    attempt: task.attempt, group: task.group, payload: task.payload }) + '\n');
}

exports.handle = async (task) => {
  record('begin', task);
  const { seconds = 0, first_seconds = seconds, fails = 0 } = task.payload;
  await sleep((task.attempt === 1 ? first_seconds : seconds) * 1000, null, { signal: task.signal });
  if (task.attempt <= fails) {
    throw new Error(`it broke: \u00fc "quoted"\nline 2 of '${task.group}'`);
  }
  record('end', task);
  return { done: task.group };
};
