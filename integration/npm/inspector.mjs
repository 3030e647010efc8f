// Runs the command line of the official MCP Inspector.
//
// Usage: node inspector.mjs legacy|auto|modern URL METHOD [OPTION ...]
// The options are the inspector's own, such as --tool-name NAME --tool-args-json JSON.
// Its result goes to standard output as {"result": ...}, its failure to standard error as {"error": ...}, and the
// exit code is its own: 0, 1 wrong usage or other, 3 sign-in needed, 4 unreachable, 5 the tool failed or is unknown.
// Two more are this script's: 64 wrong usage, 69 no Node for the inspector on this platform.
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { run } from "./newer.mjs";

const [era, url, method, ...options] = process.argv.slice(2);
if (!["legacy", "auto", "modern"].includes(era) || method === undefined) {
  process.stderr.write("usage: inspector.mjs legacy|auto|modern URL METHOD [OPTION ...]\n");
  process.exit(64);
}

// The inspector keeps a catalog and tokens in its user's home, which a test must neither read nor change.
const home = mkdtempSync(join(tmpdir(), "inspector-"));
const status = run(
  join("@modelcontextprotocol", "inspector", "clients", "launcher", "build", "index.js"),
  [
    ...["--cli", "--transport", "http", "--server-url", url, "--protocol-era", era, "--method", method],
    ...["--format", "json", "--quiet", "--stored-auth-only", ...options],
  ],
  { ...process.env, HOME: home },
);
rmSync(home, { recursive: true, force: true });
process.exit(status);
