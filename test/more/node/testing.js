// Tasks that run in the transaction of a test.
'use strict';
const fs = require('fs');
const path = require('path');
const { spawnSync } = require('child_process');
const { Pool } = require('pg');
const {
  WORK, INSTALLED, fairq, check, equal, errorOf, read, ask, connect, queue, drop, add,
} = require('./harness');
const { runTasks } = require(path.join(INSTALLED, 'testing.js'));

async function testing() {
  const name = await queue('te"st\\ing', 'max_attempts => 2');
  const client = await connect();
  const task = (what, payload, options) => fairq.enqueue(client, name, 'bob', payload, { task: what, ...options });
  const seen = [];
  const worker = new fairq.Worker([name], {
    more: async ({ n }, { id, attempt }) => {
      seen.push([id, attempt]);
      if (n > 1) await task('more', { n: n - 1 });
      return { n };
    },
    dead: () => { throw new fairq.Dead('no'); },
    retry: () => { throw new fairq.Retry(3600, 'later'); },
    steps: async (_, one) => {
      await one.checkpoint(await one.step('first', () => 5));
      await one.complete(client, one.progress);
    },
    fails: () => { throw new RangeError('it broke'); },
    forever: () => task('forever'),
  });
  const inTransaction = async (run) => {
    await client.query('BEGIN');
    await run();
    await client.query('ROLLBACK');
  };
  const statusOf = async (id) => (await client.query('SELECT status, result FROM fairq.tasks WHERE id = $1', [id])).rows[0];

  await inTransaction(async () => {
    const ids = [await task('more', { n: 3 }), await task('dead'), await task('retry'), await task('steps')];
    const late = await task('more', { n: 1 }, { delay: 3600 });
    const ran = await runTasks(client, worker);
    equal(ran.length, 6, 'the tasks of a test run, and the tasks that they enqueue');
    equal([seen.length, seen[0]], [3, [ids[0], 1]], 'each once');
    const of = (id) => ran.find((one) => one.task.id === id);
    equal([of(ids[0]).result, of(ids[0]).error, of(ids[0]).task.name], [{ n: 3 }, undefined, 'more'], 'a result');
    equal([of(ids[1]).error instanceof fairq.Dead, of(ids[2]).error instanceof fairq.Retry], [true, true], 'Dead and Retry');
    const steps = { fairq: { cursor: 5, steps: { first: 5 } } };
    equal(await Promise.all([...ids, late].map(statusOf)), [{ status: 'completed', result: { n: 3 } }, { status: 'failed', result: null },
      { status: 'scheduled', result: null }, { status: 'completed', result: steps }, { status: 'scheduled', result: null }],
    'with their outcomes');
    equal(await ask('SELECT count(*)::int FROM fairq.tasks WHERE queue = $1', name), 0, 'other sessions see none of them');
  });
  equal(await ask('SELECT count(*)::int FROM fairq.tasks WHERE queue = $1', name), 0, 'a rollback removes them');
  await inTransaction(async () => {
    await task('fails');
    equal(String(await errorOf(runTasks(client, worker))), 'RangeError: it broke', 'runTasks throws other errors');
  });
  await inTransaction(async () => {
    await task('nothing');
    equal((await errorOf(runTasks(client, worker))).message, 'no handler for task nothing', 'a missing handler is an error of runTasks');
  });
  await inTransaction(async () => {
    await task('forever');
    const error = await errorOf(runTasks(client, worker, { most: 5 }));
    check(error instanceof fairq.WorkerError && /^the limit of 5 tasks is reached, and another one is ready/.test(error.message), 'most tasks', error);
  });
  const pool = new Pool();
  const id = await add(name, {}, 'fails');
  equal([await runTasks(pool, worker), (await statusOf(id)).status], [[], 'queued'], 'without a transaction no task runs');
  await pool.end();
  await client.end();
  await drop(name);
}

// README's test, with a program that it tests.
async function testRunner() {
  const [, section] = /^## Tests\n([^]*?)^## /m.exec(read('clients/node/README.md'));
  const [, code] = /^```javascript\n([^]*?)^```/m.exec(section);
  const directory = path.join(WORK, 'shop');
  fs.mkdirSync(directory);
  fs.writeFileSync(path.join(directory, 'order.test.js'), code);
  const run = (result) => {
    fs.writeFileSync(path.join(directory, 'shop.js'), `const { enqueue } = require('fairq');
      exports.order = (client, who) => enqueue(client, 'mail', who, { to: 'x' }, { task: 'send' });
      exports.handlers = { send: async ({ to }) => to && '${result}' };`);
    return spawnSync(process.execPath, ['--test', 'order.test.js'], { cwd: directory, encoding: 'utf8' });
  };
  await queue('mail');
  const good = run('sent');
  check(good.status === 0 && /^# pass 1$|pass 1$/m.test(good.stdout), 'README\'s test passes', good.stdout, good.stderr);
  equal(run('lost').status, 1, 'or fails');
  equal(await ask("SELECT count(*)::int FROM fairq.tasks WHERE queue = 'mail'"), 0, 'and leaves nothing');
  await drop('mail');
}

module.exports = { testing, testRunner };
