// Signs in to an endpoint with the OAuth client of the TypeScript SDK, version 1 or 2: discovery, registration, PKCE, refresh, as the SDK does them.
//
// Usage: node sign-in.mjs v1|v2 URL
// Prints {"authorize": URL} when a browser is to go there, and waits for a line with the URL that the browser was returned to. Then it connects,
// and prints {tools, tokens, client}. After each further line it forgets its access token, so that the SDK has to refresh, lists again, and prints
// the same, or {"authorize": URL} where that did not help. It ends when standard input is closed, and with 1 and {"error": …} when something fails.
import readline from "node:readline";

const [version, url] = process.argv.slice(2);
if (!["v1", "v2"].includes(version) || url === undefined) {
  process.stderr.write("usage: sign-in.mjs v1|v2 URL\n");
  process.exit(2);
}
const { Client, StreamableHTTPClientTransport, UnauthorizedError } =
  version === "v2"
    ? await import("@modelcontextprotocol/client")
    : {
        ...(await import("@modelcontextprotocol/sdk/client/index.js")),
        ...(await import("@modelcontextprotocol/sdk/client/streamableHttp.js")),
        ...(await import("@modelcontextprotocol/sdk/client/auth.js")),
      };

const kept = {};
const authProvider = {
  redirectUrl: "http://localhost:61802/callback",
  clientMetadata: { client_name: `SDK ${version}`, redirect_uris: ["http://localhost:61802/callback"], grant_types: ["authorization_code", "refresh_token"] },
  state: () => "a state of the client",
  clientInformation: () => kept.client,
  saveClientInformation: (client) => void (kept.client = client),
  tokens: () => kept.tokens,
  saveTokens: (tokens) => void (kept.tokens = tokens),
  codeVerifier: () => kept.verifier,
  saveCodeVerifier: (verifier) => void (kept.verifier = verifier),
  discoveryState: () => kept.discovery,
  saveDiscoveryState: (discovery) => void (kept.discovery = discovery),
  redirectToAuthorization: (where) => write({ authorize: where.href }),
};

const lines = readline.createInterface({ input: process.stdin })[Symbol.asyncIterator]();

function write(document) {
  process.stdout.write(`${JSON.stringify(document)}\n`);
}

async function list() {
  const transport = new StreamableHTTPClientTransport(new URL(url), { authProvider });
  const client = new Client({ name: "sign-in", version: "1" }, { capabilities: {} });
  try {
    await client.connect(transport);
    const { tools } = await client.listTools();
    write({ tools: tools.map((tool) => tool.name), tokens: kept.tokens, client: kept.client });
  } catch (error) {
    if (!(error instanceof UnauthorizedError)) {
      throw error;
    }
    const { value, done } = await lines.next();
    if (done) {
      process.exit(0);
    }
    const answer = new URL(value).searchParams;
    await (version === "v2" ? transport.finishAuth(answer) : transport.finishAuth(answer.get("code")));
    await list();
  } finally {
    await client.close().catch(() => {});
  }
}

try {
  await list();
  for (let next = await lines.next(); !next.done; next = await lines.next()) {
    kept.tokens = { ...kept.tokens, access_token: "jct_at_forgotten" };
    await list();
  }
  process.exit(0);
} catch (error) {
  process.stdout.write(`${JSON.stringify({ error: `${error.name}: ${error.message}` })}\n`, () => process.exit(1));
}
