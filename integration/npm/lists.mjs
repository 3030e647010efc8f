// What the TypeScript SDK accepts in a list.
// Usage: node lists.mjs v1|legacy|modern URL < {"tools": [...], "prompts": [...], "resources": [...], "resourceTemplates": [...]}
//
// v1 is the SDK's version 1, the others are version 2 in that era. It prints {listed, accepted}. listed has the keys of the items in each
// list at the URL, or why the SDK rejected that list. accepted says of each definition of standard input whether the SDK accepts a list
// that has this definition alone, and why not: null, or the message.
const [which, url] = process.argv.slice(2);
const v1 = which === "v1";
const sdk = v1 ? await import("@modelcontextprotocol/sdk/client/index.js") : await import("@modelcontextprotocol/client");
const { StreamableHTTPClientTransport } = v1 ? await import("@modelcontextprotocol/sdk/client/streamableHttp.js") : sdk;

const lists = {
  "tools/list": { member: "tools", key: "name", call: (client) => client.listTools() },
  "prompts/list": { member: "prompts", key: "name", call: (client) => client.listPrompts() },
  "resources/list": { member: "resources", key: "uri", call: (client) => client.listResources() },
  "resources/templates/list": { member: "resourceTemplates", key: "uriTemplate", call: (client) => client.listResourceTemplates() },
};

const newClient = () =>
  new sdk.Client({ name: "lists", version: "1" }, { versionNegotiation: { mode: which === "modern" ? { pin: "2026-07-28" } : "legacy" } });

const client = newClient();
await client.connect(new StreamableHTTPClientTransport(new URL(url)));
const listed = {};
for (const { member, key, call } of Object.values(lists)) {
  try {
    listed[member] = { keys: (await call(client))[member].map((item) => item[key]) };
  } catch (error) {
    listed[member] = { error: error.message };
  }
}
await client.close();

// server is a transport to a server that lists one definition.
const capabilities = { tools: {}, prompts: {}, resources: {} };
const server = {
  definition: undefined,
  async start() {},
  async close() {},
  async send({ id, method }) {
    if (id === undefined) {
      return;
    }
    const serverInfo = { name: "one", version: "1" };
    const fresh = { ttlMs: 0, cacheScope: "private", resultType: "complete" };
    const result = {
      initialize: () => ({ protocolVersion: "2025-11-25", capabilities, serverInfo }),
      "server/discover": () => ({ supportedVersions: ["2026-07-28"], capabilities, ...fresh }),
    }[method] ?? (() => ({ [lists[method].member]: [this.definition], ...fresh }));
    queueMicrotask(() => this.onmessage({ jsonrpc: "2.0", id, result: result() }));
  },
};
const alone = newClient();
await alone.connect(server);

let input = "";
for await (const chunk of process.stdin) {
  input += chunk;
}
const definitions = JSON.parse(input);
const accepted = {};
for (const { member, call } of Object.values(lists)) {
  accepted[member] = [];
  for (server.definition of definitions[member]) {
    try {
      await call(alone);
      accepted[member].push(null);
    } catch (error) {
      accepted[member].push(error.message);
    }
  }
}
process.stdout.write(`${JSON.stringify({ listed, accepted })}\n`, () => process.exit(0));
