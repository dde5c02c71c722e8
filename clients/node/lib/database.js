// A connection for several callers, one after the other, that is made anew when it is lost.
'use strict';
const { cancel } = require('./cancel-request');
const { now, pause } = require('./clock');
const {
  Unavailable, isTransient, isHopeless, isLost, isHeld, explain,
} = require('./errors');

const RETRY = 1; // seconds for which a database that is down is left alone
const HELD = 0.5; // seconds until what another transaction holds is tried again
const LATELY = 2; // seconds for which others are likely to be held, too
const CALL = 30; // seconds that a call may take before the server is taken for gone
const KEEPALIVE = 10; // seconds of silence after which the kernel asks whether the host is there
const PARTING = 1; // seconds for a connection to end before its socket is destroyed

class Database {
  // places are hosts, of which one takes writes; pg is the file of node-postgres, stopping
  // aborts when a server that is down is to be given up, giveUp is for how many seconds one is
  // asked that can never answer, warn gets a line about what is wrong.
  constructor(places, {
    pg, name, stopping, giveUp = Infinity, warn,
  }) {
    Object.assign(this, {
      places, pg, name, stopping, giveUp, warn,
    });
    this.client = null;
    this.pooled = false; // the server is behind a pooler: known once there is a connection
    this.closed = false;
    this.asking = null; // the client, while it is in a statement
    this.warned = null; // the text of the last failure, as long as it lasts
    this.answered = -Infinity; // when the server last has, by now()
    this.hopeless = null; // since when it is one that can never answer
    this.held = -Infinity; // when another transaction last was in the way
    this.turn = Promise.resolve(); // of the last caller
    this.holding = Promise.resolve(); // of the last that tries again what is held
  }

  // The rows of a statement, which is tried again each second until the server has answered,
  // or the worker ends.  If only the answer was lost it is done twice: the attempt sees to it
  // that this does no harm.  With once it is tried once.  With brief, which is for a SELECT
  // without FROM, it waits for no lock for long: a task's row may be locked for as long as
  // another transaction is open, and the connection is there for the other tasks, too.
  async query(sql, values = [], { once = false, brief = false, limit = CALL } = {}) {
    const statement = () => (brief
      ? `${sql} FROM set_config('lock_timeout', '${this.heldLately() ? 10 : 100}ms', true)` : sql);
    const call = () => this.inTurn(() => this.persist(statement, values, once, limit));
    try {
      return await call();
    } catch (error) {
      if (!isHeld(error) || once || this.stopping.aborted) throw error;
    }
    await pause(HELD, this.stopping);
    // One at a time, and seldom: so they keep no others from the connection.  When the one is
    // in the way no more they follow each other at once.
    for (;;) {
      const attempt = this.holding.then(async () => {
        try {
          return await call();
        } catch (error) {
          if (!isHeld(error) || this.stopping.aborted) throw error;
          await pause(HELD, this.stopping);
          return null;
        }
      });
      this.holding = attempt.catch(() => {});
      const rows = await attempt;
      if (rows !== null) return rows;
    }
  }

  // Calls when the callers before have ended.
  inTurn(call) {
    const rows = this.turn.then(call);
    this.turn = rows.catch(() => {});
    return rows;
  }

  async persist(statement, values, once, limit) {
    for (let failures = 1; ; failures++) {
      if (this.closed) throw new Error('the worker has ended');
      try {
        const rows = await this.ask(statement(), values, limit);
        this.warned = null;
        this.hopeless = null;
        this.answered = now();
        return rows;
      } catch (error) {
        if (isHeld(error)) {
          if (!once && !this.heldLately()) {
            this.warn(`another transaction is in the way: ${explain(error)}; trying again`);
          }
          this.answered = now();
          this.held = this.answered;
          throw error;
        }
        if (!isTransient(error)) throw error;
        this.tell(error);
        if (once || this.closed || (this.stopping.aborted && failures > 1)) throw error;
      }
      if (!this.stopping.aborted) await pause(RETRY, this.stopping);
    }
  }

