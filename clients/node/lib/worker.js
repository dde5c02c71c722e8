// A worker: takes tasks of queues, and runs their handlers.
//
// It has three connections per database.  One pops and sleeps in fairq.wait, one ends tasks, and
// the thread of heartbeat.js renews leases with the third.  A queue may be spread over several
// databases, its shards.  Shard.takeSlots divides the free slots among them.
'use strict';
const { randomUUID } = require('crypto');
const events = require('events');
const os = require('os');
const { setImmediate: breathe } = require('timers/promises');
const { jsonOf } = require('./attempt');
const { now, pause, milliseconds } = require('./clock');
const {
  Dead, NoHandler, Stopped, TimedOut, WorkerError, explain, isTransient, stackOf, textOf,
} = require('./errors');
const { Heartbeat } = require('./heartbeat');
const { pathOf } = require('./packages');
const { keepAlive } = require('./presence');
const { keepSchedules, readSchedules } = require('./schedule');
const { readHandlers, readOptions, readQueues } = require('./settings');
const { Shard } = require('./shard');
const { version } = require('../package.json');

const PARTING = 0.5; // seconds that handlers have to end after the abort of their signal
const PATIENCE = 4; // more seconds at the worker's end for a server that does not answer

// Seconds for which a task that must run alone waits, at most, until the server has the
// outcomes of others.  The rows of those other tasks may be locked, so the wait has a
// limit.
const ALONE = 10;

const ENDING = 'the worker stops';

class Worker {
  #stop = new AbortController();

  #over = new AbortController();

  constructor(queues, handlers, options = {}) {
    this.pg = pathOf('pg', 'a worker needs node-postgres, the package "pg"');
    Object.assign(this, readOptions(options));
    this.queues = readQueues(queues);
    [this.handlers, this.default] = readHandlers(handlers, options.default);
    this.schedules = readSchedules(options.schedules || {}, this.queues[0]);
    this.name = this.name || `${os.hostname()}:${process.pid}`;
    this.id = randomUUID(); // known only to the worker and the server
    this.stopping = this.#stop.signal;
    events.setMaxListeners(0, this.stopping); // each shard adds a listener
    this.running = new Set(); // attempts that have not ended
    this.working = new Set(); // attempts whose handlers run
    this.deaf = new Set(); // those attempts whose handlers ignore their timeout
    this.suspect = null; // the attempt that has to run alone
    this.careful = false; // the last pop had such an attempt; the next may have one
    this.shards = [];
    this.waiting = new Set(); // callbacks to call when one of these sets changes
    this.ended = null; // the promise of the worker's end, after its start
    this.toldOfPooler = false;
    this.toldOfStart = !this.log.has('info');
  }

  // ---- from start to end

  // Works until stop(); rejects, with a WorkerError, if the worker cannot work.
  run() {
    if (this.ended !== null) throw new Error('a worker can be started only once');
    this.ended = this.live();
    return this.ended;
  }

  // Ends the worker.  Running tasks have the grace period to end; then the worker releases
  // the others.
  stop() {
    this.#stop.abort();
    this.changed();
    return this.ended;
  }

  status() {
    const { name, queues, concurrency } = this;
    const tasks = [...this.working].map((attempt) => attempt.task);
    return {
      name, queues: [...queues], concurrency, running: tasks.length, stopping: this.stopping.aborted, tasks,
    };
  }

