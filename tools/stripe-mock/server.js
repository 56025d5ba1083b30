'use strict';

/*
 * Starts stripe-stateful-mock, a Stripe with a memory that nobody here wrote, so that the tests of the stripe adapters
 * do not merely agree with our own reading of Stripe's documentation.
 *
 *   node server.js [--port N] [--port-file FILE]
 *
 * It listens on 127.0.0.1 only. With port 0, the default, the system picks one; the file appears, complete, once
 * requests are answered.
 */

const fs = require('fs');

process.env.LOG_LEVEL = process.env.LOG_LEVEL || 'warn';

function option(name, fallback) {
    const at = process.argv.indexOf('--' + name);
    return at < 0 ? fallback : process.argv[at + 1];
}

const port = Number(option('port', '0'));
const portFile = option('port-file', '');

if (!Number.isInteger(port) || port < 0 || port > 65535) {
    console.error('usage: node server.js [--port N] [--port-file FILE]');
    process.exit(2);
}

const { createExpressApp } = require('stripe-stateful-mock');
const server = createExpressApp().listen(port, '127.0.0.1');

server.on('error', (error) => {
    console.error('could not listen on 127.0.0.1:' + port + ': ' + error.message);
    process.exit(1);
});

server.on('listening', () => {
    const actual = server.address().port;
    if (portFile) {
        fs.writeFileSync(portFile + '.new', actual + '\n');
        fs.renameSync(portFile + '.new', portFile);
    }
    console.log('listening on 127.0.0.1:' + actual);
});

for (const signal of ['SIGTERM', 'SIGINT']) {
    process.on(signal, () => process.exit(0));
}
