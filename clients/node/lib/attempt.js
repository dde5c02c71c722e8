// An attempt to run a task, and the calls for it.
'use strict';
const { now } = require('./clock');
const {
  Dead, Retry, Stopped, TimedOut, archived, explain,
} = require('./errors');
const { fetch } = require('./producer');
const { Progress } = require('./progress');
const { Task } = require('./task');
const { toJson, fromJson } = require('./values');

class Attempt {
  // claim is JSON without payload, headers and progress, which are separate JSON texts.
  constructor(shard, {
    claim: text, payload, headers, progress = null, too_long: tooLong = false, problem,
  }) {
    const claim = JSON.parse(text);
    this.shard = shard;
    this.id = claim.id;
    this.number = claim.attempt;
    this.begun = Infinity; // start of the work, by now()
    this.ended = Infinity; // end of the work, or of the wait for it
    this.called = false; // whether its handler was called
    this.completed = false; // in a transaction of the handler
    this.handedBack = false; // the worker releases the task
    this.stopped = null; // why the work is wasted
    this.lost = false; // the server has reported that the lease is lost
    this.undecodable = null; // the error of its payload or headers
    if (tooLong) this.undecodable = unreadable('they have 256 MB of text');
    if (problem !== undefined) this.undecodable = unreadable(explain(problem));
    this.controller = new AbortController();
    this.signal = this.controller.signal;
    this.progress = new Progress(this.decode(progress, 'the progress'), {
      save: (json) => this.saveProgress(json), interval: shard.worker.lease / 3,
    });
    this.task = new Task(this, claim, this.decode(payload, 'the payload'),
      this.decode(headers, 'headers'));
  }

  toString() {
    return `task ${this.id}, attempt ${this.number}`;
  }

  // A description with the task's name, queue and group.
  describe() {
    const { name, queue, group } = this.task;
    return `${this} (${name === undefined ? '' : `${name}, `}queue ${queue}, group ${group})`;
  }

  // Fields for a structured log.
  fields() {
    const { name, queue, group } = this.task;
    return {
      id: this.id, task: name, queue, group, attempt: this.number, duration: this.took(),
    };
  }

  // Whether no attempt follows if this one fails.
  isLast(error) {
    return error instanceof Dead || this.task.attemptsLeft === 0;
  }

  // Decodes the JSON.  Keeps an error, which fails only this task.
  decode(json, what) {
    if (json === null) return null;
    try {
      return fromJson(json, what);
    } catch (error) {
      this.undecodable = error;
      return undefined;
    }
  }

  // Whether the attempt must run alone: a lease of the task has expired before,
  // perhaps since the task killed its process.
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

  // Called when the worker needs the slot, or stops.
  giveUp(reason) {
    this.stop(new Stopped(`${this}: ${reason}`));
  }

  timeOut(timeout) {
    this.stop(new TimedOut(timeout));
  }

  // Changes the progress for the handler.  Rejects if the work is wasted.
  async keep(change) {
    this.check();
    const value = await change(this.progress);
    this.check();
    return value;
  }

  async saveProgress(json) {
    const held = await this.call('set_progress($1::bigint, $2::int, $3::jsonb)',
      json === 'null' ? null : json);
    if (!held) this.lose();
  }

  // Saves the cursor before the attempt fails or is released.
  async saveRest() {
    if (this.lost) return;
    await this.progress.saveCursor().catch((error) => {
      this.shard.worker.log.warn(`${this}: its cursor cannot be saved: ${explain(error)}`);
    });
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
    // The call that renews all leases of the database would wait for the
    // transaction.
    this.shard.worker.heartbeat.drop(this);
  }

  // These functions end the attempt, and resolve to whether it still had the
  // lease.

  complete(json) {
    return this.call(`complete($1::bigint, $2::int, $3::jsonb,
      took => make_interval(secs => $4::float8))`, json, this.took());
  }

  // text is the error's text for the server.
  async fail(error, text = archived(error)) {
    await this.saveRest();
    const delay = error instanceof Retry && error.delay !== undefined ? error.delay : null;
    return this.call(`fail($1::bigint, $2::int, $3::text,
      retry_in => make_interval(secs => $4::float8), dead => $5::bool,
      took => make_interval(secs => $6::float8))`,
    text, delay, error instanceof Dead, this.took());
  }

  // Releases the task, or ends it if it is cancelled.
  async release() {
    await this.saveRest();
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

// Returns null if there is no result.  In a list of results, undefined becomes null.
function jsonOf(result) {
  return result === undefined ? null : toJson(result, 'the result', { holes: true });
}

module.exports = { Attempt, jsonOf };
