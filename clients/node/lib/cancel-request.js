// The protocol's request to end the statement that a connection is in.
'use strict';
const net = require('net');

const CODE = 80877102; // of a CancelRequest
const PATIENCE = 3000; // milliseconds

// Sends it by a connection of its own, in plain text, as libpq does: it has no secret but
// the key, which is good for that alone.  The request may come before the statement, or too late.
// Resolves when the server has closed that connection; to close it earlier is more than
// some poolers bear.
async function cancel(client) {
  const request = Buffer.alloc(16);
  [request.length, CODE, client.processID, client.secretKey].forEach(
    (value, i) => request.writeInt32BE(value, 4 * i));
  const socket = client.host.startsWith('/')
    ? net.connect(`${client.host}/.s.PGSQL.${client.port}`)
    : net.connect(client.port, client.host);
  socket.on('error', () => {}); // the server is down: nothing is to be cancelled
  socket.setTimeout(PATIENCE, () => socket.destroy());
  socket.resume(); // by which the end is seen
  socket.write(request);
  await new Promise((resolve) => { socket.once('close', resolve); });
}

module.exports = { cancel };
