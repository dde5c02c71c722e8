// A task that a worker has, and the calls for it.
'use strict';
const { now } = require('./clock');
const {
  Dead, Retry, Stopped, TimedOut, explain, textOf,
} = require('./errors');
const { fetch } = require('./producer');
const { Task } = require('./task');
const { toJson, fromJson } = require('./values');

class Attempt {
  // claim is JSON without the payload and the headers, which are separate JSON texts.
  constructor(shard, {
    claim: text, payload, headers, too_long: tooLong = false, problem,
  }) {
    const claim = JSON.parse(text);
    this.shard = shard;
    this.id = claim.id;
    this.number = claim.attempt;
    this.begun = Infinity; // the work, by now()
    this.ended = Infinity; // the work, or the wait for it
    this.completed = false; // in a transaction of the handler
    this.handedBack = false; // the worker does not do it
    this.stopped = null; // why the work is wasted
    this.lost = false; // the server has said so
    this.undecodable = null; // the error of its payload or headers
    if (tooLong) this.undecodable = unreadable('they have 256 MB of text');
    if (problem !== undefined) this.undecodable = unreadable(explain(problem));
    this.controller = new AbortController();
    this.signal = this.controller.signal;
    this.task = new Task(this, claim, this.decode(payload, 'the payload'),
      this.decode(headers, 'headers'));
  }

  toString() {
    return `task ${this.id}, attempt ${this.number}`;
  }

  // With the queue and the group.
  describe() {
    return `${this} (queue ${this.task.queue}, group ${this.task.group})`;
  }

  // Keeps the error, which fails only this task.
  decode(json, what) {
    if (json === null) return null;
    try {
      return fromJson(json, what);
    } catch (error) {
      this.undecodable = error;
      return undefined;
    }
  }

  // Whether it must run alone: a lease of the task has expired before, perhaps since the task
  // killed its process.
  isSuspect() {
    return this.task.lapses > 0;
  }

  // Asks the handler to stop.
  stop(stopped) {
    if (this.stopped !== null) return;
    this.stopped = stopped;
    this.controller.abort(this.stopped);
  }

  check() {
    if (this.stopped !== null) throw this.stopped;
  }

  lose() {
    this.lost = true;
    this.stop(new Stopped(`${this}: stopped: it was cancelled, its lease is lost, or it has run for`
      + ' the max_run_time of its queue'));
  }

  // The worker needs the slot, or stops.
  giveUp(reason) {
    this.stop(new Stopped(`${this}: ${reason}`));
  }

  timeOut(timeout) {
    this.stop(new TimedOut(timeout));
  }

  async setProgress(progress) {
    const json = progress === null ? null : toJson(progress, 'the progress');
    this.check();
    const held = await this.call('set_progress($1::bigint, $2::int, $3::jsonb)', json);
    if (!held) this.lose();
    this.check();
  }

  async completeBy(client, result) {
    const json = jsonOf(result);
    this.check();
    const [{ held }] = await fetch(client, `SELECT fairq.complete($1::text::bigint, $2::text::int,
      $3::text::jsonb, took => make_interval(secs => $4::text::float8)) AS held`,
    [`${this.id}`, `${this.number}`, json, `${now() - this.begun}`]);
    if (!held) this.lose();
    this.check();
    this.completed = true;
    // a heartbeat would wait for the transaction, and with it those of all other tasks
    this.shard.worker.heartbeat.drop(this);
  }

  // These end the attempt, and resolve to whether it still had the lease.

  complete(json) {
    return this.call(`complete($1::bigint, $2::int, $3::jsonb,
      took => make_interval(secs => $4::float8))`, json, this.took());
  }

  // text is the error's text for the server.
  fail(error, text = textOf(error)) {
    const delay = error instanceof Retry && error.delay !== undefined ? error.delay : null;
    return this.call(`fail($1::bigint, $2::int, $3::text,
      retry_in => make_interval(secs => $4::float8), dead => $5::bool,
      took => make_interval(secs => $6::float8))`,
    text, delay, error instanceof Dead, this.took());
  }

  // Releases the task, or ends it if it is cancelled.
  release() {
    return this.call('release($1::bigint, $2::int)');
  }

  took() {
    return this.begun === Infinity ? 0 : this.ended - this.begun;
  }

  async call(sql, ...values) {
    const [{ held }] = await this.shard.keeper.query(`SELECT fairq.${sql} AS held`,
      [this.id, this.number, ...values], { brief: true });
    return held;
  }
}

function unreadable(why) {
  return new TypeError(`the payload or headers cannot be read: ${why}`);
}

// null: there is no result.  In a list of results, undefined becomes null.
function jsonOf(result) {
  return result === undefined ? null : toJson(result, 'the result', { holes: true });
}

module.exports = { Attempt, jsonOf };
