// What handlers throw, what workers end with, and which errors pass with time.
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

// The handler has taken longer than its timeout.
class TimedOut extends Stopped {
  constructor(timeout) {
    super(`timed out after ${timeout} s`);
  }
}

// The worker cannot do its work: there is no such queue, for one.
class WorkerError extends Error {}

// A server that can never answer, and is asked again for some time all the same.
class Unavailable extends Error {}

// The worker has no handler for the task.
class NoHandler extends Error {}

for (const kind of [Dead, Retry, Stopped, TimedOut, WorkerError, Unavailable, NoHandler]) {
  Object.defineProperty(kind.prototype, 'name', { value: kind.name });
}

// Has the server said it?  Otherwise it is the connection's.
function isServers(error) {
  return typeof error.code === 'string' && typeof error.severity === 'string';
}

// May time or a new connection mend it?  So it is with a server that is down, busy or
// read-only, as a former primary is; not with what is wrong about the call itself, the
// privileges, the password or the database's name, or too large for PostgreSQL.
function isTransient(error) {
  return !isServers(error) || !/^(QF|0A|22|23|28|3D|3F|42|54)/.test(error.code);
}

// Has the server failed to print something, as its text exceeds a limit or its memory?
function isTooLarge(error) {
  return isServers(error) && /^(54|53200)/.test(error.code);
}

// Does it say that the server will never accept the connection, as both are set up?  There is no
// such database or role, or the password or the certificate is wrong.
function isHopeless(error) {
  if (isServers(error)) return /^(28|3D)/.test(error.code);
  return /^(SASL|The server does not support SSL)/.test(error.message)
    || /^ERR_TLS|CERT|SIGNATURE/.test(error.code);
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
  let text = error.message || (error.errors && error.errors.map(explain).join('; '))
    || error.code || String(error);
  if (isServers(error)) {
    if (error.code === '3F000') text = 'the database does not have the extension fairq';
    if (/^42(883|P01)/.test(error.code)) text += ': the extension fairq is older than this package';
  }
  return text.replace(/\s+/g, ' ').trim();
}

const DEEPEST = 10; // causes of causes that are told
const MOST = 10; // parts of an AggregateError that are told

// The texts of an error, of its causes, and of the parts of an AggregateError: the commonest
// error of fetch() says "fetch failed", and its cause says what failed.
function chained(error, textOfOne, between, depth = 0, told = new Set()) {
  let text = textOfOne(error);
  if (!isError(error) || told.has(error) || depth === DEEPEST) return text;
  told.add(error);
  const whole = (part) => chained(part, textOfOne, between, depth + 1, told);
  if (Array.isArray(error.errors) && error.errors.length > 0) {
    const parts = error.errors.slice(0, MOST).map(whole);
    if (error.errors.length > MOST) parts.push(`${error.errors.length - MOST} more`);
    text += between.parts(parts);
  }
  if (error.cause !== undefined && error.cause !== null) text += between.cause(whole(error.cause));
  return text;
}

const IN_A_LINE = {
  parts: (texts) => ` (${texts.join('; ')})`,
  cause: (text) => `, caused by ${text}`,
};

const IN_LINES = {
  parts: (texts) => texts.map((text) => `\npart: ${text}`).join('').replace(/\n/g, '\n  '),
  cause: (text) => `\ncaused by: ${text}`,
};

// What the server keeps of what a handler has thrown, which may be anything; it keeps no zero
// bytes.
function textOf(error) {
  return chained(error, textOfOne, IN_A_LINE).replace(/\0/g, '\\x00');
}

// The same for the log, with the stacks; without this package's part of them, which is the same
// for all.
function stackOf(error) {
  return chained(error, (one) => {
    const text = textOfOne(one);
    if (!isError(one) || typeof one.stack !== 'string') return text;
    const head = String(one);
    const stack = one.stack.startsWith(head) ? text + one.stack.slice(head.length) : one.stack;
    return stack.split('\n').filter((line) => !line.includes(__dirname)).join('\n');
  }, IN_LINES);
}

function textOfOne(error) {
  if (!isError(error)) return typeof error === 'object' ? inspect(error) : String(error);
  if (error instanceof Dead || error instanceof Retry || error instanceof NoHandler
    || error instanceof Stopped) return error.message;
  return error.message === '' && error.code ? `${error}: ${error.code}` : String(error);
}

function isError(value) {
  return value instanceof Error || types.isNativeError(value);
}

module.exports = {
  Dead, Retry, Stopped, TimedOut, WorkerError, Unavailable, NoHandler, isTransient, isHopeless,
  isTooLarge, isLost, isCancelled, isHeld, explain, textOf, stackOf,
};
