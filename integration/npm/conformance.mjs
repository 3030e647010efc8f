// Runs the official conformance suite.
//
// Usage: node conformance.mjs server --url URL --requirements REVISION -o DIR, and whatever else the suite has.
// What it checked is in DIR, one folder for each scenario; the exit code is the suite's own, or 69 for no Node.
import { join } from "node:path";
import { run } from "./newer.mjs";

process.exit(run(join("@modelcontextprotocol", "conformance", "dist", "index.js"), process.argv.slice(2)));