  heldLately() {
    return now() - this.held < LATELY;
  }

  tell(error) {
    const text = explain(error);
    if (text !== this.warned && !this.closed) {
      const limit = error instanceof Unavailable && this.giveUp < Infinity ? `, for ${this.giveUp} s` : '';
      this.warn(`${text}; trying again each second${limit}`);
    }
    this.warned = text;
  }

  async ask(sql, values, limit) {
    try {
      return await this.askOnce(sql, values, limit);
    } catch (error) {
      if (!isHopeless(error)) {
        if (isLost(error)) this.hopeless = null; // the server is away, and may come back another
        throw error;
      }
      // Somebody may be about to create the database, or to change the password.
      if (this.hopeless === null) this.hopeless = now();
      if (now() - this.hopeless >= this.giveUp) throw error;
      throw new Unavailable(explain(error), { cause: error });
    }
  }

  async askOnce(sql, values, limit) {
    if (this.client === null) this.client = await this.connect();
    const { client } = this;
    this.asking = client;
    try {
      return await askWithin(limit, client, sql, values);
    } catch (error) {
      if (isLost(error)) this.drop(client);
      throw error;
    } finally {
      this.asking = null;
    }
  }

  // Tries each host by itself.  The error is that of a host that may come back, if there is one.
  async connect() {
    let problem;
    for (const place of this.places) {
      try {
        return await this.connectTo(place);
      } catch (error) {
        if (!problem || (isHopeless(problem) && !isHopeless(error))) problem = error;
      }
    }
    throw problem;
  }

  async connectTo(place) {
    const { Client } = require(this.pg); // here, as who only enqueues may not have it
    const client = new Client({
      keepAlive: true,
      keepAliveInitialDelayMillis: 1000 * KEEPALIVE,
      ...place,
      fallback_application_name: this.name,
    });
    client.on('error', () => {}); // the next statement fails, and says it
    client.once('end', () => this.drop(client));
    try {
      await client.connect();
      const [row] = await askWithin(CALL, client, `SELECT pg_backend_pid() AS pid,
        current_setting('transaction_read_only') = 'on' AS read_only`, []);
      if (row.read_only && this.places.length > 1) throw new Error('no host takes writes');
      if (this.closed) throw new Error('the worker has ended');
      // a pooler makes up the process that its clients see
      this.pooled = Number(row.pid) !== client.processID;
      return client;
    } catch (error) {
      end(client);
      throw error;
    }
  }

  drop(client) {
    if (this.client === client) this.client = null;
    end(client);
  }

  // Has the server end the statement that it is in, if it is in one.
  async interrupt() {
    if (this.asking !== null) await cancel(this.asking).catch(() => {});
  }

  // Ends the connection for good, also in the middle of a statement.
  close() {
    this.closed = true;
    if (this.client !== null) this.drop(this.client);
  }
}

// Ends a connection.  A host that has vanished would never confirm that, and its socket would
// keep the process.
function end(client) {
  const { stream } = client.connection;
  const timer = setTimeout(() => stream.destroy(), PARTING * 1000);
  stream.once('close', () => clearTimeout(timer));
  client.end().catch(() => {});
}

// The rows of a statement.  A server that does not answer in time is taken for gone, and the
// caller drops the connection: neither the kernel nor node-postgres would notice while nothing
// comes.  Should the server be there, and wait for a lock, the statement is cancelled.
async function askWithin(limit, client, sql, values) {
  let timer;
  const late = new Promise((resolve, reject) => {
    timer = setTimeout(() => {
      cancel(client).catch(() => {});
      reject(new Error(`the server has not answered within ${limit} seconds`));
    }, limit * 1000);
  });
  try {
    return (await Promise.race([client.query(sql, values), late])).rows;
  } finally {
    clearTimeout(timer);
  }
}

module.exports = { Database, CALL };
