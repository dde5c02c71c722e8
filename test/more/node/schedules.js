// Schedules of workers.
'use strict';
const fs = require('fs');
const path = require('path');
const {
  WORK, INSTALLED, fairq, check, equal, errorOf, until, fromNpm, rows, ask, connect, queue, drop, add, ended, work,
} = require('./harness');

const YEAR = 365 * 86400;
const count = (name, schedule) => ask("SELECT count(*)::int FROM fairq.tasks WHERE queue = $1 AND headers ->> 'schedule' = $2",
  name, schedule);
const HANDLERS = { tidy: () => {}, other: () => {} };

async function schedules() {
  const name = await queue('schedules');
  const two = await queue('schedules too');
  const options = {
    schedules: {
      tidy: { every: 1 }, mine: { every: 2, task: 'other', queue: two, group: 'bob', payload: { n: [1] }, catchUp: 0.5 },
    },
  };
  const workers = [work([name, two], HANDLERS, options), work([name, two], HANDLERS, options)];
  await until(async () => await count(name, 'tidy') >= 4 && await count(two, 'mine') >= 2);
  for (const worker of workers) await worker.stop();
  const tasks = await rows('SELECT headers, group_key, payload, queue FROM fairq.tasks WHERE queue = ANY ($1)'
    + " ORDER BY headers ->> 'scheduled_at'", [name, two]);
  const of = (schedule) => tasks.filter(({ headers }) => headers.schedule === schedule);
  const times = of('tidy').map(({ headers }) => Date.parse(headers.scheduled_at) / 1000);
  equal(times, times.map((_, i) => times[0] + i), 'two workers add one task for each time');
  const { group_key: group, payload, headers } = of('tidy')[0];
  equal([group, payload, headers.task, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$/.test(headers.scheduled_at)],
    ['schedule', {}, 'tidy', true], 'the task has the group schedule, the schedule\'s name and its time');
  const own = of('mine').map((task) => [task.group_key, task.payload, task.headers.task, task.queue]);
  equal(own[0], ['bob', { n: [1] }, 'other', two], 'a schedule may have its own queue, group, task and payload');
  equal(of('mine').filter((task) => Date.parse(task.headers.scheduled_at) % 2000 !== 0), [], 'its times are multiples');
  equal(await ask("SELECT count(*)::int FROM fairq.dedup WHERE dedup_key LIKE 'schedule tidy ____-__-__T__:__:__Z'"),
    times.length, 'all clients have the same keys');
  equal([workers[0].lines, workers[1].lines], [[], []], 'the log is empty');
  await drop(name);
  await drop(two);
}

// A worker that starts catches up the last time that passed while no worker
// ran.
async function missed() {
  const name = await queue('missed');
  const once = async (more) => {
    const worker = work(name, HANDLERS, {
      schedules: {
        none: { every: 100 * YEAR, task: 'tidy', catchUp: 0 },
        tidy: { every: 100 * YEAR, catchUp: 100 * YEAR },
        [more]: { every: YEAR, task: 'tidy', catchUp: 3 * YEAR },
      },
    });
    await until(() => count(name, more)); // the worker adds this task last
    const [{ id }] = await rows("SELECT id FROM fairq.tasks WHERE headers ->> 'schedule' = $1", more);
    await ended(Number(id));
    await worker.stop();
    equal([await count(name, 'none'), await count(name, 'tidy'), await count(name, more)], [0, 1, 1],
      'the last missed time is caught up, once');
  };
  await once('a');
  await once('b'); // a new worker
  equal(await ask("SELECT headers ->> 'scheduled_at' FROM fairq.tasks WHERE headers ->> 'schedule' = 'tidy'"),
    '1970-01-01T00:00:00Z', 'the task has a time before the worker\'s start');
  await drop(name);
}

// A schedule whose task cannot be added does not delay other tasks.
async function hindered() {
  const name = await queue('hindered');
  const other = await connect();
  await other.query('BEGIN');
  await fairq.enqueue(other, name, 'bob', {}, { dedupKey: 'schedule tidy 1970-01-01T00:00:00Z', delay: 3600 });
  const held = work(name, HANDLERS, { schedules: { tidy: { every: 100 * YEAR, catchUp: 100 * YEAR } } });
  await until(() => held.lines.length > 0);
  const ids = [await add(name, {}, 'other'), await add(name, {}, 'other')];
  for (const id of ids) equal((await ended(id)).status, 'completed', 'a key that another transaction has locked');
  equal(await count(name, 'tidy'), 0, 'only the task of the schedule waits');
  await other.query('ROLLBACK');
  check(await until(() => count(name, 'tidy')), 'the task is added when that transaction ends', held.lines);
  await held.stop();
  await other.end();

  const worker = work(name, HANDLERS, {
    schedules: { bad: { every: 1, task: 'tidy', queue: 'nowhere' }, good: { every: 1, task: 'tidy' } } });
  equal((await ended(await add(name, {}, 'other'))).status, 'completed', 'a queue that does not exist');
  check(await until(() => worker.lines.includes('schedule bad: queue "nowhere" does not exist')), 'is in the log', worker.lines);
  check(await until(() => count(name, 'good'), 10), 'that queue delays no other schedule', worker.lines);
  await worker.stop();
  await drop(name);
}

