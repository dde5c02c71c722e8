// Finding and changing tasks, and the application's queues, in the caller's transaction.
'use strict';
const { fetch } = require('./producer');
const {
  flag, groupOf, idOf, number, seconds, text, time, refuseUnknown,
} = require('./values');

const interval = ['make_interval(secs => $::float8)', seconds];
const count = ['$::int', number];
const truth = ['$::bool', flag];

// The arguments of alter_queue, by the names of settings, like ARGUMENTS of
// producer.js.
const SETTINGS = {
  concurrency: count,
  maxRunning: count,
  lease: interval,
  maxAttempts: count,
  backoff: interval,
  backoffMax: interval,
  retain: interval,
  retainFailed: interval,
  notify: truth,
  blockLength: ['$::bigint', number],
  fairBy: ['$', text],
  rate: count,
  per: interval,
  burst: count,
  maxRate: count,
  shares: ['$::int[]', (list, what) => `{${Array.from(list, (one) => number(one, what)).join()}}`],
  inOrder: truth,
  maxRunTime: interval,
};

// Arguments of create_queue that alter_queue does not have.
const LASTING = { separator: ['$', text] };

const TARGET = { toQueue: ['$', text], toPriority: count, toGroup: ['$', (value, what) => groupOf(value, what)] };

const inSql = (name) => name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);

// Calls a function and resolves to its result.  "first" has a pair of cast and
// text for each unnamed argument.  The options that have values are the named
// arguments.
async function call(client, name, first, options, known) {
  refuseUnknown(options, Object.keys(known), name);
  const values = first.map(([, value]) => value);
  const parts = first.map(([cast], i) => `$${i + 1}::text${cast}`);
  for (const [option, value] of Object.entries(options)) {
    if (value !== undefined && value !== null) {
      const [sql, toText] = known[option];
      values.push(toText(value, option));
      parts.push(`${inSql(option)} => ${sql.replace('$', `$${values.length}::text`)}`);
    }
  }
  const rows = await fetch(client, `SELECT fairq.${inSql(name)}(${parts.join(', ')}) AS result`, values);
  return rows[0].result;
}

// Resolves to the id of the unfinished task that has the key; null: there is none.
async function find(client, queue, dedupKey) {
  const id = await call(client, 'find', [['', text(queue, 'queue')], ['', text(dedupKey, 'dedupKey')]], {}, {});
  return id === null ? null : Number(id);
}

// Moves a task that is not running to another time, or to now.  Resolves to false if the task is
// running, finished or unknown.
async function reschedule(client, id, runAt) {
  const first = [['::bigint', idOf(id, 'id')]];
  if (runAt !== undefined) first.push(['::timestamptz', time(runAt, 'runAt')]);
  return call(client, 'reschedule', first, {}, {});
}

// Enqueues the failed tasks of a queue again, the oldest first; resolves to their number.
async function redrive(client, queue, options = {}) {
  const known = { groupKey: ['$', text], maxTasks: count, ...TARGET };
  const { group, ...rest } = options;
  return Number(await call(client, 'redrive', [['', text(queue, 'queue')]], { ...rest, groupKey: group }, known));
}

// Enqueues one failed task again; resolves to false if the task has not failed.
async function redriveTask(client, id, options = {}) {
  return call(client, 'redrive', [['::bigint', idOf(id, 'id')]], options, TARGET);
}

// Creates missing queues, and gives all queues their settings.  0 removes a limit.  The
// separator of an existing queue must be the same, since it cannot be changed.
async function ensureQueues(client, queues) {
  for (const [queue, settings] of Object.entries(queues)) {
    refuseUnknown(settings, Object.keys({ ...SETTINGS, ...LASTING }), `the queue ${queue}`);
  }
  for (const [queue, { separator, ...settings }] of Object.entries(queues)) {
    const first = [['', text(queue, 'queue')]];
    await call(client, 'createQueue', first, { ifNotExists: true, separator }, { ifNotExists: truth, ...LASTING });
    await call(client, 'alterQueue', first, settings, SETTINGS);
    if (separator !== undefined && separator !== null) await checkSeparator(client, queue, separator);
  }
}

async function checkSeparator(client, queue, wanted) {
  const [{ separator }] = await fetch(client, 'SELECT separator FROM fairq.queues WHERE queue = $1::text', [queue]);
  if (separator !== wanted) {
    throw new Error(`the queue ${queue} has the separator ${separator}, which cannot be changed`);
  }
}

module.exports = {
  ensureQueues, find, redrive, redriveTask, reschedule,
};