  async live() {
    this.heartbeat = new Heartbeat(this);
    this.shards = this.databases.map((places, i) => new Shard(this, places, i));
    const popping = this.shards.map((shard) => shard.popTasks());
    if (this.schedules.length > 0) keepSchedules(this, this.shards[0].keeper);
    if (this.alive !== undefined) keepAlive(this, this.#over.signal);
    const stopped = new Promise((resolve) => this.stopping.addEventListener('abort', resolve));
    const broken = this.heartbeat.broken.then((error) => { throw error; });
    const exhausted = new Promise((resolve, reject) => { this.exhaust = reject; });
    let problem = null;
    try {
      await Promise.race([Promise.all(popping), stopped, broken, exhausted]);
    } catch (error) {
      problem = error;
    }
    this.stop();
    await this.end(popping);
    this.#over.abort();
    if (problem !== null) throw new WorkerError(explain(problem), { cause: problem });
  }

  async end(popping) {
    const limit = new AbortController();
    const ending = Promise.all(this.shards.map((shard, i) => this.endShard(shard, popping[i])));
    // a shard may not answer
    await Promise.race([ending, pause(this.grace + PATIENCE, limit.signal)]);
    limit.abort();
    for (const shard of this.shards) shard.close();
    await this.heartbeat.end();
  }

  // Waits for the shard's tasks to end, and then releases those that have not
  // ended.
  async endShard(shard, popping) {
    await shard.endPop(popping);
    await this.untilIdle(shard, this.grace);
    for (const attempt of shard.attempts()) attempt.giveUp(ENDING);
    await this.untilIdle(shard, PARTING);
    // Tasks that have ended are not released, since a server that was down must
    // receive their ends.
    const ends = (attempt) => attempt.ended < Infinity;
    await Promise.all(shard.attempts().filter((attempt) => !ends(attempt))
      .map((attempt) => this.handBack(attempt)));
    while (shard.attempts().some(ends)) await this.change(PATIENCE);
    await shard.unregister();
  }

  async untilIdle(shard, seconds) {
    const end = now() + seconds;
    while (shard.attempts().length > 0 && now() < end) await this.change(end - now());
  }

  // ---- slots

  // An attempt whose work ended before "late" takes no slot, since its shard has not answered.
  freeSlots(late) {
    if (this.suspect !== null) return 0;
    const popping = this.shards.filter((shard) => shard.answers());
    const asked = popping.reduce((sum, shard) => sum + shard.slots, 0);
    const { size } = new Set([...this.working,
      ...[...this.running].filter((attempt) => attempt.ended > late)]);
    const free = this.concurrency - size - asked;
    return this.careful ? Math.min(free, size + asked > this.deaf.size ? 0 : 1) : free;
  }

  changed() {
    for (const wake of this.waiting) wake();
  }

  // Resolves after a change, or after the given number of seconds.
  change(seconds) {
    return new Promise((resolve) => {
      const wake = () => {
        clearTimeout(timer);
        this.waiting.delete(wake);
        resolve();
      };
      const timer = setTimeout(wake, milliseconds(seconds));
      this.waiting.add(wake);
    });
  }

  // Logs the start, after the first pop.
  tellOfStart({ extension, server }) {
    if (this.toldOfStart) return;
    this.toldOfStart = true;
    const { name, queues, concurrency } = this;
    this.log.info(`fairq ${version}: worker ${name} takes tasks of ${queues.join(', ')}, ${concurrency} at a time;`
      + ` extension ${extension}, PostgreSQL ${server}`, {
      worker: name, queues, concurrency, client: version, extension, server,
    });
  }

  tellOfPooler() {
    if (this.toldOfPooler) return;
    this.toldOfPooler = true;
    this.log.warn('the connection goes through a pooler, so the worker looks for tasks every second;'
      + ' poll sets another interval, and poll: 0 waits');
  }

  // ---- tasks

  // Adds a task that a shard has popped, and renews its lease from now on.
  take(attempt) {
    for (const other of attempt.shard.attempts()) {
      if (other.id === attempt.id) other.lose(); // its lease had expired
    }
    this.running.add(attempt);
    this.heartbeat.keep(attempt);
  }

  // Begins each attempt in its own turn of the event loop.  So between two attempts that
  // compute, the worker can handle the ends of attempts and its own end.
  //
  // A task whose lease has expired may have killed its process, and other tasks with it.  So the
  // worker runs one such task at a time, and no other task meanwhile.  It releases the others of
  // this kind.  Then it takes one task at a time, until a pop returns none of this kind.
  async begin(attempts) {
    this.careful = attempts.some((attempt) => attempt.isSuspect());
    for (const attempt of attempts) {
      await breathe();
      if (!attempt.isSuspect()) {
        this.work(attempt);
      } else if (this.suspect === null) {
        this.suspect = attempt;
        this.work(attempt);
      } else {
        attempt.ended = now();
        this.handBack(attempt).then(() => this.forget(attempt));
      }
    }
  }

  async handBack(attempt) {
    attempt.handedBack = true;
    this.report(attempt, 'released');
    await attempt.release().catch((error) => this.log.error(`${attempt}: ${explain(error)}`));
  }

  forget(attempt) {
    this.running.delete(attempt);
    if (this.suspect === attempt) this.suspect = null;
    this.heartbeat.drop(attempt);
    this.changed();
  }

  // Whether the suspect can run alone: no task runs, no outcome is left that the server may
  // still accept, and no pop runs.
  isAlone(attempt) {
    const late = now() - ALONE;
    return [...this.working].every((other) => this.deaf.has(other))
      && [...this.running].every((other) => other === attempt || other.ended < late)
      && this.shards.every((shard) => shard.slots === 0);
  }

  // Never rejects.
  async work(attempt) {
    try {
      let json = null;
      try {
        const result = await this.handle(attempt);
        if (!attempt.completed) json = jsonOf(result);
      } catch (error) {
        await this.fail(attempt, error);
        return;
      }
      await this.complete(attempt, json);
    } catch (error) {
      this.log.error(`${attempt} could not be finished; its lease will expire: ${explain(error)}`);
    } finally {
      this.forget(attempt);
    }
  }

  async handle(attempt) {
    // there is a free slot, unless a shard has answered late
    const room = () => (attempt === this.suspect ? this.isAlone(attempt)
      : this.working.size < this.concurrency);
    const limit = setTimeout(() => this.tellOfWait(attempt), milliseconds(this.lease));
    while (!room() && !this.stopping.aborted && attempt.stopped === null) await this.change(0.5);
    clearTimeout(limit);
    if (this.stopping.aborted) attempt.giveUp(ENDING);
    attempt.begun = now();
    this.working.add(attempt); // before any await, since other attempts also look for a free slot
    try {
      attempt.check();
      return await this.withHooks(attempt, async () => {
        if (attempt.undecodable !== null) throw attempt.undecodable;
        const { call, timeout = this.timeout } = this.callOf(attempt.task);
        return this.within(timeout, attempt, () => this.hooks.around(attempt.task, async () => call()));
      });
    } finally {
      if (!attempt.called) this.working.delete(attempt);
      attempt.ended = now();
      this.changed();
    }
  }

  tellOfWait(attempt) {
    if (attempt !== this.suspect) return;
    this.log.warn(`${attempt.describe()}: its lease has expired before, so it waits for all other tasks of the worker;`
      + ' if one hangs, set a timeout', attempt.fields());
  }

  // Calls the hook "before", and one of "after", "error" and "lost".
  async withHooks(attempt, run) {
    await this.hook('before', attempt);
    try {
      const result = await run();
      await this.hook(attempt.lost ? 'lost' : 'after', attempt, result);
      return result;
    } catch (error) {
      const isLost = attempt.stopped !== null && !(error instanceof TimedOut);
      await this.hook(isLost ? 'lost' : 'error', attempt, error);
      throw error;
    }
  }

  // Calls a hook, and only logs its error.
  async hook(name, attempt, value) {
    try {
      await this.hooks[name](attempt.task, value);
    } catch (error) {
      this.log.error(`${attempt.describe()}: the hook "${name}" failed: ${stackOf(error)}`,
        { ...attempt.fields(), hook: name, err: error });
    }
  }

  // The call of the handler, and its timeout in seconds.
  callOf(task) {
    const { payload, name } = task;
    const handler = this.handlers.get(name);
    if (handler === undefined) {
      const { default: rest } = this;
      if (rest !== undefined) return { call: () => rest.run(task), timeout: rest.timeout };
      throw new NoHandler(name === undefined
        ? `no handler for tasks of queue ${task.queue}` : `no handler for task ${name}`);
    }
    if (typeof payload !== 'object' || payload === null) {
      throw new TypeError(`the payload of task ${name} must be an object or an array`);
    }
    return { call: () => handler.run(payload, task), timeout: handler.timeout };
  }

  // The handler's return value.  Rejects after the timeout, whether or not the handler ends then.
  // Nothing can end a handler that ignores its signal, so the handler keeps its slot.
  async within(timeout, attempt, call) {
    const limited = timeout !== undefined && timeout !== Infinity;
    attempt.called = true;
    if (limited) this.heartbeat.limit(attempt, timeout); // before the call, which may compute forever
    const result = (async () => call())();
    const returned = () => {
      this.working.delete(attempt);
      if (this.deaf.delete(attempt)) {
        this.log.warn(`${attempt.describe()}: its handler has ended; its slot is free again`);
      }
      this.changed();
    };
    result.then(returned, returned);
    if (!limited) return result;
    let timer;
    const late = new Promise((resolve, reject) => {
      timer = setTimeout(() => {
        // rejects before the signal, which may make the handler reject
        reject(new TimedOut(timeout));
        attempt.timeOut(timeout);
        // renews the lease, now without the time limit
        if (!attempt.completed) this.heartbeat.keep(attempt);
        setTimeout(() => this.loseSlot(attempt), 1000 * PARTING).unref();
      }, milliseconds(timeout));
    });
    try {
      return await Promise.race([result, late]);
    } finally {
      clearTimeout(timer);
    }
  }

  // Called after the handler has had some time to end after its signal.
  loseSlot(attempt) {
    if (!this.working.has(attempt) || this.stopping.aborted) return;
    this.deaf.add(attempt);
    const left = this.concurrency - this.deaf.size;
    this.log.error(`${attempt.describe()}: timed out, and its handler still runs;`
      + ` until it ends, ${left} of ${this.concurrency} slots are left`);
    if (left > 0) return;
    setTimeout(() => {
      if (this.deaf.size < this.concurrency) return;
      this.exhaust(new Error('no slot is left: all handlers have timed out and still run'));
    }, milliseconds(this.grace)).unref();
  }

  async complete(attempt, json) {
    // if a transaction that completed the task was rolled back, its lease will
    // expire
    if (attempt.handedBack) return;
    try {
      if (attempt.completed || await attempt.complete(json)) this.report(attempt, 'completed');
      else this.tellOfRefusal(attempt, 'complete');
    } catch (error) {
      if (isTransient(error)) throw error;
      await this.fail(attempt, error); // a result that PostgreSQL cannot keep
    }
  }

  async fail(attempt, error) {
    if (attempt.handedBack) return;
    if (attempt.lost) {
      // If fail() has an effect, the task has run for the queue's max_run_time,
      // and the attempt counts.
      if (await attempt.fail(attempt.stopped)) this.reportFailure(attempt, attempt.stopped);
      else this.report(attempt, 'stopped');
      return;
    }
    if (!(error instanceof TimedOut) && (attempt.stopped !== null || error instanceof Stopped)) {
      this.report(attempt, 'released');
      await attempt.release();
      return;
    }
    this.reportFailure(attempt, error);
    const held = await attempt.fail(error).catch((refused) => {
      if (isTransient(refused)) throw refused;
      // the server cannot store the error's text, or a Retry's delay is out of range
      return attempt.fail(error instanceof Dead ? error : refused, textOf(refused));
    });
    if (!held) this.tellOfRefusal(attempt, 'fail');
  }

  // Logs a retry as a warning, and the failure of the last attempt as an error.
  reportFailure(attempt, error) {
    if (attempt.isLast(error)) this.report(attempt, 'failed', { level: 'error', error });
    else this.report(attempt, 'retried', { level: 'warn', error });
  }

  // Logs the end of an attempt.
  report(attempt, outcome, { level = 'info', error } = {}) {
    if (!this.log.has(level)) return;
    const fields = attempt.fields();
    const line = `${attempt.describe()}: ${outcome} after ${fields.duration.toFixed(3)} s`;
    if (error === undefined) this.log.at(level, line, { ...fields, outcome });
    else this.log.at(level, `${line}: ${stackOf(error)}`, { ...fields, outcome, err: error });
  }

  // Logs that the server refuses to end an attempt, because then the work may have been
  // done twice.
  tellOfRefusal(attempt, call) {
    this.log.warn(`${attempt.describe()}: the server refused its ${call}: it was cancelled, its`
      + ' lease was lost, or an earlier call had ended it');
  }
}

// Node.js 18.0 lacks asyncDispose.
if (Symbol.asyncDispose !== undefined) {
  Worker.prototype[Symbol.asyncDispose] = async function dispose() {
    await this.stop();
  };
}

module.exports = { Worker };
