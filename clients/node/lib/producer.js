// Enqueueing and cancelling, in the caller's transaction.
//
// A client is any object with query(text, values), which resolves to rows or to an object that
// has rows.  All parameters are strings with casts, so that all drivers behave the same.  Each
// occurs once and in order, so that drivers with "?" can replace them.
'use strict';
const {
  toJson, text, number, seconds, time, groupOf, flag, refuseUnknown,
} = require('./values');

// The argument of each option in SQL, where $ is the parameter, and what makes its text.
const ARGUMENTS = {
  delay: ['run_at => clock_timestamp() + make_interval(secs => $::float8)', seconds],
  runAt: ['run_at => $::timestamptz', time],
  expiresAt: ['expires_at => $::timestamptz', time],
  priority: ['priority => $::int', number],
  dedupKey: ['dedup_key => $', text],
  dedupUntil: ['dedup_until => $', text],
  dedupFor: ['dedup_for => make_interval(secs => $::float8)', seconds],
  replace: ['replace => $::bool', flag],
  maxAttempts: ['max_attempts => $::int', number],
  cost: ['cost => $::real', number],
  headers: ['headers => $::jsonb', (value, what) => toJson(value, what)],
};

const BATCH = `
  SELECT fairq.enqueue_batch($1::text, groups, payloads, run_ats => run_ats,
      priorities => priorities, dedup_keys => dedup_keys, costs => costs, headers => headers,
      expires_at => expires_at) AS id
    FROM (SELECT array_agg(task ->> 'group' ORDER BY n) AS groups,
        array_agg(task -> 'payload' ORDER BY n) AS payloads,
        array_agg(coalesce((task ->> 'runAt')::timestamptz, clock_timestamp()
          + make_interval(secs => (task ->> 'delay')::float8)) ORDER BY n) AS run_ats,
        array_agg(coalesce((task ->> 'priority')::int, 0) ORDER BY n) AS priorities,
        array_agg(task ->> 'dedupKey' ORDER BY n) AS dedup_keys,
        array_agg(coalesce((task ->> 'cost')::real, 1) ORDER BY n) AS costs,
        array_agg(task -> 'headers' ORDER BY n) AS headers
      FROM jsonb_array_elements($2::text::jsonb) WITH ORDINALITY AS tasks(task, n)) AS batch,
      CAST(nullif($3::text, 'infinity') AS timestamptz) AS expires_at`;
const OF_BATCH = ['delay', 'runAt', 'priority', 'dedupKey', 'cost', 'headers'];

async function fetch(client, sql, values) {
  if (!client || typeof client.query !== 'function') {
    throw new TypeError('a client must have query(text, values)');
  }
  const result = await client.query(sql, values);
  return Array.isArray(result) ? result : result.rows;
}

// The options that were given, by their names in ARGUMENTS.
function given({ task, ...options }) {
  const whole = Object.entries(options).filter(([, value]) => value !== undefined && value !== null);
  const named = Object.fromEntries(whole);
  if (named.headers !== undefined && !isObject(named.headers)) {
    throw new TypeError(`headers must be an object, and is ${String(named.headers)}`);
  }
  if (task !== undefined && task !== null) {
    named.headers = { ...named.headers, task: text(task, 'task') };
  }
  if (named.delay !== undefined && named.runAt !== undefined) {
    throw new TypeError('delay and runAt cannot both be given');
  }
  return named;
}

function isObject(value) {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

// Adds a task for the group, in the client's transaction; resolves to its id.
async function enqueue(client, queue, group, payload = {}, options = {}) {
  const { emptyGroup: mayBeEmpty, ...rest } = options;
  refuseUnknown(rest, ['task', ...Object.keys(ARGUMENTS)], 'enqueue');
  const values = [text(queue, 'queue'), groupOf(group, 'group', { mayBeEmpty }),
    toJson(payload, 'the payload')];
  const parts = ['$1::text', '$2::text', '$3::text::jsonb'];
  for (const [name, value] of Object.entries(given(rest))) {
    const [sql, toText] = ARGUMENTS[name];
    values.push(toText(value, name));
    parts.push(sql.replace('$', () => `$${values.length}::text`));
  }
  const rows = await fetch(client, `SELECT fairq.enqueue(${parts.join(', ')}) AS id`, values);
  return Number(rows[0].id);
}

// Adds all tasks or none in one call; resolves to their ids, in the same order.
// The options apply to all of them.
async function enqueueBatch(client, queue, tasks, options = {}) {
  refuseUnknown(options, ['expiresAt', 'emptyGroup'], 'enqueueBatch');
  const { emptyGroup: mayBeEmpty } = options;
  if (!tasks || typeof tasks[Symbol.iterator] !== 'function') {
    throw new TypeError(`tasks must be an array, and is ${String(tasks)}`);
  }
  const encoded = Array.from(tasks, (task, i) => {
    const what = `task ${i} of the batch`;
    if (!isObject(task)) throw new TypeError(`${what} must be an object, and is ${String(task)}`);
    const { group, payload = {}, ...own } = task;
    refuseUnknown(own, ['task', ...OF_BATCH], what);
    const fields = { group: groupOf(group, `the group of ${what}`, { mayBeEmpty }), payload };
    for (const [name, value] of Object.entries(given(own))) {
      const toText = ARGUMENTS[name][1];
      fields[name] = name === 'headers' ? value : toText(value, `${name} of ${what}`);
    }
    return toJson(fields, what);
  });
  const expiresAt = options.expiresAt ?? null;
  const values = [text(queue, 'queue'), `[${encoded.join()}]`,
    expiresAt === null ? 'infinity' : time(expiresAt, 'expiresAt')];
  if (encoded.length === 0) return [];
  return (await fetch(client, BATCH, values)).map((row) => Number(row.id));
}

// Cancels a task; a running one is asked to stop.  Resolves to false if it is finished, or
// unknown.
async function cancel(client, id) {
  const rows = await fetch(client, 'SELECT fairq.cancel($1::text::bigint) AS there',
    [number(Number(id), 'id')]);
  return rows[0].there;
}

module.exports = { enqueue, enqueueBatch, cancel, fetch };