async function refusedSchedules() {
  for (const [wanted, fields] of [
    ['the schedule s must have every or cron', {}],
    ['the schedule s must have every or cron', { every: 5, cron: '* * * * *' }],
    ['every of the schedule s must be a whole number of seconds, and is 1.5', { every: 1.5 }],
    ['every of the schedule s must be a whole number of seconds, and is 0', { every: 0 }],
    ['every of the schedule s must be a whole number of seconds, and is 5 min', { every: '5 min' }],
    ['the schedule s has no option "catchup"', { every: 5, catchup: 1 }],
    ['catchUp of the schedule s must be at least 0', { every: 5, catchUp: -1 }],
    ['catchUp of the schedule s must be a number of seconds, and is 1 h', { every: 5, catchUp: '1 h' }],
    ['group of the schedule s must not be empty; if it is meant, give the option emptyGroup', { every: 5, group: '' }],
    ['payload of the schedule s cannot be encoded as JSON: it contains the bigint 1', { every: 5, payload: { n: 1n } }],
    ['task of the schedule s must be a string, and is 5', { every: 5, task: 5 }],
  ]) {
    const error = await errorOf(() => new fairq.Worker('q', () => {}, { schedules: { s: fields } }));
    equal([error.name, error.message], ['TypeError', wanted], `refused: ${wanted}`);
  }
  const error = await errorOf(() => new fairq.Worker('q', () => {}, { schedules: { s: { cron: '* * * * *' } } }));
  equal(error.message, 'the schedule s needs the package "croner", and it is not installed', 'without croner');
}

// Cron lines, with the oldest and the newest croner.
async function cron() {
  for (const version of ['11.0.0', '11.0.1']) {
    const modules = fromNpm(`croner@${version}`);
    if (modules === null) return;
    const place = path.join(WORK, version, 'node_modules');
    fs.cpSync(INSTALLED, path.join(place, 'fairq'), { recursive: true });
    fs.symlinkSync(path.join(modules, 'croner'), path.join(place, 'croner'));
    await cronLines(version, path.join(place, 'fairq'));
  }
}

async function cronLines(version, directory) {
  const { Worker } = require(directory);
  const { readSchedules } = require(path.join(directory, 'lib/schedule.js'));
  const due = (line, zone, from, to) => {
    const [schedule] = readSchedules({ s: { cron: line, zone, catchUp: 7 * 86400 } }, 'q');
    schedule.seen = Date.parse(from) / 1000;
    return schedule.due(Date.parse(to) / 1000).map((at) => new Date(at * 1000).toISOString().slice(0, 16));
  };
  equal(due('30 8 * * mon-fri', 'Europe/Berlin', '2026-04-30T06:30:00Z', '2026-05-05T06:30:00.5Z'),
    ['2026-05-01T06:30', '2026-05-04T06:30', '2026-05-05T06:30'], `croner ${version}: times of a cron line in a time zone`);
  equal(due('0 12 1 1 *', undefined, '2025-12-31T23:59:59.5Z', '2026-01-02T00:00:00Z'), ['2026-01-01T12:00'], 'UTC by default');
  equal(due('30 2 * * *', 'Europe/Berlin', '2026-03-28T12:00:00Z', '2026-03-30T12:00:00Z'), ['2026-03-29T01:00', '2026-03-30T00:30'],
    'for a time that the clocks skip, the next time is used');
  equal(due('30 2 * * *', 'Europe/Berlin', '2026-10-24T12:00:00Z', '2026-10-26T12:00:00Z'), ['2026-10-25T00:30', '2026-10-26T01:30'],
    'of a time that occurs twice, the first is used');
  equal(due('0 0 30 2 *', undefined, '2026-01-01T00:00:00Z', '2026-03-03T00:00:00Z'), [], 'a cron line without any time has none');
  for (const fields of [{ cron: '61 * * * *' }, { cron: 5 }, { cron: '* * * * *', zone: 'Nowhere' }, { cron: '* * * * *', zone: 5 }]) {
    const error = await errorOf(() => new Worker('q', () => {}, { schedules: { s: fields } }));
    check(/61|cron of|Nowhere|zone of/.test(error.message), 'a wrong line or zone is an error', error.message);
  }
  const name = await queue('cron');
  const worker = new Worker(name, HANDLERS, { schedules: { tidy: { cron: '* * * * * *', zone: 'Asia/Tokyo' } } });
  worker.run();
  check(await until(async () => await count(name, 'tidy') >= 3), 'a worker runs a cron line');
  await worker.stop();
  await drop(name);
}

module.exports = {
  schedules, missed, hindered, refusedSchedules, cron,
};
