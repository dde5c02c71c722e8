// Runs the tests: see run.
'use strict';
const { run } = require('./harness');

const all = Object.assign({}, ...['readme', 'producers', 'handlers', 'workers', 'hooks', 'schedules', 'testing', 'connections'].map((file) => require(`./${file}`)));
const names = process.argv.slice(2);
run(names.length > 0 ? Object.fromEntries(names.map((name) => [name, all[name]])) : all);
