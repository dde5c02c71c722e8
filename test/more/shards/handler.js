// The work of the workers here: 5 ms, 3 s or a minute; it reports too many concurrent tasks.
'use strict';
const { setTimeout: sleep } = require('timers/promises');
let running = 0;

exports.handle = async (task) => {
  running++;
  if (running > Number(process.env.CONCURRENCY)) console.log('too many tasks at a time');
  await sleep({ slow: 8000, long: 60000 }[task.payload] || 5);
  running--;
};
