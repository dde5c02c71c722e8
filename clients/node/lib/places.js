// The hosts of a database, each in the form for node-postgres.
//
// PGHOST and PGPORT, a URI or an object may name several hosts, with commas between them.  libpq
// finds the primary among them; node-postgres does not.
'use strict';
const v8 = require('v8');

const URI = /^(postgres(?:ql)?:\/\/(?:[^@/?]*@)?)([^/?]*)(.*)$/s;

function placesOf(database) {
  const timeout = { connectionTimeoutMillis: 1000 * (process.env.PGCONNECT_TIMEOUT || 10) };
  if (typeof database === 'string') {
    const parts = URI.exec(database);
    if (!parts) throw new TypeError('a database must be a URI, postgresql://host/database');
    const [, before, hosts, after] = parts;
    return hosts.split(',').map((host) => (
      { ...timeout, connectionString: before + host + after }));
  }
  if (typeof database !== 'object' || database === null) {
    throw new TypeError(`a database must be a URI or an object, and is ${String(database)}`);
  }
  const hosts = String(database.host || process.env.PGHOST || '').split(',');
  const ports = String(database.port || process.env.PGPORT || '5432').split(',');
  return hosts.map((host, i) => ({
    ...timeout, ...copyOf(database), host: host || undefined, port: Number(ports[i % ports.length]) }));
}

// A copy that can be passed to a thread.
function copyOf(database) {
  const copy = { ...database };
  if (copy.ssl && typeof copy.ssl === 'object') {
    // node-postgres hides the key of an object after its first use
    copy.ssl = { ...copy.ssl, ...('key' in copy.ssl && { key: copy.ssl.key }) };
  }
  try {
    v8.serialize(copy);
  } catch (error) {
    throw new TypeError('a database must have no functions, as a thread connects to it, too: '
      + error.message);
  }
  return copy;
}

module.exports = { placesOf };
