// A database that has a worker's queues, or some of their groups.
'use strict';
const { setMaxListeners } = require('events');
const { Attempt } = require('./attempt');
const { now, pause } = require('./clock');
const { Database } = require('./database');
const { isCancelled, isTooLarge, isTransient } = require('./errors');
const { extend } = require('./leases');
const { keepRegistered } = require('./presence');

const WAIT = 30; // seconds that fairq.wait sleeps at most
const MARGIN = 10; // additional seconds for the answer of fairq.wait
const SILENCE = 1; // seconds until the other shards stop waiting for a shard
const POLL = 1; // seconds between polls through a pooler

// Payload, headers and progress are fetched as text and decoded task by task.  The driver's parsers, which
// the program may have changed, would decode all of them or none.  The worker does not
// fetch a text of 256 MB, because V8 has no string of 512 MB, and node-postgres would end
// the process.
const TEXTS = `CASE WHEN octet_length(s.payload) < 1 << 28 THEN s.payload END AS payload,
    CASE WHEN octet_length(s.headers) < 1 << 28 THEN s.headers END AS headers,
    CASE WHEN octet_length(s.progress) < 1 << 28 THEN s.progress END AS progress,
    greatest(octet_length(s.payload), octet_length(s.headers), octet_length(s.progress))
      >= 1 << 28 AS too_long`;
const AS_TEXT = 'LATERAL (SELECT t.payload::text, t.headers::text, t.progress::text OFFSET 0) AS s';
const CLAIMS = `fairq.pop($1::text[], $2::int, lease => make_interval(secs => $3::float8),
      worker => $4::text) AS t,
    LATERAL (SELECT t.id, t.attempt, t.attempts_left, t.queue, t.group_key, t.priority,
      t.enqueued_at, t.lapses, t.batch) AS c`;
const POP = `SELECT to_json(c)::text AS claim, ${TEXTS} FROM ${CLAIMS}, ${AS_TEXT}`;

// These two statements together return the same columns.
const POP_CLAIMS = `SELECT to_json(c)::text AS claim, t.id FROM ${CLAIMS}`;
const READ = `SELECT ${TEXTS} FROM fairq.tasks AS t, ${AS_TEXT} WHERE t.id = $1::bigint`;
const VERSIONS = `SELECT fairq.version() AS extension,
  current_setting('server_version') AS server`;
const GROUPS = `SELECT sum(groups_active)::float8 AS groups FROM fairq.stats
  WHERE queue = ANY ($1::text[])`;

class Shard {
  constructor(worker, places, number) {
    const {
      pg, name, stopping, giveUp,
    } = worker;
    const options = {
      pg, name, stopping, giveUp, warn: (text) => worker.log.warn(text),
    };
    this.worker = worker;
    this.number = number; // this shard's index in the worker's shards
    this.popper = new Database(places, options); // for pop and fairq.wait
    // keeper is for calls that must not wait behind fairq.wait, and ends tasks
    // until the worker ends
    this.closing = new AbortController();
    setMaxListeners(0, this.closing.signal); // each retry adds a listener
    this.keeper = new Database(places, { ...options, stopping: this.closing.signal });
    this.leaving = new AbortController();
    // resolves once the worker's row in fairq.workers is removed
    this.registered = null;
    this.groups = 1; // number of active groups
    this.counted = -Infinity; // time of that count, by now()
    this.service = 0; // tasks taken, per group
    this.slots = 0; // slots of the current pop
    this.taking = -Infinity; // last time with tasks and free slots
    this.waiting = false; // popper sleeps in fairq.wait
  }

  attempts() {
    return [...this.worker.running].filter((attempt) => attempt.shard === this);
  }

  // The shards that have tasks, and have answered within a second.
  answering() {
    return this.worker.shards.filter((shard) => shard.answers());
  }

  answers() {
    return this.taking > now() - SILENCE;
  }

  // Whether ends of tasks have waited for the server since before "late".  If
  // the shard answers, the rows of these tasks may be locked.  Then the shard
  // is stuck only if there are as many such tasks as the worker has slots.
  isStuck(late) {
    const unreported = this.attempts().filter((attempt) => attempt.ended <= late).length;
    return unreported >= (this.keeper.answered > late ? this.worker.concurrency : 1);
  }

  // Stops an attempt that has lost its lease.
  lose({ id, number }) {
    for (const attempt of this.attempts()) {
      if (attempt.id === id && attempt.number === number) attempt.lose();
    }
  }

  async countGroups() {
    const { shards, queues } = this.worker;
    if (shards.length < 2 || now() - this.counted < 1) return;
    const [row] = await this.popper.query(GROUPS, [queues]);
    const groups = Number(row.groups) || 1;
    // the shard's lead is in tasks per group, so it changes with the number of
    // groups
    const least = Math.min(this.service, ...this.answering().map((s) => s.service));
    this.service = least + (this.service - least) * this.groups / groups;
    this.groups = groups;
    this.counted = now();
  }

