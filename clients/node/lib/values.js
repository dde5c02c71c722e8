// What callers give, as text for the server; what cannot be is refused before it is asked.
'use strict';

// JSON of the value.  JSON.stringify alone would write null for NaN and for what is undefined
// in an array, and leave functions out.  A property that is undefined is left out, as ever.
// holes: undefined in an array is null.
function toJson(value, what, { holes = false } = {}) {
  const refuse = (why) => { throw new TypeError(`${what} is no JSON: ${why}`); };
  function check(key, one) {
    const kind = typeof one;
    if (kind === 'function') refuse('it has a function');
    if (kind === 'symbol' || kind === 'bigint' || (kind === 'number' && !Number.isFinite(one))) {
      refuse(`it has the ${kind} ${String(one)}`);
    }
    if (one === undefined && !holes && Array.isArray(this)) refuse('an array has undefined');
    return one;
  }
  let json;
  try {
    json = JSON.stringify(value, check);
  } catch (error) {
    if (!/circular/.test(error.message)) throw error;
    refuse('it is in itself');
  }
  if (json === undefined) refuse('it is undefined');
  return json;
}

function text(value, what) {
  if (typeof value !== 'string') {
    throw new TypeError(`${what} must be a string, and is ${String(value)}`);
  }
  return value;
}

function number(value, what, of = '') {
  if (typeof value !== 'number' || !Number.isFinite(value)) {
    throw new TypeError(`${what} must be a number${of}, and is ${String(value)}`);
  }
  return String(value);
}

function seconds(value, what) {
  return number(value, what, ' of seconds');
}

// Of a Date, or of whatever else has toISOString(); or a text that PostgreSQL understands.
function time(value, what) {
  if (typeof value === 'string') return value;
  if (!value || typeof value.toISOString !== 'function' || Number.isNaN(value.valueOf())) {
    throw new TypeError(`${what} must be a Date, and is ${String(value)}`);
  }
  return value.toISOString();
}

function flag(value, what) {
  if (typeof value !== 'boolean') {
    throw new TypeError(`${what} must be true or false, and is ${String(value)}`);
  }
  return String(value);
}

// An option that nobody knows is a mistake, of which nothing else would be seen.
function refuseUnknown(options, known, what) {
  for (const name of Object.keys(options)) {
    if (!known.includes(name)) throw new TypeError(`${what} has no option "${name}"`);
  }
}

module.exports = { toJson, text, number, seconds, time, flag, refuseUnknown };
