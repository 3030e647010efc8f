// The authorization server of an MCP server, made with oidc-provider: apps register by themselves, tokens are for one resource, refresh tokens are replaced at each use.
//
// Usage: node as.mjs RESOURCE [CLIENTS [TLS]]
// CLIENTS are clients in JSON that it knows, such as those with the client credentials grant.
// TLS is {"cert": FILE, "key": FILE, "ca": FILE} in JSON: then it speaks TLS, asks for certificates of clients, and knows those of ca (tls_client_auth).
// Prints {"issuer": "..."} on standard output once it accepts connections, everything else on standard error. It listens on loopback, on a port that the system chooses.
// Access tokens are JWTs for the resource; whoever signs in is let in by whatever password. It ends with 0 when standard input is closed.
import { readFileSync } from "node:fs";
import http from "node:http";
import https from "node:https";
import Provider from "oidc-provider";

console.log = console.warn = console.info = console.error;

const [resource, clients = "[]", tls] = process.argv.slice(2);
const files = Object.fromEntries(Object.entries(JSON.parse(tls ?? "{}")).map(([name, file]) => [name, readFileSync(file)]));
const server = tls ? https.createServer({ ...files, requestCert: true, rejectUnauthorized: false }) : http.createServer();
await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
const issuer = `${tls ? "https" : "http"}://127.0.0.1:${server.address().port}`;

const provider = new Provider(issuer, {
  scopes: ["openid", "offline_access", "read"],
  cookies: {
    keys: ["a key for the cookies of a test"],
    names: { session: "_as_session", interaction: "_as_interaction", resume: "_as_resume" }, // browsers tell cookies apart by host, and not by port
  },
  clients: JSON.parse(clients),
  fetch: (url, { dispatcher, ...options }) => globalThis.fetch(url, options), // the keys of clients are on loopback
  ...(tls && { clientAuthMethods: ["client_secret_basic", "tls_client_auth"] }),
  features: {
    mTLS: {
      enabled: Boolean(tls),
      tlsClientAuth: true,
      getCertificate: (ctx) => ctx.socket.getPeerX509Certificate?.(),
      certificateAuthorized: (ctx) => ctx.socket.authorized,
      certificateSubjectMatches: (ctx, property, expected) => property === "tls_client_auth_san_dns" && ctx.socket.getPeerX509Certificate().checkHost(expected) !== undefined,
    },
    clientCredentials: { enabled: true },
    registration: { enabled: true },
    revocation: { enabled: true },
    resourceIndicators: {
      enabled: true,
      getResourceServerInfo: (ctx, indicator) => {
        if (indicator !== resource) {
          throw new Error(`nobody knows ${indicator}`);
        }
        return { scope: "read", audience: resource, accessTokenTTL: 3600, accessTokenFormat: "jwt" };
      },
      useGrantedResource: () => true,
    },
  },
  rotateRefreshToken: true,
  findAccount: (ctx, id) => ({ accountId: id, claims: () => ({ sub: id }) }),
});
for (const event of ["server_error", "grant.error", "authorization.error", "registration_create.error", "revocation.error", "jwks.error"]) {
  provider.on(event, (ctx, error) => console.error(event, error.message, error.error_detail, error.error_description));
}
server.on("request", provider.callback());
process.stdout.write(`${JSON.stringify({ issuer })}\n`);
for await (const _ of process.stdin);
process.exit(0);
