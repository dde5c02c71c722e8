// What handlers throw, what workers end with, and which errors time may mend.
'use strict';
const { inspect, types } = require('util');
const { seconds } = require('./values');

// To be thrown by a handler: no retry would mend it, the task has failed for good.
class Dead extends Error {}

// To be thrown by a handler: the task is to be retried in so many seconds, or by the
// queue's backoff.
class Retry extends Error {
  constructor(delay, message, options) {
    const text = delay === undefined ? 'retry' : `retry in ${seconds(delay, 'delay')} s`;
    super(message === undefined ? text : message, options);
    this.delay = delay;
  }
}

// The task was cancelled, its lease is lost, or the worker is to end: what is still done for
// it is in vain.
class Stopped extends Error {}

// The worker cannot do its work: there is no such queue, for one.
class WorkerError extends Error {}

// The worker has no handler for the task.
class NoHandler extends Error {}

for (const kind of [Dead, Retry, Stopped, WorkerError, NoHandler]) {
  Object.defineProperty(kind.prototype, 'name', { value: kind.name });
}

// Has the server said it?  Otherwise it is the connection's.
function isServers(error) {
  return typeof error.code === 'string' && typeof error.severity === 'string';
}

// May time or a new connection mend it?  So it is with a server that is down, busy or
// read-only, as a former primary is; not with what is wrong about the call itself, the
// privileges, the password or the database's name.
function isTransient(error) {
  return !isServers(error) || !/^(QF|0A|22|23|28|3D|3F|42)/.test(error.code);
}

// Is the connection of no use afterwards?
function isLost(error) {
  return !isServers(error) || /^(08|25006|57P)/.test(error.code);
}

// The statement was cancelled: by the end of the worker, or by a statement_timeout.
function isCancelled(error) {
  return isServers(error) && error.code === '57014';
}

// Another transaction has what the statement needs; or somebody has cancelled it.
function isHeld(error) {
  return isCancelled(error) || (isServers(error) && error.code === '55P03');
}

// One line about an error of the server or the connection.
function explain(error) {
  let text = error.message || error.code || String(error);
  if (isServers(error)) {
    if (error.code === '3F000') text = 'the database does not have the extension fairq';
    if (/^42(883|P01)/.test(error.code)) text += ': the extension fairq is older than this package';
  }
  return text.replace(/\s+/g, ' ').trim();
}

// What the server is to keep of what a handler has thrown, which may be anything; it keeps no
// zero bytes.
function textOf(error) {
  let text = isError(error) || typeof error !== 'object' ? String(error) : inspect(error);
  if (error instanceof Dead || error instanceof Retry || error instanceof NoHandler) {
    text = error.message;
  } else if (isError(error) && error.message === '' && error.code) {
    text += `: ${error.code}`; // as that of several addresses, of which none answers
  }
  return text.replace(/\0/g, '\\x00');
}

function isError(value) {
  return value instanceof Error || types.isNativeError(value);
}

module.exports = {
  Dead, Retry, Stopped, WorkerError, NoHandler, isTransient, isLost, isCancelled, isHeld, explain,
  textOf,
};
