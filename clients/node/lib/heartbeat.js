// The leases of a worker's tasks, which a thread of its own extends: so the worker keeps them
// while a handler computes and the event loop stands still.
'use strict';
const path = require('path');
const { Worker: Thread } = require('worker_threads');

class Heartbeat {
  constructor(worker) {
    const {
      databases, lease, name, pg,
    } = worker;
    this.thread = new Thread(path.join(__dirname, 'heartbeat-thread.js'),
      { workerData: { databases, lease, name, pg } });
    // resolves, with an error, if the thread ends by itself
    this.broken = new Promise((resolve) => {
      this.thread.once('error', resolve);
      this.thread.once('exit', () => resolve(new Error('the thread of heartbeats has ended')));
    });
    this.thread.on('message', ({ shard, lost, warning }) => {
      if (warning !== undefined) worker.log.warn(warning);
      else worker.shards[shard].lose(lost);
    });
  }

  // Of two attempts of a task, the later one is kept: the other has lost its lease.
  keep(attempt) {
    this.tell(attempt, true);
  }

  drop(attempt) {
    this.tell(attempt, false);
  }

  // From now on the work may take so many seconds.
  limit(attempt, timeout) {
    this.tell(attempt, true, timeout);
  }

  tell({ shard, id, number }, kept, timeout) {
    this.thread.postMessage({
      shard: shard.number, id, number, kept, timeout,
    });
  }

  end() {
    return this.thread.terminate();
  }
}

module.exports = { Heartbeat };
