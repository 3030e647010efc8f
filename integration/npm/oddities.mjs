// The reference clients of foreign/oddities that are made with the TypeScript SDK: version 1, or version 2, which speaks both eras.
//
// Usage: node oddities.mjs v1|v2
// Each line of standard input is a server, {url} or {command, args, env}, with {calls, again, signIn, client}. The client connects, lists the tools and
// calls the first one so often; with again it connects anew after a call that failed, once for each. signIn is whether it can sign in, without a person; client
// is {client_id, client_secret} of a registered client. call is a request in place of the call of a tool; relist lists the tools once more at the end; asked is
// whether the client declares and answers requests of the server, and extends whether it declares an extension. It prints a line {tools, answers, notes}, and {error} where something failed.
import dns from "node:dns";
import { createInterface } from "node:readline";

const [version] = process.argv.slice(2);
if (!["v1", "v2"].includes(version)) {
  process.stderr.write("usage: oddities.mjs v1|v2\n");
  process.exit(2);
}
const sdk =
  version === "v2"
    ? { ...(await import("@modelcontextprotocol/client")), ...(await import("@modelcontextprotocol/client/stdio")) }
    : {
        ...(await import("@modelcontextprotocol/sdk/client/index.js")),
        ...(await import("@modelcontextprotocol/sdk/client/streamableHttp.js")),
        ...(await import("@modelcontextprotocol/sdk/client/sse.js")),
        ...(await import("@modelcontextprotocol/sdk/client/stdio.js")),
        ...(await import("@modelcontextprotocol/sdk/client/auth.js")),
        ...(await import("@modelcontextprotocol/sdk/types.js")),
      };

// Standard output is for lines alone.
console.log = console.debug = console.info = console.error;

const limit = { timeout: 5000 };

// Names of .example are this machine.
const { lookup } = dns;
dns.lookup = (name, options, done) => lookup(name.endsWith(".example") ? "127.0.0.1" : name, options, done);

// provider keeps what a sign-in gives. It visits the page itself, which sends it back at once.
function provider(registered) {
  const kept = { client: registered };
  const redirectUrl = "http://127.0.0.1:61802/callback";
  return {
    kept,
    redirectUrl,
    clientMetadata: { client_name: "odd", redirect_uris: [redirectUrl], grant_types: ["authorization_code", "refresh_token"] },
    state: () => "a state",
    clientInformation: () => kept.client,
    saveClientInformation: (client) => void (kept.client = client),
    tokens: () => kept.tokens,
    saveTokens: (tokens) => void (kept.tokens = tokens),
    codeVerifier: () => kept.verifier,
    saveCodeVerifier: (verifier) => void (kept.verifier = verifier),
    discoveryState: () => kept.discovery,
    saveDiscoveryState: (discovery) => void (kept.discovery = discovery),
    async redirectToAuthorization(where) {
      const page = await fetch(where, { redirect: "manual" });
      const back = page.headers.get("location");
      if (back === null) {
        throw new Error(`the page answers ${page.status}`);
      }
      kept.back = new URL(back).searchParams;
    },
  };
}

function transportTo({ url, command, args, env, wire }, authProvider) {
  if (command) {
    return new sdk.StdioClientTransport({ command, args, env: { ...process.env, ...env }, stderr: "ignore" });
  }
  const Transport = wire === "sse" ? sdk.SSEClientTransport : sdk.StreamableHTTPClientTransport;
  return new Transport(new URL(url), { authProvider });
}

// replies are what the client answers to requests of the server.
const replies = {
  "elicitation/create": { action: "accept", content: {} },
  "sampling/createMessage": { role: "assistant", content: { type: "text", text: "x" }, model: "m" },
  "roots/list": { roots: [] },
};

