// The handlers that the worker of docs/recipes.md calls.  They log their arguments.
const fs = require('fs');

const failed = new Set();

exports.work = async (groupKey, payload) => {
  const fails = Boolean(payload.fails) && !failed.has(payload.file);
  fs.appendFileSync(process.env.README_LOG, JSON.stringify(
    { group: groupKey, file: payload.file, done: !fails }) + '\n');
  if (fails) {
    failed.add(payload.file);
    throw new Error('it fails once');
  }
};
