// Finds the packages that the application installs.
'use strict';
const path = require('path');

// The file of a package: the one that this package finds, or else the one that the program
// finds.  This package may be linked into node_modules from another folder.
function pathOf(name, need) {
  const program = process.argv[1] ? path.dirname(process.argv[1]) : process.cwd();
  try {
    return require.resolve(name, { paths: [__dirname, program, process.cwd()] });
  } catch (error) {
    throw new Error(`${need}, and it is not installed`);
  }
}

module.exports = { pathOf };
