// node editor.mjs FILE [hover|complete LINE CHARACTER …]: opens a YAML file in the language server for
// YAML, and prints {diagnostics, answers} as JSON: the messages of its diagnostics, and for each question
// the text of the hover, or the labels of the completions with their documentation. Lines and characters
// begin with 0.

import { spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { pathToFileURL } from "node:url";

const [file, ...questions] = process.argv.slice(2);
const home = dirname(createRequire(import.meta.url).resolve("yaml-language-server/package.json"));
const server = spawn(process.execPath, [join(home, "bin", "yaml-language-server"), "--stdio"], {
  stdio: ["pipe", "pipe", "inherit"],
});

const waiting = new Map(); // by the id of the request
let id = 0;
let published; // is called with the first diagnostics
const diagnostics = new Promise((resolve) => (published = resolve));

function send(message) {
  const body = JSON.stringify({ jsonrpc: "2.0", ...message });
  server.stdin.write(`Content-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`);
}

function ask(method, params) {
  return new Promise((resolve, reject) => {
    waiting.set(++id, { resolve, reject });
    send({ id, method, params });
  });
}

function receive(message) {
  if (message.method && message.id !== undefined) {
    // The server asks for its configuration; the defaults will do.
    const items = message.params?.items ?? [];
    send({ id: message.id, result: message.method === "workspace/configuration" ? items.map(() => null) : null });
  } else if (message.id !== undefined) {
    const { resolve, reject } = waiting.get(message.id);
    message.error ? reject(new Error(message.error.message)) : resolve(message.result);
  } else if (message.method === "textDocument/publishDiagnostics") {
    published(message.params.diagnostics);
  }
}

let received = Buffer.alloc(0);
server.stdout.on("data", (data) => {
  received = Buffer.concat([received, data]);
  for (;;) {
    const end = received.indexOf("\r\n\r\n");
    if (end < 0) return;
    const length = Number(/Content-Length: (\d+)/i.exec(received.subarray(0, end).toString())[1]);
    if (received.length < end + 4 + length) return;
    const message = received.subarray(end + 4, end + 4 + length);
    received = received.subarray(end + 4 + length);
    receive(JSON.parse(message));
  }
});

const textDocument = { uri: pathToFileURL(file).href };
await ask("initialize", { processId: process.pid, rootUri: null, capabilities: {} });
send({ method: "initialized", params: {} });
const text = readFileSync(file, "utf8");
send({
  method: "textDocument/didOpen",
  params: { textDocument: { ...textDocument, languageId: "yaml", version: 1, text } },
});
const found = (await diagnostics).map((d) => d.message);
const answers = [];
for (let i = 0; i + 2 < questions.length; i += 3) {
  const position = { line: Number(questions[i + 1]), character: Number(questions[i + 2]) };
  if (questions[i] === "hover") {
    const hover = await ask("textDocument/hover", { textDocument, position });
    answers.push({ text: hover?.contents.value ?? "" });
  } else {
    const completions = await ask("textDocument/completion", { textDocument, position });
    const labels = {};
    for (const item of completions?.items ?? completions ?? []) {
      labels[item.label] = item.documentation?.value ?? item.documentation ?? "";
    }
    answers.push({ labels });
  }
}
console.log(JSON.stringify({ diagnostics: found, answers }));
server.kill();
