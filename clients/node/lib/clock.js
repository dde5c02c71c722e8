// Time, in seconds.
'use strict';
const { performance } = require('perf_hooks');
const { setTimeout: sleep } = require('timers/promises');

const LONGEST = 2 ** 31 - 1; // milliseconds that a timer can have

function milliseconds(seconds) {
  return Math.min(seconds * 1000, LONGEST);
}

// By a clock that is independent of changes of the system's time.
function now() {
  return performance.now() / 1000;
}

// Resolves after that many seconds, or as soon as the signal is aborted.
function pause(seconds, signal) {
  return sleep(milliseconds(seconds), undefined, { signal }).catch(() => {});
}

module.exports = { now, pause, milliseconds };
