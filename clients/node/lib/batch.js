// Batches: a task that waits until many others have ended, in the caller's transaction.
'use strict';
const { ARGUMENTS, add, fetch } = require('./producer');
const { flag, idOf } = require('./values');

const { priority, maxAttempts, headers, batch } = ARGUMENTS;

// The options of the task that waits.
const BATCH_ARGUMENTS = {
  priority, maxAttempts, headers, batch, onSuccess: ['on_success => $::bool', flag],
};

// Creates a batch and the task that waits for it; resolves to their common id.
async function createBatch(client, ...task) {
  return (await add(client, 'create_batch', BATCH_ARGUMENTS, task)).id;
}

// Creates a batch, calls addTasks with its id, and closes it; resolves to the id.
async function inBatch(client, { queue, group, payload, ...options }, addTasks) {
  const id = await createBatch(client, queue, group, payload, options);
  await addTasks(id);
  await closeBatch(client, id);
  return id;
}

// Closes a batch, so that no more tasks can be added.  Resolves to false if the batch is
// closed, finished or unknown.
async function closeBatch(client, id) {
  const rows = await fetch(client, 'SELECT fairq.close_batch($1::text::bigint) AS closed',
    [idOf(id, 'id')]);
  return rows[0].closed;
}

// Closes the batch and cancels its tasks that are not running; resolves to their number.
async function cancelBatch(client, id) {
  const rows = await fetch(client, 'SELECT fairq.cancel_batch($1::text::bigint) AS tasks',
    [idOf(id, 'id')]);
  return Number(rows[0].tasks);
}

module.exports = {
  createBatch, inBatch, closeBatch, cancelBatch,
};
