// An MCP client made with version 2 of the TypeScript SDK, which speaks both eras.
// Usage: node client-v2.mjs legacy|auto|modern URL COMMAND ...; the commands are in commands.mjs.
//
// auto asks with server/discover and falls back to initialize; modern takes nothing but 2026-07-28.
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";
import { answering, asked, bridge, capabilities, credentials, main, wireTap } from "./commands.mjs";

const modes = { legacy: "legacy", auto: "auto", modern: { pin: "2026-07-28" } };

const [era, ...args] = process.argv.slice(2);

async function connect(url, command) {
  const tap = wireTap();
  const transport = bridge
    ? new StdioClientTransport(bridge(url))
    : new StreamableHTTPClientTransport(new URL(url), { fetch: tap.fetch, requestInit: { headers: credentials() } });
  transport.onmessage = tap.onmessage;
  const client = new Client({ name: "client-v2", version: "2.4.0" }, { capabilities: capabilities(command), versionNegotiation: { mode: modes[era] } });
  const { handlers, questions } = answering();
  if (asked.includes(command)) {
    for (const [method, handler] of Object.entries(handlers)) {
      client.setRequestHandler(method, handler);
    }
  }
  await client.connect(transport);
  return {
    era: client.getProtocolEra(),
    protocolVersion: client.getNegotiatedProtocolVersion(),
    serverInfo: client.getServerVersion(),
    tap,
    client,
    questions,
    // Without a cursor this is the whole list: the SDK walks the pages, which also fills the cache from which
    // callTool takes the Mcp-Param-* headers of a tool.
    listPage: () => client.listTools(),
    callTool: (params, options) => client.callTool(params, options),
    async ping() {
      // The modern era has no ping.
      if (client.getProtocolEra() === "modern") {
        await client.discover();
        return "server/discover";
      }
      await client.ping();
      return "ping";
    },
    async watch(onChanged) {
      client.setNotificationHandler("notifications/tools/list_changed", onChanged);
      if (client.getProtocolEra() === "modern") {
        await client.listen({ toolsListChanged: true });
        return;
      }
      await tap.streaming;
    },
    terminate: () => transport.terminateSession(),
    close: () => client.close(),
  };
}

await main("client-v2.mjs legacy|auto|modern URL", connect, Object.hasOwn(modes, era ?? "") ? args : []);
