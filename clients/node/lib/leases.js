// The leases of attempts.
'use strict';

const EXTEND = `SELECT unnest(fairq.extend_batch($1::bigint[], $2::int[],
  make_interval(secs => $3::float8))) AS id`;

// Renews the leases of a database's tasks.  attempts maps the ids of tasks to
// the numbers of their attempts.  Resolves to the ids of tasks whose lease is
// lost or that were cancelled.
async function extend(database, attempts, lease, options) {
  const rows = await database.query(EXTEND, [[...attempts.keys()], [...attempts.values()], lease],
    options);
  return rows.map((row) => Number(row.id));
}

module.exports = { extend };
