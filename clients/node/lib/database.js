// A connection that several callers use one after the other.  It reconnects after a loss.
'use strict';
const { cancel } = require('./cancel-request');
const { now, pause } = require('./clock');
const {
  Unavailable, isTransient, isHopeless, isLost, isHeld, explain,
} = require('./errors');

const RETRY = 1; // seconds between tries while a database is down
const HELD = 0.5; // seconds until a retry after a lock of another transaction
const LATELY = 2; // seconds after a lock during which callers retry one at a time
const CALL = 30; // seconds after which a call fails, because the server or the network has vanished
const KEEPALIVE = 10; // seconds of silence after which the kernel asks whether the host is there
const PARTING = 1; // seconds for a connection to end before its socket is destroyed

class Database {
  // - places: hosts, one of which accepts writes
  // - pg: the file of node-postgres
  // - stopping: aborted when the worker must not retry statements any more
  // - giveUp: seconds for which to retry if the server refuses connections
  // - warn: gets one line for each problem
  constructor(places, {
    pg, name, stopping, giveUp = Infinity, warn,
  }) {
    Object.assign(this, {
      places, pg, name, stopping, giveUp, warn,
    });
    this.client = null;
    this.pooled = false; // the server is behind a pooler: known once there is a connection
    this.closed = false;
    this.asking = null; // the client that runs a statement
    this.warned = null; // the text of the last failure, until the server answers
    this.answered = -Infinity; // when the server last answered, as now()
    this.hopeless = null; // time of the first refused connection
    this.held = -Infinity; // when a statement last failed because of a lock
    this.turn = Promise.resolve(); // resolves after the last caller's statement
    this.holding = Promise.resolve(); // the same for the last retry after a lock
  }

  // The rows of a statement.  Unless "once" is set, it is retried each second until the server
  // answers or the worker ends.  If only the answer was lost, the statement runs twice, which is
  // harmless since it names the attempt.  With "brief", which is for a SELECT without FROM, it
  // waits for a lock only briefly.  An open transaction may have locked a task's row, and other
  // tasks need this connection too.
  async query(sql, values = [], { once = false, brief = false, limit = CALL } = {}) {
    const statement = () => (brief
      ? `${sql} FROM set_config('lock_timeout', '${this.heldLately() ? 10 : 100}ms', true)` : sql);
    const call = async () => {
      for (;;) {
        try {
          return await this.inTurn(() => this.persist(statement, values, once, limit));
        } catch (error) {
          if (once || this.stopping.aborted || !isTransient(error) || isLost(error) || isHeld(error)) throw error;
        }
        // the server refuses only this statement, so others are next
        await pause(RETRY, this.stopping);
      }
    };
    try {
      return await call();
    } catch (error) {
      if (!isHeld(error) || once || this.stopping.aborted) throw error;
    }
    await pause(HELD, this.stopping);
    // One caller retries at a time, with pauses, so others can use the connection.  Once it
    // succeeds, the others follow at once.
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

  // Makes the call once those of the previous callers have ended.
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
            this.warn(`another transaction has locked the task: ${explain(error)}; retrying`);
          }
          this.answered = now();
          this.held = this.answered;
          throw error;
        }
        if (!isTransient(error)) throw error;
        this.tell(error);
        if (once || this.closed || !isLost(error) || (this.stopping.aborted && failures > 1)) throw error;
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
      this.warn(`${text}; retrying each second${limit}`);
    }
    this.warned = text;
  }

  async ask(sql, values, limit) {
    try {
      return await this.askOnce(sql, values, limit);
    } catch (error) {
      if (!isHopeless(error)) {
        // the server is down, and its databases may change meanwhile
        if (isLost(error)) this.hopeless = null;
        throw error;
      }
      // The database may be created soon, or the password may be changed.
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

  // Tries one host after the other.  If all fail, prefers the error of a host that may come back.
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
    const { Client } = require(this.pg); // required here, since a producer may not have the package
    const client = new Client({
      keepAlive: true,
      keepAliveInitialDelayMillis: 1000 * KEEPALIVE,
      ...place,
      fallback_application_name: this.name,
    });
    client.on('error', () => {}); // the next statement fails with this error
    client.once('end', () => this.drop(client));
    try {
      await client.connect();
      const [row] = await askWithin(CALL, client, `SELECT pg_backend_pid() AS pid,
        current_setting('transaction_read_only') = 'on' AS read_only`, []);
      if (row.read_only && this.places.length > 1) throw new Error('no host accepts writes');
      if (this.closed) throw new Error('the worker has ended');
      // a pooler sends its clients an invented process ID
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

  // Cancels the current statement, if any.
  async interrupt() {
    if (this.asking !== null) await cancel(this.asking).catch(() => {});
  }

  // Ends the connection for good, also in the middle of a statement.
  close() {
    this.closed = true;
    if (this.client !== null) this.drop(this.client);
  }
}

// Ends a connection.  A host that has vanished would never confirm the end, and its socket would
// keep the process alive.
function end(client) {
  const { stream } = client.connection;
  const timer = setTimeout(() => stream.destroy(), PARTING * 1000);
  stream.once('close', () => clearTimeout(timer));
  client.end().catch(() => {});
}

// The rows of a statement.  If the server does not answer in time, the call rejects, and
// the caller drops the connection.  Neither the kernel nor node-postgres would detect a
// host that has vanished.  The call also cancels the statement, since the server may only
// wait for a lock.
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
