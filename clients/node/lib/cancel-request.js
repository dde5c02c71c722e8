// The protocol's request to cancel a connection's statement.
'use strict';
const net = require('net');

const CODE = 80877102; // the code of a CancelRequest
const PATIENCE = 3000; // milliseconds

// Sends the request on a separate connection in plain text, like libpq.  The only secret in it
// is the key, which can only cancel statements.  The request may arrive before the statement,
// or after its end.  Resolves when the server has closed that connection.  Some poolers fail if
// the client closes it earlier.
async function cancel(client) {
  const request = Buffer.alloc(16);
  [request.length, CODE, client.processID, client.secretKey].forEach(
    (value, i) => request.writeInt32BE(value, 4 * i));
  const socket = client.host.startsWith('/')
    ? net.connect(`${client.host}/.s.PGSQL.${client.port}`)
    : net.connect(client.port, client.host);
  socket.on('error', () => {}); // the server is down: there is nothing to cancel
  socket.setTimeout(PATIENCE, () => socket.destroy());
  socket.resume(); // so that the client detects the end
  socket.write(request);
  await new Promise((resolve) => { socket.once('close', resolve); });
}

module.exports = { cancel };
