// Time, in seconds.
'use strict';
const { performance } = require('perf_hooks');
const { setTimeout: sleep } = require('timers/promises');

const LONGEST = 2 ** 31 - 1; // greatest number of milliseconds for a timer

function milliseconds(seconds) {
  return Math.min(seconds * 1000, LONGEST);
}

// The time of a monotonic clock, which changes of the system's time do not
// affect.
function now() {
  return performance.now() / 1000;
}

// Resolves after that many seconds, or as soon as the signal is aborted.
function pause(seconds, signal) {
  return sleep(milliseconds(seconds), undefined, { signal }).catch(() => {});
}

module.exports = { now, pause, milliseconds };
