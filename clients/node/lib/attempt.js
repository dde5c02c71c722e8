// A task in the hands of a worker, and the calls that are about it.
'use strict';
const { now } = require('./clock');
const { Dead, Retry, Stopped, textOf } = require('./errors');
const { fetch } = require('./producer');
const { Task } = require('./task');
const { toJson } = require('./values');

const LOST = 'it was cancelled, or its lease is lost';

class Attempt {
  constructor(shard, claim) {
    this.shard = shard;
    this.id = claim.id;
    this.number = claim.attempt;
    this.begun = Infinity; // the work, by now()
    this.ended = Infinity;
    this.completed = false; // in a transaction of the handler
    this.handedBack = false; // as the worker is to end
    this.stopped = null; // why the work is in vain
    this.controller = new AbortController();
    this.signal = this.controller.signal;
    this.task = new Task(this, claim);
  }

  toString() {
    return `task ${this.id}, attempt ${this.number}`;
  }

  // Tells the work that it is in vain.
  stop(reason) {
    if (this.stopped !== null) return;
    this.stopped = new Stopped(`${this}: ${reason}`);
    this.controller.abort(this.stopped);
  }

  check() {
    if (this.stopped !== null) throw this.stopped;
  }

  lose() {
    this.stop(LOST);
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

  // These end the attempt; each resolves to whether it still had the lease.

  complete(json) {
    return this.call(`complete($1::bigint, $2::int, $3::jsonb,
      took => make_interval(secs => $4::float8))`, json, this.took());
  }

  // text is what the server is to keep of the error.
  fail(error, text = textOf(error)) {
    const delay = error instanceof Retry && error.delay !== undefined ? error.delay : null;
    return this.call(`fail($1::bigint, $2::int, $3::text,
      retry_in => make_interval(secs => $4::float8), dead => $5::bool,
      took => make_interval(secs => $6::float8))`,
    text, delay, error instanceof Dead, this.took());
  }

  // Hands it back; ends it if it is cancelled.
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

// null: there is no result.  Of several promises those that have none are null.
function jsonOf(result) {
  return result === undefined ? null : toJson(result, 'the result', { holes: true });
}

module.exports = { Attempt, jsonOf };
