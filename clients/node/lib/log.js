// The log of a worker: a line for each event, and its fields.
//
// A logger such as pino, which has fatal() and child(), gets the fields and the line; any other
// one gets the line.
'use strict';
const { text } = require('./values');

const LEVELS = ['error', 'warn', 'info']; // levels of stderr: each includes the previous ones

// Returns the log for a worker's option: a logger, or a level of stderr.
function logOf(target) {
  if (typeof target === 'string') return onStderr(target);
  if (!target || typeof target.warn !== 'function' || typeof target.error !== 'function') {
    throw new TypeError('log must have warn() and error()');
  }
  const isStructured = typeof target.fatal === 'function' && typeof target.child === 'function';
  return new Log(LEVELS.filter((level) => typeof target[level] === 'function'), (level, line, fields) => {
    if (isStructured) target[level](fields, line);
    else target[level](line);
  });
}

function onStderr(level) {
  if (!LEVELS.includes(text(level, 'log'))) {
    throw new TypeError(`log must be ${LEVELS.join(', ')} or a logger, and is ${level}`);
  }
  return new Log(LEVELS.slice(0, LEVELS.indexOf(level) + 1), (one, line) => console.error(`${one}: ${line}`));
}

class Log {
  #levels;

  #write;

  constructor(levels, write) {
    this.#levels = levels;
    this.#write = write;
  }

  has(level) {
    return this.#levels.includes(level);
  }

  at(level, line, fields = {}) {
    if (this.has(level)) this.#write(level, line, fields);
  }

  info(line, fields) {
    this.at('info', line, fields);
  }

  warn(line, fields) {
    this.at('warn', line, fields);
  }

  error(line, fields) {
    this.at('error', line, fields);
  }
}

module.exports = { logOf };
