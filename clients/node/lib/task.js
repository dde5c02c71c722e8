// A task as its handler gets it.
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

  // Is aborted when the work is wasted: the task was cancelled, its lease is lost, it has
  // exceeded its timeout or max_run, or the worker ends and gives it no more time.
  get signal() {
    return this.#attempt.signal;
  }

  // Has fairq.tasks show how far the work is; null takes that away.
  async setProgress(progress) {
    await this.#attempt.setProgress(progress);
  }

  // Ends the task in a transaction of the handler, with its result: together with what the
  // work has changed in the database.  If that is rolled back, the handler is to throw.
  async complete(client, result) {
    await this.#attempt.completeBy(client, result);
  }
}

module.exports = { Task };
