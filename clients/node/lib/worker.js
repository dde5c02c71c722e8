// A worker: takes the tasks of queues, and has handlers do them.
//
// Per database it has two connections, one that pops and sleeps in fairq.wait and one that
// ends tasks, and a third one of the thread that keeps the leases.  A queue may be spread over
// several databases, its shards: then free slots go to them by what they have had per group,
// see Shard.takeSlots.
'use strict';
const events = require('events');
const os = require('os');
const { setImmediate: breathe } = require('timers/promises');
const { jsonOf } = require('./attempt');
const { now, pause, milliseconds } = require('./clock');
const {
  Dead, NoHandler, Retry, Stopped, TimedOut, WorkerError, explain, isTransient, stackOf, textOf,
} = require('./errors');
const { Heartbeat } = require('./heartbeat');
const { pathOfPg } = require('./pg');
const { readHandlers, readOptions, readQueues } = require('./settings');
const { Shard } = require('./shard');

const PARTING = 0.5; // seconds that handlers have to end in once their signal is aborted
const PATIENCE = 4; // seconds more that a server has at the end that is down, or mute

const SILENCE = 1; // seconds after which an outcome that the server has not heard is not waited for

const ENDING = 'the worker is to end';

class Worker {
  #stop = new AbortController();

  constructor(queues, handlers, options = {}) {
    this.pg = pathOfPg();
    Object.assign(this, readOptions(options));
    this.queues = readQueues(queues);
    [this.handlers, this.default] = readHandlers(handlers, options.default);
    this.name = this.name || `${os.hostname()}:${process.pid}`;
    this.stopping = this.#stop.signal;
    events.setMaxListeners(0, this.stopping); // each shard listens
    this.running = new Set(); // attempts that have not been ended
    this.working = new Set(); // attempts whose handlers run
    this.deaf = new Set(); // those of them that have timed out, and ignore it
    this.suspect = null; // the attempt that has to run with nothing beside it
    this.careful = false; // the last pop brought such a task, and the next may bring others
    this.shards = [];
    this.waiting = new Set(); // who is to be woken when one of these changes
    this.ended = null; // the promise of its end, once it has been started
    this.toldOfPooler = false;
  }

  // ---- from start to end

  // Works until stop(); rejects, with a WorkerError, if it cannot.
  run() {
    if (this.ended !== null) throw new Error('a worker can be started once only');
    this.ended = this.live();
    return this.ended;
  }

  // Has it end: what runs gets its grace, what has not ended by then is handed back.
  stop() {
    this.#stop.abort();
    this.changed();
    return this.ended;
  }

  async live() {
    this.heartbeat = new Heartbeat(this);
    this.shards = this.databases.map((places, i) => new Shard(this, places, i));
    const popping = this.shards.map((shard) => shard.popTasks());
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
    if (problem !== null) throw new WorkerError(explain(problem), { cause: problem });
  }

  async end(popping) {
    const limit = new AbortController();
    const ending = Promise.all(this.shards.map((shard, i) => this.endShard(shard, popping[i])));
    // a shard may be down, or mute
    await Promise.race([ending, pause(this.grace + PATIENCE, limit.signal)]);
    limit.abort();
    for (const shard of this.shards) shard.close();
    await this.heartbeat.end();
  }

  // Lets its tasks end, and hands back what does not.
  async endShard(shard, popping) {
    await shard.endPop(popping);
    await this.untilIdle(shard, this.grace);
    for (const attempt of shard.attempts()) attempt.giveUp(ENDING);
    await this.untilIdle(shard, PARTING);
    // of those that have ended, a server that was away is to hear
    const ends = (attempt) => attempt.ended < Infinity;
    await Promise.all(shard.attempts().filter((attempt) => !ends(attempt))
      .map((attempt) => this.handBack(attempt)));
    while (shard.attempts().some(ends)) await this.change(PATIENCE);
  }

  async untilIdle(shard, seconds) {
    const end = now() + seconds;
    while (shard.attempts().length > 0 && now() < end) await this.change(end - now());
  }

  // ---- slots

  // An attempt whose work ended before that time, and whose shard has not answered since,
  // keeps no others from running.
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

  // Resolves when something has changed, or after so long.
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

  tellOfPooler() {
    if (this.toldOfPooler) return;
    this.toldOfPooler = true;
    this.log.warn('the connection goes through a pooler, of which fairq.wait would occupy a'
      + ' connection, so this worker looks for tasks every second; say poll to have another'
      + ' interval, or 0 to wait');
  }

  // ---- tasks

  // Notes what a shard has popped, whose lease is kept from now on.
  take(attempt) {
    for (const other of attempt.shard.attempts()) {
      if (other.id === attempt.id) other.lose(); // its lease had run out
    }
    this.running.add(attempt);
    this.heartbeat.keep(attempt);
  }

