// Serves server-everything over HTTP for a test, without the faults that its own main program has for that:
// it prints the PORT it was asked for, not the one it got; it prints its readiness line also when the port is
// taken; it listens on every interface; it logs on standard output; and it outlives a test that was killed.
//
// Usage: node serve.mjs streamableHttp|sse [PORT]
// Prints {"url": "..."} on standard output once it accepts connections, everything else on standard error,
// and ends with 0 when its standard input is closed, with 1 when it cannot listen.
// Without PORT, or with 0, the system chooses one.
import net from "node:net";

const paths = { streamableHttp: "/mcp", sse: "/sse" };

const [mode, port = "0"] = process.argv.slice(2);
if (!Object.hasOwn(paths, mode ?? "")) {
  process.stderr.write("usage: serve.mjs streamableHttp|sse [PORT]\n");
  process.exit(2);
}

// Only the server under test calls listen in this process, once.
const listen = net.Server.prototype.listen;
net.Server.prototype.listen = function () {
  this.prependListener("error", (error) => {
    process.stderr.write(`cannot listen: ${error.message}\n`);
    process.exit(1);
  });
  this.once("listening", () => {
    const url = `http://127.0.0.1:${this.address().port}${paths[mode]}`;
    process.stdout.write(`${JSON.stringify({ url })}\n`);
  });
  return listen.call(this, { port: Number(port), host: "127.0.0.1" });
};
console.log = console.error;

process.stdin.resume();
process.stdin.once("end", () => {
  process.stderr.write("standard input was closed: stopping\n");
  process.exit(0);
});

process.argv.splice(2, Infinity, mode);
await import("@modelcontextprotocol/server-everything/dist/index.js");
