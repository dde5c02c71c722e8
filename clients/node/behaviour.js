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

const ACTIONS = {
  ok: () => {},
  raise: ({ message }) => { throw new Error(message); },
  raise_from: ({ message, cause }) => { throw new Error(message, { cause: new Error(cause) }); },
  dead: ({ message }) => { throw new fairq.Dead(message); },
  exit_always: () => process.kill(process.pid, 'SIGKILL'),
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
};

async function behave(action, task) {
  say('start', task.id, task.attempt, task.group, task.queue);
  if (!Object.keys(ACTIONS).includes(action.do)) throw new Error(`there is no action ${action.do}`);
  await ACTIONS[action.do](action, task);
  say('end', task.id, task.attempt);
}

function work(queues) {
  const {
    CONCURRENCY = 1, LEASE = 60, GRACE = 5, GIVE_UP = 60, TIMEOUT, POLL,
  } = process.env;
  fairq.main(queues, { behaviour: behave }, {
    concurrency: Number(CONCURRENCY),
    lease: Number(LEASE),
    timeout: TIMEOUT && Number(TIMEOUT),
    grace: Number(GRACE),
    giveUp: Number(GIVE_UP),
    poll: POLL && Number(POLL),
  });
}

async function enqueue(queue, group, action, options = '{}') {
  const payload = JSON.parse(action);
  const { rollback = false, ...rest } = JSON.parse(options);
  const client = new Client();
  await client.connect();
  await client.query('BEGIN');
  const id = await fairq.enqueue(client, queue, group, payload, { task: 'behaviour', ...rest });
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
} else if (what !== 'skips') {
  console.error('usage: behaviour work QUEUE... | enqueue QUEUE GROUP ACTION [OPTIONS] | skips');
  process.exit(1);
}
