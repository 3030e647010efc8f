// Runs the command line of the official MCP Inspector. It needs a newer Node than the rest of this folder: it gets
// the Node that runs this script if that is new enough, else the one that npm installed beside it.
//
// Usage: node inspector.mjs legacy|auto|modern URL METHOD [OPTION ...]
// The options are the inspector's own, such as --tool-name NAME --tool-args-json JSON.
// Its result goes to standard output as {"result": ...}, its failure to standard error as {"error": ...}, and the
// exit code is its own: 0, 1 wrong usage or other, 3 sign-in needed, 4 unreachable, 5 the tool failed or is unknown.
// Two more are this script's: 64 wrong usage, 69 no Node for the inspector on this platform.
import { spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const modules = fileURLToPath(new URL("node_modules", import.meta.url));

const [era, url, method, ...options] = process.argv.slice(2);
if (!["legacy", "auto", "modern"].includes(era) || method === undefined) {
  process.stderr.write("usage: inspector.mjs legacy|auto|modern URL METHOD [OPTION ...]\n");
  process.exit(64);
}

const [major, minor] = process.versions.node.split(".").map(Number);
const newEnough = major > 22 || (major === 22 && minor >= 19);
const node = newEnough ? process.execPath : join(modules, `node-${process.platform}-${process.arch}`, "bin", "node");
if (!existsSync(node)) {
  process.stderr.write(`the inspector needs Node >= 22.19: this is ${process.version}, and there is no ${node}\n`);
  process.exit(69);
}

// The inspector keeps a catalog and tokens in its user's home, which a test must neither read nor change.
const home = mkdtempSync(join(tmpdir(), "inspector-"));
const { error, status } = spawnSync(
  node,
  [
    join(modules, "@modelcontextprotocol", "inspector", "clients", "launcher", "build", "index.js"),
    ...["--cli", "--transport", "http", "--server-url", url, "--protocol-era", era, "--method", method],
    ...["--format", "json", "--quiet", "--stored-auth-only", ...options],
  ],
  { stdio: ["ignore", "inherit", "inherit"], env: { ...process.env, HOME: home } },
);
rmSync(home, { recursive: true, force: true });
if (error !== undefined) {
  throw error;
}
process.exit(status ?? 1);