  // Waits for a free slot.  Resolves to the number of slots for this shard.  A
  // free slot goes to the shard that has tasks and has had the fewest tasks per
  // group.  So the groups of all shards get equal shares.  The other shards do
  // not wait for a shard that does not answer within a second.  A stuck shard
  // gets no more slots.
  async takeSlots() {
    const { worker } = this;
    while (!worker.stopping.aborted) {
      const late = now() - SILENCE;
      if (!this.isStuck(late)) {
        const others = this.answering().filter((s) => s !== this);
        if (others.length > 0 && !this.answers()) {
          // A shard gets nothing extra for the time when it was idle.  The
          // random part prevents all workers from choosing this shard at once.
          this.service = Math.max(this.service,
            Math.min(...others.map((s) => s.service)) + Math.random() / this.groups);
        }
        this.taking = now();
        const free = worker.freeSlots(late);
        while (this.slots < free && this.isNext()) this.count(1);
        if (this.slots > 0) break;
      }
      await worker.change(0.5);
    }
    return this.slots;
  }

  isNext() {
    return this.answering().every((s) => this.service <= s.service);
  }

  count(slots) {
    this.slots += slots;
    this.service += slots / this.groups;
  }

  // Adds the tasks of a pop and frees the other slots.
  got(attempts) {
    this.count(attempts.length - this.slots);
    this.slots = 0;
    if (attempts.length === 0) this.taking = -Infinity;
    for (const attempt of attempts) this.worker.take(attempt);
    this.worker.changed();
  }

  // Takes and begins tasks until the worker stops; rejects if the worker cannot
  // work.
  async popTasks() {
    while (!this.worker.stopping.aborted) {
      let attempts = [];
      try {
        await this.countGroups();
        if (await this.takeSlots() === 0) return;
        attempts = await this.pop();
        if (this.registered === null) this.registered = keepRegistered(this, this.leaving.signal);
        if (!this.worker.toldOfStart) await this.announce();
      } catch (error) {
        if (isCancelled(error)) {
          // a statement_timeout, or the worker's end, has cancelled the
          // statement
        } else if (isTransient(error)) {
          this.got([]);
          // so countGroups() reconnects, while this shard has no slots
          this.counted = -Infinity;
          await pause(1, this.worker.stopping);
          continue;
        } else {
          throw error;
        }
      }
      this.got(attempts);
      if (attempts.length === 0) await this.sleep();
      else await this.worker.begin(attempts);
    }
  }

  async pop() {
    const { queues, lease, name } = this.worker;
    const asked = now();
    const values = [queues, this.slots, lease, name];
    const rows = await this.popper.query(POP, values, { once: true }).catch((error) => {
      if (!isTooLarge(error)) throw error;
      return this.popByParts(values);
    });
    const attempts = rows.map((row) => new Attempt(this, row));
    // A handler may have blocked this process since the pop leased the tasks.
    if (attempts.length > 0 && now() - asked > lease / 3) await this.confirm(attempts);
    return attempts;
  }

  // Reports the start; without an answer, the next pop tries again.
  async announce() {
    await this.popper.query(VERSIONS, [], { once: true })
      .then(([versions]) => this.worker.tellOfStart(versions), () => {});
  }

  // A few kB of jsonb may be a GB of text, for example a list of numbers like 1e100000.  The
  // server cannot print that, so the whole pop would fail.
  async popByParts(values) {
    const claims = await this.popper.query(POP_CLAIMS, values, { once: true });
    const rows = [];
    for (const { claim, id } of claims) {
      const texts = await this.popper.query(READ, [id], { once: true })
        .then(([row]) => row, (problem) => ({ payload: null, headers: null, problem }));
      rows.push({ claim, ...texts });
    }
    return rows;
  }

  // Renews the leases of attempts that have not begun, and stops those that
  // have lost theirs.
  async confirm(attempts) {
    const numbers = new Map(attempts.map(({ id, number }) => [id, number]));
    const lost = await extend(this.keeper, numbers, this.worker.lease);
    for (const attempt of attempts) if (lost.includes(attempt.id)) attempt.lose();
  }

  // Sleeps until there may be tasks.
  async sleep() {
    const { worker } = this;
    let { poll } = worker;
    if (poll === undefined && this.popper.pooled) {
      poll = POLL;
      worker.tellOfPooler();
    }
    if (poll) {
      await pause(poll, worker.stopping);
      return;
    }
    this.waiting = true;
    try {
      await this.popper.query('CALL fairq.wait($1::text[], make_interval(secs => $2::float8))',
        [worker.queues, WAIT], { once: true, limit: WAIT + MARGIN });
    } catch (error) {
      if (!isCancelled(error) && !isTransient(error)) throw error;
      // even if the next pop succeeds, the next wait may fail
      if (!isCancelled(error)) await pause(1, worker.stopping);
    } finally {
      this.waiting = false;
    }
  }

  // Ends popTasks, which is most likely in fairq.wait.  The first request to
  // cancel that call may arrive before the call.  A running pop has some time
  // to end.  After that time the worker ignores the tasks of the pop.
  async endPop(popping) {
    let over = false;
    const end = popping.catch(() => {}).then(() => { over = true; });
    for (let tries = 0; tries < 20; tries++) {
      await Promise.race([end, pause(tries === 0 ? 0 : 0.1)]);
      if (over) return;
      if (this.waiting || tries > 5) await this.popper.interrupt();
    }
    this.popper.close();
  }

  // Removes the worker from fairq.workers.
  unregister() {
    this.leaving.abort();
    return this.registered;
  }

  close() {
    this.leaving.abort();
    this.popper.close();
    this.keeper.close();
    this.closing.abort();
  }
}

module.exports = { POP, Shard };
