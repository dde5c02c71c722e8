// The work of the workers here: 5 ms.
'use strict';
const { setTimeout: sleep } = require('timers/promises');

exports.handle = () => sleep(5);
