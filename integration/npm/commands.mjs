// What client-v1.mjs and client-v2.mjs have in common: their commands, and one JSON document on stdout.
//
// A session is what each of them makes of its SDK:
//   era, protocolVersion, serverInfo   what was negotiated
//   listPage(cursor)                   one tools/list result, as the SDK hands it on
//   callTool(params, options)          one tools/call result, as the SDK hands it on
//   client                             the SDK's client, where both versions have the same method
//   ping()                             whatever this era has for "are you there"; returns the method used
//   watch(onChanged)                   hear of changes to the list of tools; returns when the server would tell
//   tap                                what the transport saw, from wireTap below
//   terminate(), close()               end the session at the server; let go of it here

import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const commands = {
  async list(session) {
    const { raw, tools } = await listTools(session);
    return { ...identity(session), tools, raw };
  },

  async call(session, name, args) {
    return session.callTool({ name, arguments: args });
  },

  async progress(session, name, args) {
    return withProgress(session, { name, arguments: args });
  },

  async calls(session, json) {
    const results = [];
    for (const { progress, ...call } of JSON.parse(json)) {
      results.push(progress ? await withProgress(session, call) : { result: await session.callTool(call) });
    }
    return results;
  },

  async ask(session, name, args) {
    const result = await session.callTool({ name, arguments: args });
    return { ...identity(session), questions: session.questions, result };
  },

  async use(session, json) {
    const offered = session.client.getServerCapabilities();
    const { tools, raw } = await listTools(session);
    const used = { ...identity(session), tools, raw, resources: [], prompts: [], results: [], questions: session.questions };
    for (const { name, arguments: args } of JSON.parse(json)) {
      used.results.push(await settle(session.callTool({ name, arguments: args })));
    }
    if (offered.resources !== undefined) {
      for (const { uri } of (await session.client.listResources()).resources) {
        used.resources.push({ uri, ...(await settle(session.client.readResource({ uri }))) });
      }
    }
    if (offered.prompts !== undefined) {
      for (const { name, arguments: needs = [] } of (await session.client.listPrompts()).prompts) {
        const args = Object.fromEntries(needs.map((need) => [need.name, "x"]));
        used.prompts.push({ name, ...(await settle(session.client.getPrompt({ name, arguments: args }))) });
      }
    }
    return used;
  },

  async story(session, name, args) {
    const { tools } = await listTools(session);
    const result = await session.callTool({ name, arguments: args });
    const alive = await session.ping();
    const hadSession = session.tap.sessionId !== null;
    await session.terminate();
    return { ...identity(session), tools, result, alive, hadSession, deleteStatus: session.tap.deleteStatus };
  },

  async watch(session) {
    // One after the other, so that the lines come in the order of the notifications.
    let writing = session.watch(() => {
      writing = writing.then(async () => write({ changed: (await listTools(session)).tools }));
      return writing;
    });
    await writing;
    write({ ready: (await listTools(session)).tools });
    session.tap.onstream = () => write({ reopened: true });
    await aLine();
    await writing;
    return undefined;
  },

  async restart(session) {
    write({ ready: (await listTools(session)).tools });
    await aLine();
    session.tap.methods.length = 0;
    const alive = await session.ping();
    const { tools } = await listTools(session);
    return { tools, alive, methods: session.tap.methods };
  },
};

const withoutName = ["list", "watch", "restart"];

/** asked are the commands for which a client says that it can be asked everything. */
export const asked = ["ask", "use"];

/** capabilities are what a client says that it can do, for one of asked and for another command. */
export const capabilities = (command) =>
  asked.includes(command) ? { elicitation: { form: {}, url: {} }, sampling: {}, roots: { listChanged: true } } : {};

/** credentials are the headers of a client that has an API key, or names its folder, in the environment. */
export const credentials = () => ({
  ...(process.env.JUNCTION_KEY ? { Authorization: `Bearer ${process.env.JUNCTION_KEY}` } : {}),
  ...(process.env.FOLDER_HEADER ? { "Junction-Folder": process.env.FOLDER_HEADER } : {}),
});

/** bridge returns the command through which a client reaches a URL over stdio; without $JUNCTION_STDIO it uses HTTP. */
export const bridge = process.env.JUNCTION_STDIO
  ? (url) => ({ command: process.env.JUNCTION_STDIO, args: ["stdio", "--url", url], cwd: process.env.FOLDER_STDIO, env: process.env, stderr: "inherit" })
  : undefined;

/**
 * answering returns the handlers of all questions, by method, and what they were asked, as {method, params}. A form is
 * filled with its defaults, else with the first choice, else with something of the type.
 */
export function answering() {
  const questions = [];
  const handler = (method, answer) => async (request) => {
    const { _meta, ...params } = request.params ?? {};
    questions.push({ method, params });
    return answer(params);
  };
  const fill = (field) =>
    field.default ??
    field.enum?.[0] ??
    field.oneOf?.[0].const ??
    { boolean: true, integer: 7, number: 7, array: field.items?.enum?.slice(0, 1) ?? field.items?.anyOf?.slice(0, 1).map((one) => one.const) }[field.type] ??
    { email: "anna@example.com", uri: "https://example.com/", date: "2026-11-21", "date-time": "2026-11-21T00:00:00Z" }[field.format] ??
    "Anna";
  const handlers = {
    "elicitation/create": handler("elicitation/create", ({ mode, requestedSchema }) =>
      mode === "url"
        ? { action: "accept" }
        : { action: "accept", content: Object.fromEntries(Object.entries(requestedSchema.properties).map(([name, field]) => [name, fill(field)])) },
    ),
    "sampling/createMessage": handler("sampling/createMessage", ({ messages }) => ({
      role: "assistant",
      model: "a model",
      stopReason: "endTurn",
      // Asked for JSON, the model gives it only when it is told that its first answer was none.
      content: { type: "text", text: /cannot be used/.test(JSON.stringify(messages)) ? '{"capital":"Paris"}' : "Paris, says the model." },
    })),
    "roots/list": handler("roots/list", () => ({ roots: [{ uri: pathToFileURL(process.env.FOLDER_ROOT ?? "/tmp/here").href, name: "here" }] })),
  };
  return { handlers, questions };
}

