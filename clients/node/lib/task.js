// The task that a handler gets.
'use strict';

class Task {
  #attempt;

  // claim is the row that pop has returned; payload and headers are decoded.
  constructor(attempt, claim, payload, headers) {
    this.#attempt = attempt;
    this.id = claim.id;
    this.attempt = claim.attempt;
    this.attemptsLeft = claim.attempts_left;
    this.lapses = claim.lapses;
    this.queue = claim.queue;
    this.group = claim.group_key;
    this.payload = payload;
    this.headers = headers || {};
    this.name = typeof this.headers.task === 'string' ? this.headers.task : undefined;
    this.priority = claim.priority;
    this.batch = claim.batch ?? undefined;
    this.enqueuedAt = new Date(claim.enqueued_at);
  }

  // Aborted when the work is wasted: the task was cancelled, its lease is lost, or its
  // timeout, its max_run_time or the grace period is over.
  get signal() {
    return this.#attempt.signal;
  }

  // The progress that this or an earlier attempt set last; null: none.  If there are steps or a
  // cursor, it is an object whose property "fairq" has them.
  get progress() {
    return this.#attempt.progress.value;
  }

  // Sets the progress, for fairq.tasks and later attempts.  Keeps the steps and the cursor.
  async setProgress(progress) {
    await this.#attempt.keep((kept) => kept.set(progress));
  }

  // Calls run() and saves its result as JSON.  Resolves to the result as
  // decoded from that JSON.  If an earlier attempt has saved a result of that
  // name, resolves to that result without a call of run().
  async step(name, run) {
    return this.#attempt.keep((kept) => kept.step(name, run));
  }

  // The last value of checkpoint() in this or an earlier attempt; undefined: there is none.
  get cursor() {
    return this.#attempt.progress.cursor;
  }

  // Records how far the work has got, for the cursor of a later attempt.  Saves the cursor
  // once per heartbeat, so call it often.  If the attempt fails or is released, the worker
  // saves the last cursor.
  async checkpoint(cursor) {
    await this.#attempt.keep((kept) => kept.checkpoint(cursor));
  }

  // Completes the task with its result in a transaction of the handler, together with the changes
  // of the work.  If the transaction rolls back, the handler must throw.
  async complete(client, result) {
    await this.#attempt.completeBy(client, result);
  }
}

module.exports = { Task };
