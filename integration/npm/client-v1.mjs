// An MCP client made with version 1 of the TypeScript SDK, which speaks the legacy era only.
// Usage: node client-v1.mjs URL COMMAND ...; the commands are in commands.mjs.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { CreateMessageRequestSchema, ElicitRequestSchema, ListRootsRequestSchema, ToolListChangedNotificationSchema } from "@modelcontextprotocol/sdk/types.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { answering, asked, bridge, capabilities, credentials, main, wireTap } from "./commands.mjs";

async function connect(url, command) {
  const tap = wireTap();
  const transport = bridge
    ? new StdioClientTransport(bridge(url))
    : new StreamableHTTPClientTransport(new URL(url), { fetch: tap.fetch, requestInit: { headers: credentials() } });
  transport.onmessage = tap.onmessage;
  const client = new Client({ name: "client-v1", version: "1.32.2" }, { capabilities: capabilities(command) });
  const { handlers, questions } = answering();
  if (asked.includes(command)) {
    client.setRequestHandler(ElicitRequestSchema, handlers["elicitation/create"]);
    client.setRequestHandler(CreateMessageRequestSchema, handlers["sampling/createMessage"]);
    client.setRequestHandler(ListRootsRequestSchema, handlers["roots/list"]);
  }
  await client.connect(transport);
  return {
    era: "legacy",
    protocolVersion: transport.protocolVersion,
    serverInfo: client.getServerVersion(),
    tap,
    client,
    questions,
    listPage: (cursor) => client.listTools({ cursor }),
    callTool: (params, options) => client.callTool(params, undefined, options),
    async ping() {
      await client.ping();
      return "ping";
    },
    async watch(onChanged) {
      client.setNotificationHandler(ToolListChangedNotificationSchema, onChanged);
      await tap.streaming;
    },
    terminate: () => transport.terminateSession(),
    close: () => client.close(),
  };
}

await main("client-v1.mjs URL", connect, process.argv.slice(2));
