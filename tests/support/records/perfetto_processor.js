// Perfetto's trace processor, as its web page runs it: a WebAssembly module in a worker's script.
// Usage: node perfetto_processor.js engine_bundle.js. Standard input has requests, standard output
// replies: four bytes with the length, little-endian, then that many bytes of a
// TraceProcessorRpcStream (perfetto/protos/perfetto/trace_processor/trace_processor.proto).
'use strict';
const fs = require('fs');
const path = require('path');
const vm = require('vm');

const script = path.resolve(process.argv[2]);
const folder = path.dirname(script);

// What a web worker has and Node has not.
globalThis.self = globalThis;
globalThis.location = {href: 'http://perfetto/engine_bundle.js'};
globalThis.WorkerGlobalScope = function () {};
globalThis.XMLHttpRequest = class {
  open(method, name) { this.file = path.join(folder, path.basename(name)); }
  send() { this.response = fs.readFileSync(this.file); }
};
globalThis.console = new console.Console(process.stderr, process.stderr);
// Without `process`, by which the module would take Node for its environment.
vm.runInThisContext(`(function (process) {${fs.readFileSync(script, 'utf8')}\n})`)(undefined);

const port = {
  postMessage(reply) {
    const length = Buffer.alloc(4);
    length.writeUInt32LE(reply.length);
    fs.writeSync(1, length);
    for (let done = 0; done < reply.length;) done += fs.writeSync(1, reply, done);
  },
};
globalThis.onmessage({data: port});

function read(length) {
  const bytes = Buffer.alloc(length);
  for (let done = 0; done < length;) {
    const count = fs.readSync(0, bytes, done, length - done, null);
    if (count === 0) process.exit(0);
    done += count;
  }
  return bytes;
}

function serve() {
  for (;;) port.onmessage({data: new Uint8Array(read(read(4).readUInt32LE()))});
}

setImmediate(serve);  // the script has loaded the module, and now answers