  // Begins their work.  The event loop turns between them: so one that computes does not delay
  // the end of another, nor that of the worker.
  //
  // A task whose lease has lapsed may have killed its process, and with it the tasks beside it.
  // So this worker does one such task at a time, and nothing else meanwhile.  It hands back the
  // other ones that it has, and then takes one task at a time until a pop brings none of them.
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
    await attempt.release().catch((error) => this.log.error(`${attempt}: ${explain(error)}`));
  }

  forget(attempt) {
    this.running.delete(attempt);
    if (this.suspect === attempt) this.suspect = null;
    this.heartbeat.drop(attempt);
    this.changed();
  }

  // Is nothing beside the suspect: neither work, nor its outcome that the server may still hear,
  // nor a pop that may bring some?
  isAlone(attempt) {
    const late = now() - SILENCE;
    return [...this.working].every((other) => this.deaf.has(other))
      && [...this.running].every((other) => other === attempt || other.ended < late)
      && this.shards.every((shard) => shard.slots === 0);
  }

  // Does not reject.
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
      this.log.error(`${attempt}, is left to its lease: ${explain(error)}`);
    } finally {
      this.forget(attempt);
    }
  }

  async handle(attempt) {
    // there is room, unless a shard has answered late
    const room = () => (attempt === this.suspect ? this.isAlone(attempt)
      : this.working.size < this.concurrency);
    while (!room() && !this.stopping.aborted && attempt.stopped === null) await this.change(0.5);
    if (this.stopping.aborted) attempt.giveUp(ENDING);
    attempt.begun = now();
    try {
      attempt.check();
      if (attempt.undecodable !== null) throw attempt.undecodable;
      const { call, timeout = this.timeout } = this.callOf(attempt.task);
      return await this.within(timeout, attempt, call);
    } finally {
      attempt.ended = now();
      this.changed();
    }
  }

  // What does the task, and how many seconds it may take.
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

  // What the handler returns.  Rejects when the time is over, whether or not the handler ends
  // then: nothing can end one that ignores its signal, so it takes its slot with it.
  async within(timeout, attempt, call) {
    const limited = timeout !== undefined && timeout !== Infinity;
    this.working.add(attempt);
    if (limited) this.heartbeat.limit(attempt, timeout); // first, as the handler may compute for ever
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
        reject(new TimedOut(timeout)); // before the handler rejects because of its signal
        attempt.timeOut(timeout);
        if (!attempt.completed) this.heartbeat.keep(attempt); // without the limit
        setTimeout(() => this.loseSlot(attempt), 1000 * PARTING).unref();
      }, milliseconds(timeout));
    });
    try {
      return await Promise.race([result, late]);
    } finally {
      clearTimeout(timer);
    }
  }

  // The handler had some time to end in since it was told.
  loseSlot(attempt) {
    if (!this.working.has(attempt) || this.stopping.aborted) return;
    this.deaf.add(attempt);
    const left = this.concurrency - this.deaf.size;
    this.log.error(`${attempt.describe()}: timed out, and its handler still runs: its slot is`
      + ` out of use until it ends; ${left} of ${this.concurrency} slots are left`);
    if (left > 0) return;
    setTimeout(() => {
      if (this.deaf.size < this.concurrency) return;
      this.exhaust(new Error('no slot is left: all handlers have timed out and still run'));
    }, milliseconds(this.grace)).unref();
  }

  async complete(attempt, json) {
    // one that is completed by a transaction that was rolled back is left to its lease
    if (attempt.handedBack || attempt.completed) return;
    try {
      if (!await attempt.complete(json)) this.tellOfRefusal(attempt, 'complete');
    } catch (error) {
      if (isTransient(error)) throw error;
      await this.fail(attempt, error); // a result that PostgreSQL cannot keep
    }
  }

  async fail(attempt, error) {
    if (attempt.handedBack) return;
    if (attempt.lost) {
      // True: it has run for the queue's max_run, and the attempt is one of its max_attempts.
      if (await attempt.fail(attempt.stopped)) this.tellOfFailure(attempt, attempt.stopped);
      return;
    }
    if (!(error instanceof TimedOut) && (attempt.stopped !== null || error instanceof Stopped)) {
      await attempt.release();
      return;
    }
    this.tellOfFailure(attempt, error);
    const held = await attempt.fail(error).catch((refused) => {
      if (isTransient(refused)) throw refused;
      // it cannot keep the error's text, or a Retry's delay is out of range
      return attempt.fail(error instanceof Dead ? error : refused, textOf(refused));
    });
    if (!held) this.tellOfRefusal(attempt, 'fail');
  }

  tellOfFailure(attempt, error) {
    const { log } = this;
    if (error instanceof Retry) {
      if (log.info) log.info(`${attempt}: ${textOf(error)}`);
    } else if ([Dead, NoHandler, Stopped].some((kind) => error instanceof kind)) {
      log.error(`${attempt}: ${textOf(error)}`);
    } else {
      log.error(`${attempt}: ${stackOf(error)}`);
    }
  }

  // The work was done, maybe twice: that has to be seen.
  tellOfRefusal(attempt, call) {
    this.log.warn(`${attempt.describe()}: the server refused its ${call}: it was cancelled, its`
      + ' lease was lost, or an earlier call had ended it whose answer was lost');
  }
}

module.exports = { Worker };
