// The handler of the workers in this test.  A task takes 5 ms, 8 s or a minute.
// The handler logs a line if more tasks run than CONCURRENCY allows.
'use strict';
const { setTimeout: sleep } = require('timers/promises');
let running = 0;

exports.handle = async (task) => {
  running++;
  if (running > Number(process.env.CONCURRENCY)) console.log('too many tasks at a time');
  await sleep({ slow: 8000, long: 60000 }[task.payload] || 5);
  running--;
};
