// Enqueueing and cancelling, in the caller's transaction.
//
// A client is any object with query(text, values), which resolves to rows or to an object that
// has rows.  All parameters are strings with casts, so that all drivers behave the same.  Each
// occurs once and in order, so that drivers with "?" can replace them.
'use strict';
const {
  toJson, text, number, seconds, time, groupOf, idOf, idsOf, flag, refuseUnknown,
} = require('./values');

// For each option, its argument in SQL, in which $ is the parameter, and the function that
// makes the parameter's text.
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
  batch: ['batch => $::bigint', idOf],
  after: ['after => $::bigint[]', idsOf],
  afterAny: ['after_any => $::bool', flag],
};

const BATCH = `
  SELECT fairq.enqueue_batch($1::text, groups, payloads,
      run_ats => CASE WHEN array_remove(run_ats, NULL) <> '{}' THEN run_ats END,
      priorities => priorities, dedup_keys => dedup_keys, costs => costs, headers => headers,
      expires_at => expires_at, batch => batch, after => predecessors, after_any => after_any) AS id
    FROM (SELECT array_agg(task ->> 'group' ORDER BY n) AS groups,
        array_agg(task -> 'payload' ORDER BY n) AS payloads,
        array_agg(coalesce((task ->> 'runAt')::timestamptz, clock_timestamp()
          + make_interval(secs => (task ->> 'delay')::float8)) ORDER BY n) AS run_ats,
        array_agg(coalesce((task ->> 'priority')::int, 0) ORDER BY n) AS priorities,
        array_agg(task ->> 'dedupKey' ORDER BY n) AS dedup_keys,
        array_agg(coalesce((task ->> 'cost')::real, 1) ORDER BY n) AS costs,
        array_agg(task -> 'headers' ORDER BY n) AS headers
      FROM jsonb_array_elements($2::text::jsonb) WITH ORDINALITY AS tasks(task, n)) AS columns,
      CAST(nullif($3::text, 'infinity') AS timestamptz) AS expires_at,
      CAST(nullif($4::text, '') AS bigint) AS batch,
      CAST(nullif($5::text, '') AS bigint[]) AS predecessors,
      CAST($6::text AS boolean) AS after_any`;
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
async function enqueue(client, ...task) {
  return (await add(client, 'enqueue', ARGUMENTS, task)).id;
}

// Does the same as enqueue, and resolves to the id and to whether the task was
// added.
async function enqueueOrFind(client, ...task) {
  return add(client, 'enqueue_or_find', ARGUMENTS, task, '* FROM ');
}

// Calls a function that adds a task and takes these arguments for the options; resolves to
// the function's row.  A worker adds a FROM at the end of the statement.
async function add(client, name, known, [queue, group, payload = {}, options = {}], columns = '') {
  const { emptyGroup: mayBeEmpty, ...rest } = options;
  refuseUnknown(rest, ['task', ...Object.keys(known)], name);
  const values = [text(queue, 'queue'), groupOf(group, 'group', { mayBeEmpty }),
    toJson(payload, 'the payload')];
  const parts = ['$1::text', '$2::text', '$3::text::jsonb'];
  for (const [option, value] of Object.entries(given(rest))) {
    const [sql, toText] = known[option];
    values.push(toText(value, option));
    parts.push(sql.replace('$', () => `$${values.length}::text`));
  }
  const [row] = await fetch(client, `SELECT ${columns}fairq.${name}(${parts.join(', ')}) AS id`, values);
  return { ...row, id: Number(row.id) };
}

// Adds all tasks or none in one call; resolves to their ids, in the same order.
// The options apply to all of them.
async function enqueueBatch(client, queue, tasks, options = {}) {
  refuseUnknown(options, ['expiresAt', 'batch', 'after', 'afterAny', 'emptyGroup'], 'enqueueBatch');
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
  const shared = given({ ...options, emptyGroup: undefined });
  const textOf = (name, otherwise) => (shared[name] === undefined ? otherwise
    : ARGUMENTS[name][1](shared[name], name));
  const values = [text(queue, 'queue'), `[${encoded.join()}]`, textOf('expiresAt', 'infinity'),
    textOf('batch', ''), textOf('after', ''), textOf('afterAny', 'false')];
  if (encoded.length === 0) return [];
  return (await fetch(client, BATCH, values)).map((row) => Number(row.id));
}

// Cancels a task, or asks a running one to stop.  Resolves to false if the task is finished or
// unknown.
async function cancel(client, id) {
  const rows = await fetch(client, 'SELECT fairq.cancel($1::text::bigint) AS there',
    [idOf(id, 'id')]);
  return rows[0].there;
}

module.exports = {
  ARGUMENTS, add, enqueue, enqueueOrFind, enqueueBatch, cancel, fetch,
};