function newClient({ asked, extends: extending }, notes) {
  const capabilities = {
    ...(asked && { elicitation: { form: {}, url: {} }, sampling: {}, roots: {} }),
    ...(extending && { extensions: { "com.example/strange": {} } }),
  };
  const client = new sdk.Client({ name: "odd", version: "1" }, { capabilities, ...(version === "v2" ? { versionNegotiation: { mode: "auto" } } : {}) });
  if (asked) {
    const of = version === "v2" ? (method) => method : (method) => ({ "elicitation/create": sdk.ElicitRequestSchema, "sampling/createMessage": sdk.CreateMessageRequestSchema, "roots/list": sdk.ListRootsRequestSchema })[method];
    for (const [method, reply] of Object.entries(replies)) {
      client.setRequestHandler(of(method), async () => reply);
    }
  }
  client.fallbackNotificationHandler = async ({ method }) => {
    if (method.startsWith("notifications/strange")) {
      notes.push(method);
    }
  };
  return client;
}

// sorted is a text of a result, without the members that every result may have.
function sorted({ _meta, resultType, ttlMs, cacheScope, ...result }) {
  return JSON.stringify(result, (_, value) =>
    value && typeof value === "object" && !Array.isArray(value) ? Object.fromEntries(Object.entries(value).sort()) : value,
  );
}

// whatever is the schema of every result.
const whatever = { "~standard": { version: 1, vendor: "odd", validate: (value) => ({ value }) } };

// called does what the row calls, and returns the answer as a text.
async function called(client, server, tool) {
  if (server.call) {
    const [, method, params] = /^(\S+) (.*)$/.exec(server.call);
    const request = { method, params: JSON.parse(params) };
    return sorted(await client.request(request, version === "v2" ? whatever : sdk.ResultSchema, limit));
  }
  const params = { name: tool, arguments: {} };
  const result = await (version === "v2" ? client.callTool(params, limit) : client.callTool(params, undefined, limit));
  const text = result.content.map((part) => part.text ?? "").join("");
  return result.isError ? `error: ${text}` : text;
}

// signedIn does something that may need a sign-in: what needs it is done again with a new transport.
async function connected(server, authProvider, found, use) {
  for (let signIns = 0; ; signIns++) {
    const transport = transportTo(server, authProvider);
    const client = newClient(server, found.notes);
    try {
      await client.connect(transport, limit);
      return await use(client);
    } catch (error) {
      if (!(error instanceof sdk.UnauthorizedError) || authProvider?.kept.back === undefined || signIns === 2) {
        throw error;
      }
      const back = authProvider.kept.back;
      authProvider.kept.back = undefined;
      await (version === "v2" ? transport.finishAuth(back) : transport.finishAuth(back.get("code")));
    } finally {
      await client.close().catch(() => {});
    }
  }
}

async function listed(client) {
  const tools = [];
  let cursor;
  for (let pages = 0; pages < 50; pages++) {
    const page = await (version === "v2" ? client.listTools(undefined, limit) : client.listTools({ cursor }, limit));
    tools.push(...page.tools.map((tool) => tool.name));
    cursor = page.nextCursor;
    if (cursor === undefined) {
      return tools;
    }
  }
  throw new Error("the list has no end");
}

async function tried(server) {
  const found = { tools: [], answers: [], notes: [] };
  const authProvider = server.signIn ? provider(server.client) : undefined;
  try {
    for (let more = true; more; ) {
      more = await connected(server, authProvider, found, async (client) => {
        found.tools = await listed(client);
        while ((server.call || found.tools.length > 0) && found.answers.length < server.calls) {
          try {
            found.answers.push(await called(client, server, found.tools[0]));
            found.failed = false;
          } catch (error) {
            if (!server.again || found.failed) {
              throw error;
            }
            return (found.failed = true);
          }
        }
        if (server.relist) {
          found.tools = await listed(client);
        }
        return false;
      });
    }
  } catch (error) {
    found.error = `${error.name}: ${error.message}${error.cause?.message ? ` (${error.cause.message})` : ""}`;
  }
  return found;
}

// endless is what is printed of a server that keeps a client longer than all limits above.
const endless = () => new Promise((resolve) => setTimeout(() => resolve({ tools: [], answers: [], notes: [], error: "it has no end" }), 20000).unref());

for await (const line of createInterface({ input: process.stdin })) {
  process.stdout.write(`${JSON.stringify(await Promise.race([tried(JSON.parse(line)), endless()]))}\n`);
}
process.exit(0);
