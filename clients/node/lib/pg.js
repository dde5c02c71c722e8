// Where node-postgres is.
'use strict';
const path = require('path');

// Its file, as this package finds it, or else as the program does.  This package may be linked
// into node_modules from another folder.
function pathOfPg() {
  const program = process.argv[1] ? path.dirname(process.argv[1]) : process.cwd();
  try {
    return require.resolve('pg', { paths: [__dirname, program, process.cwd()] });
  } catch (error) {
    throw new Error('a worker needs node-postgres, the package "pg", and it is not installed');
  }
}

module.exports = { pathOfPg };
