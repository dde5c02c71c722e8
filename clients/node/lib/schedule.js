// Schedules: all workers together add one task for each of the regular times.
//
// Each worker that has a schedule enqueues a task at each of its times, by the server's clock.
// The dedup_key contains the schedule's name and the time, so fairq adds only one of these tasks.
// dedupFor keeps the key until no worker enqueues that time any more.
'use strict';
const { pause } = require('./clock');
const { explain } = require('./errors');
const { pathOf } = require('./packages');
const { enqueue } = require('./producer');
const {
  groupOf, refuseUnknown, seconds, text, toJson,
} = require('./values');

const FIELDS = ['every', 'cron', 'zone', 'task', 'queue', 'group', 'payload', 'catchUp'];

const LOOK = 60; // longest time in seconds between reads of the server's clock
const LEAST = 0.01; // shortest time in seconds between these reads
const RETRY = 5; // seconds until a retry after an error
const MARGIN = 300; // seconds for which a key stays taken in addition to catchUp

// All times are seconds since 1970.  Each of the next two functions returns a
// function that maps a time to the schedule's next time.

function multiplesOf(interval, what) {
  if (!Number.isInteger(interval) || interval < 1) {
    throw new TypeError(`every of ${what} must be a whole number of seconds, and is ${String(interval)}`);
  }
  return (after) => (Math.floor(after / interval) + 1) * interval;
}

function timesOf(line, zone, what) {
  const { Cron } = require(pathOf('croner', `${what} needs the package "croner"`));
  const cron = new Cron(text(line, `cron of ${what}`), { timezone: text(zone, `zone of ${what}`) });
  const next = (after) => {
    const at = cron.nextRun(new Date(after * 1000));
    return at === null ? Infinity : at.getTime() / 1000;
  };
  next(0); // throws if the zone is wrong
  return next;
}

class Schedule {
  constructor(name, fields, firstQueue) {
    const what = `the schedule ${name}`;
    refuseUnknown(fields, FIELDS, what);
    const {
      every, cron, zone = 'UTC', task = name, queue = firstQueue, group = 'schedule', payload = {}, catchUp = 3600,
    } = fields;
    if ((every === undefined) === (cron === undefined)) throw new TypeError(`${what} must have every or cron`);
    if (seconds(catchUp, `catchUp of ${what}`) < 0) throw new TypeError(`catchUp of ${what} must be at least 0`);
    text(task, `task of ${what}`);
    text(queue, `queue of ${what}`);
    groupOf(group, `group of ${what}`);
    toJson(payload, `payload of ${what}`);
    Object.assign(this, {
      name, task, queue, group, payload, catchUp,
    });
    this.next = cron === undefined ? multiplesOf(every, what) : timesOf(cron, zone, what);
    this.seen = undefined; // the times up to this one have their tasks
  }

  // The times until now whose tasks have not been enqueued.  The first call
  // returns only the last one.
  due(now) {
    const oldest = now - this.catchUp;
    const times = [];
    const after = this.seen === undefined ? oldest : Math.max(oldest, this.seen);
    for (let at = this.next(after); at <= now; at = this.next(at)) times.push(at);
    return this.seen === undefined ? times.slice(-1) : times;
  }

  async enqueue(client, at) {
    const time = new Date(at * 1000).toISOString().replace('.000Z', 'Z');
    await enqueue(client, this.queue, this.group, this.payload, {
      task: this.task,
      headers: { schedule: this.name, scheduled_at: time },
      dedupKey: `schedule ${this.name} ${time}`,
      dedupFor: this.catchUp + MARGIN,
    });
  }
}

// The schedules for the option of a worker.
function readSchedules(schedules, firstQueue) {
  return Object.entries(schedules).map(([name, fields]) => new Schedule(name, fields, firstQueue));
}

// Enqueues the schedule's tasks that are due.  Resolves to the schedule's next time.
async function enqueueDue(schedule, client, now) {
  for (const at of schedule.due(now)) await schedule.enqueue(client, at);
  schedule.seen = now;
  return schedule.next(now);
}

// Enqueues the due tasks of all schedules.  Resolves to the seconds until the
// next call.  An error of one schedule delays no other schedule, and is passed to failed().
async function tick(schedules, client, failed) {
  const [row] = await client.query('SELECT extract(epoch FROM clock_timestamp())::float8 AS now', []);
  const now = Number(row.now);
  let soonest = now + LOOK;
  for (const schedule of schedules) {
    const next = await enqueueDue(schedule, client, now).catch((error) => {
      failed(`schedule ${schedule.name}`, error);
      return now + RETRY;
    });
    soonest = Math.min(soonest, next);
  }
  return Math.max(LEAST, soonest - now);
}

// Keeps a worker's schedules until the worker stops.  Another transaction may hold a key,
// and the connection also ends tasks, so the statements wait for locks only briefly.
async function keepSchedules({ schedules, stopping, log }, database) {
  const client = { query: (sql, values) => database.query(sql, values, { brief: true }) };
  const failed = (what, error) => {
    if (!stopping.aborted) log.error(`${what}: ${explain(error)}`);
  };
  while (!stopping.aborted) {
    const rest = await tick(schedules, client, failed).catch((error) => {
      failed('schedules', error);
      return RETRY;
    });
    await pause(rest, stopping);
  }
}

module.exports = { readSchedules, keepSchedules };
