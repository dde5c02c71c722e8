// The task that a handler gets.
'use strict';

class Task {
  #attempt;

  // claim is what pop has returned, payload and headers are decoded.
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
    this.enqueuedAt = new Date(claim.enqueued_at);
  }

  // Is aborted when the work is wasted: the task was cancelled, its lease is lost, its timeout,
  // the queue's max_run_time, or the grace is over.
  get signal() {
    return this.#attempt.signal;
  }

  // Sets the column progress of fairq.tasks.
  async setProgress(progress) {
    await this.#attempt.setProgress(progress);
  }

  // Completes the task with its result in a transaction of the handler, together with the changes
  // of the work.  If that rolls back, the handler must throw.
  async complete(client, result) {
    await this.#attempt.completeBy(client, result);
  }
}

module.exports = { Task };
