// Values as text for the server, and back.  The functions throw before the call if a value
// cannot be sent.
'use strict';

// The value as JSON.  Throws if the value contains NaN, a function, or
// undefined in an array, since JSON.stringify alone would write null for these,
// or omit them.  Omits a property that is undefined.  With holes, undefined in
// an array becomes null.
function toJson(value, what, { holes = false } = {}) {
  const refuse = (why) => { throw new TypeError(`${what} cannot be encoded as JSON: ${why}`); };
  function check(key, one) {
    const kind = typeof one;
    if (kind === 'function') refuse('it contains a function');
    if (kind === 'symbol' || kind === 'bigint' || (kind === 'number' && !Number.isFinite(one))) {
      refuse(`it contains the ${kind} ${String(one)}`);
    }
    if (one === undefined && !holes && Array.isArray(this)) refuse('an array contains undefined');
    return one;
  }
  let json;
  try {
    json = JSON.stringify(value, check);
  } catch (error) {
    if (/circular/.test(error.message)) refuse('it contains itself');
    if (error instanceof RangeError) refuse('it is nested too deeply');
    throw error;
  }
  if (json === undefined) refuse('it is undefined');
  return json;
}

// PostgreSQL prints all digits of a number, so a number beyond JavaScript's range has at least
// this many digits in a row.
const OUT_OF_RANGE = /\d{309}/;

// The value of a JSON text.  Throws if JavaScript cannot represent the value, since
// JSON.parse turns a number that is out of range into Infinity, which no handler expects.
function fromJson(json, what) {
  const refuse = (why) => { throw new TypeError(`${what} cannot be decoded: ${why}`); };
  let value;
  try {
    value = JSON.parse(json);
  } catch (error) {
    refuse(error.message);
  }
  if (OUT_OF_RANGE.test(json)) {
    // without recursion, because the value may be nested too deeply for it
    for (const left = [value]; left.length > 0;) {
      const one = left.pop();
      if (one === Infinity || one === -Infinity) {
        refuse('it has a number that is out of the range of JavaScript');
      }
      if (typeof one === 'object' && one !== null) {
        for (const part of Object.values(one)) left.push(part);
      }
    }
  }
  return value;
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

// A time of day with a time zone: Z, an offset, or a name that PostgreSQL knows.
const ZONED = /[T\s]\d\d(:?\d\d(:?\d\d(\.\d+)?)?)?\s*(Z|[+-]\d\d?(:?\d\d){0,2}|(?!(AM|PM|BC|AD)$)[A-Z][\w/+-]*)$/i;

// A Date, or another object with toISOString(), or a text that PostgreSQL reads.  Refuses a text
// without a time zone, since it would mean another time in each session.
function time(value, what) {
  if (typeof value === 'string') {
    if (!/^-?infinity$/i.test(value) && !ZONED.test(value)) {
      throw new TypeError(`${what} must have a time zone, such as Z or +02:00, and is ${value}`);
    }
    return value;
  }
  if (!value || typeof value.toISOString !== 'function' || Number.isNaN(value.valueOf())) {
    throw new TypeError(`${what} must be a Date, and is ${String(value)}`);
  }
  return value.toISOString();
}

// A group.  An empty group is most likely a mistake: all such tasks would share the turns and
// the limits of one tenant.
function groupOf(value, what, { mayBeEmpty = false } = {}) {
  if (text(value, what) === '' && !mayBeEmpty) {
    throw new TypeError(`${what} must not be empty; if it is meant, give the option emptyGroup`);
  }
  return value;
}

// The id of a task or a batch.
function idOf(value, what) {
  const id = Number(value);
  if (!Number.isSafeInteger(id)) throw new TypeError(`${what} must be an integer, and is ${String(value)}`);
  return String(id);
}

// The ids of tasks, or the id of one.
function idsOf(value, what) {
  return `{${[value].flat().map((one) => idOf(one, what)).join()}}`;
}

function flag(value, what) {
  if (typeof value !== 'boolean') {
    throw new TypeError(`${what} must be true or false, and is ${String(value)}`);
  }
  return String(value);
}

// Refuses an unknown option, which is a mistake and would have no effect.
function refuseUnknown(options, known, what) {
  for (const name of Object.keys(options)) {
    if (!known.includes(name)) throw new TypeError(`${what} has no option "${name}"`);
  }
}

module.exports = {
  toJson, fromJson, text, number, seconds, time, groupOf, idOf, idsOf, flag, refuseUnknown,
};
