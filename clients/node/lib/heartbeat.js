// A thread renews the leases of a worker's tasks.  So the worker keeps its leases even
// while a handler blocks the event loop.
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

  // If the worker has two attempts of a task, the thread renews the lease of the later
  // one, since the other has lost its lease.
  keep(attempt) {
    this.tell(attempt, true);
  }

  drop(attempt) {
    this.tell(attempt, false);
  }

  // Sets the time limit of the work, from now on.
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
