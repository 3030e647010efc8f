// Runs programs that need a newer Node than the rest of this folder: with the Node that runs this script if that is
// new enough, else with the one that npm installed beside it.
import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

export const modules = fileURLToPath(new URL("node_modules", import.meta.url));

// runs a script of node_modules to its end and returns its exit code: 69 if there is no Node for it on this platform.
export function run(script, args, env = process.env) {
  const [major, minor] = process.versions.node.split(".").map(Number);
  const newEnough = major > 22 || (major === 22 && minor >= 19);
  const node = newEnough ? process.execPath : join(modules, `node-${process.platform}-${process.arch}`, "bin", "node");
  if (!existsSync(node)) {
    process.stderr.write(`${script} needs Node >= 22.19: this is ${process.version}, and there is no ${node}\n`);
    return 69;
  }
  const { error, status } = spawnSync(node, [join(modules, script), ...args], { stdio: ["ignore", "inherit", "inherit"], env });
  if (error !== undefined) {
    throw error;
  }
  return status ?? 1;
}
