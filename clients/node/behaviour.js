// The package's part in ../behaviour.py, see ../README.md:
//
//     behaviour work QUEUE...
//     behaviour enqueue QUEUE GROUP ACTION [OPTIONS]
//     behaviour skips
//
// POLL, in seconds, is another setting of work.
'use strict';
const fs = require('fs');
const { setTimeout: sleep } = require('timers/promises');
const { Client } = require('pg');
const fairq = require('.');

const say = (...words) => fs.writeSync(1, `${words.join(' ')}\n`);

function breakFirst(task, how) {
  if (task.attempt > 1) return;
  if (how === 'exit') process.kill(process.pid, 'SIGKILL');
  throw new Error('attempt 1');
}

const ACTIONS = {
  ok: () => {},
  raise: ({ message }) => { throw new Error(message); },
  raise_from: ({ message, cause }) => { throw new Error(message, { cause: new Error(cause) }); },
  dead: ({ message }) => { throw new fairq.Dead(message); },
  exit_always: () => process.kill(process.pid, 'SIGKILL'),
  batch: (action, task) => say('batch', task.id, task.batch || 0),
  headers: (action, task) => say('headers', task.id, JSON.stringify(task.headers)),

  exit(action, task) {
    if (task.attempt === 1) process.kill(process.pid, 'SIGKILL');
  },

  raise_until({ attempt }, task) {
    if (task.attempt < attempt) throw new Error(`attempt ${task.attempt} of ${attempt}`);
  },

  retry({ seconds }, task) {
    if (task.attempt === 1) throw new fairq.Retry(seconds);
  },

  async sleep({ seconds, deaf = false }, task) {
    try {
      await sleep(seconds * 1000, undefined, deaf ? {} : { signal: task.signal });
    } catch (error) {
      say('cancelled', task.id, task.attempt);
      throw error;
    }
  },

  async progress({ value }, task) {
    await task.setProgress(value);
    await sleep(500);
  },

  async steps({ how }, task) {
    const first = await task.step('first', () => {
      say('step', task.id, task.attempt, 'first');
      return { attempt: task.attempt };
    });
    await task.step('second', async () => {
      say('step', task.id, task.attempt, 'second');
      breakFirst(task, how);
      return first.attempt;
    });
  },

  async cursor({ how }, task) {
    for (let n = (task.cursor || 0) + 1; n <= 20; n++) {
      say('at', task.id, task.attempt, n);
      if (n === 10) breakFirst(task, how);
      await sleep(100);
      await task.checkpoint(n);
    }
  },
};

async function behave(action, task) {
  say('start', task.id, task.attempt, task.group, task.queue);
  if (!Object.keys(ACTIONS).includes(action.do)) throw new Error(`there is no action ${action.do}`);
  await ACTIONS[action.do](action, task);
  say('end', task.id, task.attempt);
}

const hooks = Object.fromEntries(['before', 'after', 'error', 'lost']
  .map((name) => [name, (task) => say('hook', name, task.id, task.attempt)]));

function work(queues) {
  const {
    CONCURRENCY = 1, LEASE = 60, GRACE = 5, GIVE_UP = 60, TIMEOUT, POLL, LOG, HOOKS, SCHEDULE,
  } = process.env;
  const [schedule, every] = SCHEDULE ? SCHEDULE.split(':') : [];
  fairq.main(queues, { behaviour: behave }, {
    concurrency: Number(CONCURRENCY),
    lease: Number(LEASE),
    timeout: TIMEOUT && Number(TIMEOUT),
    grace: Number(GRACE),
    giveUp: Number(GIVE_UP),
    poll: POLL && Number(POLL),
    log: LOG,
    hooks: HOOKS && hooks,
    schedules: schedule && { [schedule]: { every: Number(every), task: 'behaviour', payload: { do: 'ok' } } },
  });
}

async function enqueue(queue, group, action, options = '{}') {
  const payload = JSON.parse(action);
  const { rollback = false, batch_of: parts, ...rest } = JSON.parse(options);
  const add = { task: 'behaviour', ...rest };
  const client = new Client();
  await client.connect();
  await client.query('BEGIN');
  const id = parts === undefined ? await fairq.enqueue(client, queue, group, payload, add)
    : await fairq.inBatch(client, { queue, group, payload, ...add }, (batch) => fairq.enqueueBatch(
      client, queue, parts.map((part) => ({ group, payload: part, task: 'behaviour' })), { batch }));
  await client.query(rollback ? 'ROLLBACK' : 'COMMIT');
  await client.end();
  say(id);
}

const [what, ...rest] = process.argv.slice(2);
if (what === 'work') {
  work(rest);
} else if (what === 'enqueue') {
  enqueue(...rest).catch((error) => {
    console.error(`behaviour: ${error.message}`);
    process.exit(1);
  });
} else if (what === 'skips') {
  // none
} else {
  console.error('usage: behaviour work QUEUE... | enqueue QUEUE GROUP ACTION [OPTIONS] | skips');
  process.exit(1);
}