// withProgress calls a tool, and returns its result with the progress that the SDK reported.
async function withProgress(session, call) {
  const progress = [];
  const onprogress = (event) => progress.push(event);
  const result = await session.callTool(call, { onprogress, resetTimeoutOnProgress: true });
  return { progress, result };
}

// settle waits for an answer, good or bad.
async function settle(answer) {
  try {
    return { result: await answer };
  } catch (error) {
    return { error: describe(error) };
  }
}

function write(document) {
  process.stdout.write(`${JSON.stringify(document)}\n`);
}

// aLine returns when standard input has given a line, or has ended.
async function aLine() {
  for await (const chunk of process.stdin) {
    if (chunk.includes("\n")) {
      return;
    }
  }
}

function identity(session) {
  return { serverInfo: session.serverInfo, protocolVersion: session.protocolVersion, era: session.era };
}

// Both SDKs drop from a listed tool what their schema does not know, and 2.x leaves out tools whose headers it
// cannot send. So the names are those that the SDK offers to its caller, and raw is what came over the wire.
async function listTools(session) {
  const tools = [];
  let cursor;
  do {
    const page = await session.listPage(cursor);
    tools.push(...page.tools.map((tool) => tool.name));
    cursor = page.nextCursor;
  } while (cursor !== undefined);
  const [first, ...rest] = session.tap.toolLists.splice(0);
  const { nextCursor, ...raw } = first ?? { tools: [] };
  raw.tools = [...raw.tools, ...rest.flatMap((page) => page.tools)];
  return { tools, raw };
}

/**
 * wireTap watches one transport: the pages of tools that came, the methods that were posted, the session id, the
 * status of the DELETE. streaming is settled when the server has opened the GET stream of the legacy era, and
 * onstream is called each time that it does. Its fetch goes into the transport's options, its onmessage onto the
 * transport before the SDK connects: both SDKs call a handler that is there already before their own.
 */
export function wireTap() {
  let streamOpened;
  const streaming = new Promise((resolve) => (streamOpened = resolve));
  if (bridge) {
    streamOpened(); // the bridge opens it
  }
  const tap = {
    toolLists: [],
    methods: [],
    sessionId: null,
    deleteStatus: null,
    streaming,
    onstream: undefined,
    async fetch(url, init) {
      if (typeof init?.body === "string") {
        tap.methods.push(JSON.parse(init.body).method);
      }
      const response = await fetch(url, init);
      tap.sessionId = response.headers.get("mcp-session-id") ?? tap.sessionId;
      if (init?.method === "DELETE") {
        tap.deleteStatus = response.status;
      }
      if (init?.method === "GET" && response.ok) {
        streamOpened();
        tap.onstream?.();
      }
      return response;
    },
    onmessage(message) {
      if (Array.isArray(message.result?.tools)) {
        tap.toolLists.push(message.result);
      }
    },
  };
  return tap;
}

/**
 * main runs one command against the session that connect(url, command) opens, and ends the process: 0 with the command's
 * document if it has one, 1 with {error: {code, message, data, name}} if connecting or the command failed, 2 for wrong usage.
 * A result with isError is a result. Instead of a URL, "-" is a process that is kept: each line of its standard input is
 * such a command with its URL, [URL, COMMAND, ...], which gets a line {code, document}.
 */
export async function main(usage, connect, [url, ...args]) {
  if (url !== "-") {
    const { code, document } = await once(connect, url, args);
    if (code === 2) {
      process.stderr.write(`usage: ${usage} list | call NAME [JSON] | progress NAME [JSON] | calls JSON | story NAME [JSON] | ask NAME [JSON] | use JSON | watch | restart\n`);
    }
    // Standard output may be a pipe that takes its time: leave only when it has everything.
    process.stdout.write(document === undefined ? "" : `${JSON.stringify(document)}\n`, () => process.exit(code));
    return;
  }
  for await (const line of createInterface({ input: process.stdin })) {
    const [url, ...args] = JSON.parse(line);
    write(await once(connect, url, args));
  }
  process.exit(0);
}

async function once(connect, url, [command, name, json = "{}"]) {
  const run = Object.hasOwn(commands, command ?? "") ? commands[command] : undefined;
  const args = parse(json);
  if (run === undefined || args === undefined || (!withoutName.includes(command) && name === undefined)) {
    return { code: 2 };
  }
  let session;
  try {
    session = await connect(url, command);
    return { code: 0, document: await run(session, name, args) };
  } catch (error) {
    return { code: 1, document: { error: describe(error) } };
  } finally {
    await session?.close().catch(() => {});
  }
}

function parse(json) {
  try {
    return JSON.parse(json);
  } catch {
    return undefined;
  }
}

// A JSON-RPC error has a number for its code. 1.x gives an HTTP status as a number too, 2.x a word and the status
// in data. Without a code it is a matter of the network, and the cause knows more.
function describe(error) {
  const code = error.code ?? error.cause?.code ?? null;
  // 1.x puts the code in front of what the server wrote.
  const message = error.message.replace(/^MCP error -?\d+: /, "");
  return { code, message, data: error.data ?? null, name: error.constructor.name };
}
