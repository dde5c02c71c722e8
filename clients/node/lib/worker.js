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
  Dead, NoHandler, Retry, Stopped, WorkerError, explain, isTransient, textOf,
} = require('./errors');
const { Heartbeat } = require('./heartbeat');
const { pathOfPg } = require('./pg');
const { readHandlers, readOptions, readQueues } = require('./settings');
const { Shard } = require('./shard');

const PARTING = 0.5; // seconds that handlers have to heed their signal at the end
const PATIENCE = 4; // seconds more that a server has at the end that is down, or mute

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
    this.running = new Set(); // attempts
    this.working = 0; // those whose work has begun, and has not ended
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
    let problem = null;
    try {
      await Promise.race([Promise.all(popping), stopped, broken]);
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
    for (const attempt of shard.attempts()) attempt.stop(ENDING);
    await this.untilIdle(shard, PARTING);
    // of those that have ended, a server that was away is to hear
    const ends = (attempt) => attempt.ended < Infinity;
    await Promise.all(shard.attempts().filter((attempt) => !ends(attempt)).map(async (attempt) => {
      attempt.handedBack = true;
      await attempt.release().catch((error) => this.log.error(`${attempt}: ${explain(error)}`));
    }));
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
    const popping = this.shards.filter((shard) => shard.answers());
    const taken = [...this.running].filter((attempt) => attempt.ended > late).length;
    return this.concurrency - taken - popping.reduce((sum, shard) => sum + shard.slots, 0);
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

  // Has their work begin.  The event loop goes round between them: so one that computes does
  // not keep the end of another from the server, nor that of the worker from all.
  async begin(attempts) {
    for (const attempt of attempts) {
      await breathe();
      this.work(attempt);
    }
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
      this.running.delete(attempt);
      this.heartbeat.drop(attempt);
      this.changed();
    }
  }

  async handle(attempt) {
    // there is room, unless a shard has answered late
    while (this.working >= this.concurrency && !this.stopping.aborted) await this.change(0.5);
    if (this.stopping.aborted) attempt.stop(ENDING);
    this.working++;
    attempt.begun = now();
    try {
      attempt.check();
      return await this.call(attempt.task);
    } finally {
      attempt.ended = now();
      this.working--;
      this.changed();
    }
  }

  call(task) {
    const handler = this.handlers.get(task.name);
    if (handler === undefined) {
      const { default: rest } = this;
      if (rest !== undefined) return rest(task);
      throw new NoHandler(task.name === undefined
        ? `no handler for tasks of queue ${task.queue}` : `no handler for task ${task.name}`);
    }
    if (typeof task.payload !== 'object' || task.payload === null) {
      throw new TypeError(`the payload of task ${task.name} must be an object or an array`);
    }
    return handler(task.payload, task);
  }

  async complete(attempt, json) {
    // one that is completed by a transaction that was rolled back is left to its lease
    if (attempt.handedBack || attempt.completed) return;
    try {
      if (!await attempt.complete(json)) this.tellOfLoss(attempt);
    } catch (error) {
      if (isTransient(error)) throw error;
      await this.fail(attempt, error); // a result that PostgreSQL cannot keep
    }
  }

  async fail(attempt, error) {
    if (attempt.handedBack) return;
    if (attempt.stopped !== null || error instanceof Stopped) {
      await attempt.release();
      return;
    }
    this.tellOfFailure(attempt, error);
    const held = await attempt.fail(error).catch((refused) => {
      if (isTransient(refused)) throw refused;
      // it cannot keep the error's text, or a Retry's delay is out of range
      return attempt.fail(error instanceof Dead ? error : refused, textOf(refused));
    });
    if (!held) this.tellOfLoss(attempt);
  }

  tellOfFailure(attempt, error) {
    const { log } = this;
    if (error instanceof Retry) {
      if (log.info) log.info(`${attempt}: ${textOf(error)}`);
    } else if (error instanceof Dead || error instanceof NoHandler) {
      log.error(`${attempt}: ${textOf(error)}`);
    } else {
      log.error(`${attempt}: ${(error && error.stack) || textOf(error)}`);
    }
  }

  tellOfLoss(attempt) {
    this.log.warn(`${attempt}, has no lease any more: it was cancelled or lost, or has ended by a`
      + ' call whose answer was lost');
  }
}

module.exports = { Worker };
