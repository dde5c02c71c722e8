// Arguments and options of a worker.
'use strict';
const { logOf } = require('./log');
const { seconds, text, refuseUnknown } = require('./values');
const { placesOf } = require('./places');

const OPTIONS = ['concurrency', 'lease', 'timeout', 'grace', 'poll', 'databases', 'giveUp', 'name', 'default',
  'log', 'hooks', 'schedules', 'alive'];

const HOOKS = {
  before: () => {}, after: () => {}, error: () => {}, lost: () => {}, around: (task, next) => next(),
};

function readOptions(options) {
  refuseUnknown(options, OPTIONS, 'a worker');
  const {
    concurrency = 4, lease = 60, timeout, grace = 5, poll, databases = {}, giveUp = 60, name, log = 'warn', hooks, alive,
  } = options;
  if (!Number.isInteger(concurrency) || concurrency < 1) {
    throw new TypeError(`concurrency must be at least 1, and is ${String(concurrency)}`);
  }
  atLeast(0, grace, 'grace');
  if (poll !== undefined) atLeast(0, poll, 'poll');
  atLeast(0, lease, 'lease');
  if (lease === 0) throw new TypeError('lease must be more than 0 seconds');
  checkTimeout(timeout, 'timeout');
  if (giveUp !== Infinity) atLeast(0, giveUp, 'giveUp');
  if (name !== undefined) text(name, 'name');
  if (alive !== undefined) text(alive, 'alive');
  const places = [databases].flat().map(placesOf);
  if (places.length === 0) throw new TypeError('databases must not be empty');
  return {
    concurrency, lease, timeout, grace, poll, databases: places, giveUp, name, alive, log: logOf(log), hooks: readHooks(hooks),
  };
}

function readHooks(hooks = {}) {
  refuseUnknown(hooks, Object.keys(HOOKS), 'hooks');
  for (const [name, hook] of Object.entries(hooks)) {
    if (typeof hook !== 'function') throw new TypeError(`the hook ${name} is not a function`);
  }
  return { ...HOOKS, ...hooks };
}

function atLeast(least, value, what) {
  seconds(value, what);
  if (value < least) throw new TypeError(`${what} must be at least ${least}, and is ${value}`);
}

// Infinity: none.
function checkTimeout(timeout, what) {
  if (timeout === undefined || timeout === Infinity) return;
  atLeast(0, timeout, what);
  if (timeout === 0) throw new TypeError(`${what} must be more than 0 seconds`);
}

function readQueues(queues) {
  const list = [queues].flat();
  if (list.length === 0) throw new TypeError('a worker needs a queue');
  for (const queue of list) text(queue, 'a queue');
  return list;
}

// The handlers by the names of their tasks, and the handler of all other tasks, if there is one.
// Each is a function, with a timeout if it has one of its own.
function readHandlers(handlers, rest) {
  if (typeof handlers === 'function') {
    if (rest !== undefined) throw new TypeError('a single handler leaves none for default');
    return [new Map(), { run: handlers }];
  }
  if (typeof handlers !== 'object' || handlers === null) {
    throw new TypeError(`handlers must be a function, or an object of functions, and are ${handlers}`);
  }
  const named = Object.entries(handlers);
  if (named.length === 0 && rest === undefined) throw new TypeError('a worker needs a handler');
  return [new Map(named.map(([name, handler]) => [name, readHandler(name, handler, handlers)])),
    rest === undefined ? undefined : readHandler('default', rest)];
}

function readHandler(name, handler, owner) {
  const { run, timeout, ...others } = typeof handler === 'object' && handler !== null
    ? handler : { run: handler };
  if (typeof run !== 'function') throw new TypeError(`the handler ${name} is not a function`);
  refuseUnknown(others, [], `the handler ${name}`);
  checkTimeout(timeout, `the timeout of the handler ${name}`);
  return { run: run.bind(run === handler ? owner : handler), timeout };
}

module.exports = { readOptions, readQueues, readHandlers };
