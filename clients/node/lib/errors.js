// Errors of handlers and workers, and which errors are temporary.
'use strict';
const { inspect, types } = require('util');
const { seconds } = require('./values');

// A handler throws this if no retry can help.  The task then fails for good.
class Dead extends Error {}

// A handler throws this for a retry after a delay in seconds, or with the queue's backoff.
class Retry extends Error {
  constructor(delay, message, options) {
    const text = delay === undefined ? 'retry' : `retry in ${seconds(delay, 'delay')} s`;
    super(message === undefined ? text : message, options);
    this.delay = delay;
  }
}

// The task was cancelled, its lease is lost, or the worker stops: further work is wasted.
class Stopped extends Error {}

// The handler has taken longer than its timeout.
class TimedOut extends Stopped {
  constructor(timeout) {
    super(`timed out after ${timeout} s`);
  }
}

// The worker cannot work, for example because a queue does not exist.
class WorkerError extends Error {}

// The server refuses connections; the worker still retries for some time.
class Unavailable extends Error {}

// The worker has no handler for the task.
class NoHandler extends Error {}

for (const kind of [Dead, Retry, Stopped, TimedOut, WorkerError, Unavailable, NoHandler]) {
  Object.defineProperty(kind.prototype, 'name', { value: kind.name });
}

// Whether the error comes from the server.  Otherwise it comes from the connection.
function isServers(error) {
  return typeof error.code === 'string' && typeof error.severity === 'string';
}

// Whether time or a new connection may fix the error: the server is down, busy, or read-only
// like a former primary.  False if the call itself is wrong or too large, or if the
// privilege, the password or the database's name is wrong.
function isTransient(error) {
  return !isServers(error) || !/^(QF|0A|22|23|28|3D|3F|42|54)/.test(error.code);
}

// Whether the server failed to print a text that exceeds a limit or its memory.
function isTooLarge(error) {
  return isServers(error) && /^(54|53200)/.test(error.code);
}

// Whether the server refuses the connection: the database or role does not exist, or the password
// or the certificate is wrong.
function isHopeless(error) {
  if (isServers(error)) return /^(28|3D)/.test(error.code);
  return /^(SASL|The server does not support SSL)/.test(error.message)
    || /^ERR_TLS|CERT|SIGNATURE/.test(error.code);
}

// Whether the connection is unusable after the error.
function isLost(error) {
  return !isServers(error) || /^(08|25006|57P)/.test(error.code);
}

// Whether the worker's end or a statement_timeout has cancelled the statement.
function isCancelled(error) {
  return isServers(error) && error.code === '57014';
}

// Whether another transaction has a lock that the statement needs, or the statement was
// cancelled.
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

const DEEPEST = 10; // limit for the depth of causes
const MOST = 10; // limit for the parts of an AggregateError

// The texts of an error, of its causes, and of the parts of an AggregateError.  The most common
// error of fetch() is "fetch failed", and only its cause names the problem.
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
  cause: (text) => `; caused by ${text}`,
};

const IN_LINES = {
  parts: (texts) => texts.map((text) => `\npart: ${text}`).join('').replace(/\n/g, '\n  '),
  cause: (text) => `\ncaused by ${text}`,
};

// The text of anything that a handler throws, in one line.
function textOf(error) {
  return chained(error, textOfOne, IN_A_LINE);
}

const LONGEST = 10000; // characters of an error in the archive

// The text for the archive: the line and then the stacks, without zero bytes, which the server
// cannot store.
function archived(error) {
  const stack = stackOf(error);
  const head = textOfOne(error);
  const stacks = stack.startsWith(`${head}\n`) && /\n +at /.test(stack) ? stack.slice(head.length) : '';
  return Array.from(textOf(error) + stacks).slice(0, LONGEST).join('').replace(/\0/g, '\\x00');
}

// Whether only the error's text matters, because the code that throws it is not at
// fault.
function isPlain(error) {
  return [Dead, Retry, NoHandler, Stopped].some((kind) => error instanceof kind);
}

// Whether a line of a stack belongs to the handler's code or to a package that it uses.
function isOfHandler(line) {
  return !line.includes(__dirname) && !/^ +at .*(\(?node:|\(<anonymous>\)$|\(index \d+\)$)/.test(line);
}

// The texts with the stacks, without the lines of this package and of JavaScript itself.
function stackOf(error) {
  return chained(error, stackOfOne, IN_LINES);
}

function stackOfOne(error) {
  const text = textOfOne(error);
  if (!isError(error) || isPlain(error)) return text;
  let stack;
  try {
    stack = error.stack; // the first access calls the error's own methods
  } catch (problem) {
    return text;
  }
  if (typeof stack !== 'string') return text;
  const head = stringOf(error);
  return (stack.startsWith(head) ? text + stack.slice(head.length) : stack)
    .split('\n').filter(isOfHandler).join('\n');
}

function textOfOne(error) {
  if (!isError(error)) return typeof error === 'object' ? inspect(error) : String(error);
  if (isPlain(error)) return error.message;
  const text = stringOf(error);
  return error.code && text === error.name ? `${text}: ${error.code}` : text;
}

// The error as a string, even if a getter of its class throws.
function stringOf(error) {
  try {
    return String(error);
  } catch (problem) {
    return `an error without a text, since ${problem}`;
  }
}

function isError(value) {
  return value instanceof Error || types.isNativeError(value);
}

module.exports = {
  Dead, Retry, Stopped, TimedOut, WorkerError, Unavailable, NoHandler, isTransient, isHopeless,
  isTooLarge, isLost, isCancelled, isHeld, explain, textOf, archived, stackOf,
};
