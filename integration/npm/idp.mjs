// OpenID Connect providers made with oidc-provider, as organisations may have them: with their own pages to sign in and to agree,
// refresh tokens that are replaced at each use, and e-mail and groups at the userinfo endpoint alone.
//
// Usage: node idp.mjs
// Each line on standard input is an order, a JSON document, and is answered by one:
//   {"open": [REDIRECT_URI, ...]}               opens a provider, {"issuer": "..."}. It listens on loopback, on a port that the
//                                               system chooses. Its client is junction, with the secret canary-s3cret; whoever
//                                               signs in is let in by whatever password. It shares nothing with the others.
//   {"issuer": "...", "order": "disable NAME"}  NAME cannot sign in any more, and their refresh tokens are no good
//   {"issuer": "...", "order": "groups NAME A,B"}  the groups of NAME, engineering before that
//   {"issuer": "...", "order": "logout NAME"}   logs NAME out at the client: a logout token without sid. The page /session/end
//                                               sends one with sid
//   {"issuer": "...", "order": "close"}         closes the provider
// The answer to an order is {"done": "..."} with the order, or with the error. It ends with 0 when standard input is closed.
import http from "node:http";
import readline from "node:readline";
import Provider from "oidc-provider";

console.log = console.warn = console.info = console.error;

// open opens a provider for these redirect URIs.
async function open(redirects) {
  const disabled = new Set();
  const groups = new Map();
  const server = http.createServer();
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const issuer = `http://127.0.0.1:${server.address().port}`;

  const provider = new Provider(issuer, {
    clients: [
      {
        client_id: "junction",
        client_secret: "canary-s3cret",
        redirect_uris: redirects,
        grant_types: ["authorization_code", "refresh_token"],
        response_types: ["code"],
        backchannel_logout_uri: redirects[0].replace("/oauth/callback/", "/oauth/backchannel-logout/"),
        backchannel_logout_session_required: true,
      },
    ],
    claims: { openid: ["sub"], email: ["email", "email_verified"], profile: ["name", "groups"] },
    cookies: { keys: ["a key for the cookies of a test"] },
    features: { backchannelLogout: { enabled: true } },
    fetch: (url, { dispatcher, ...options }) => fetch(url, options), // that dispatcher refuses loopback
    rotateRefreshToken: true,
    issueRefreshToken: (ctx, client) => client.grantTypeAllowed("refresh_token"),
    findAccount: (ctx, id) =>
      disabled.has(id)
        ? undefined
        : {
            accountId: id,
            claims: () => ({ sub: id, name: id, email: `${id}@acme.example`, email_verified: true, groups: groups.get(id) ?? ["engineering"] }),
          },
  });
  provider.on("server_error", (ctx, error) => console.error(error));
  provider.on("grant.error", (ctx, error) => console.error(error.message, error.error_detail));
  provider.on("authorization.error", (ctx, error) => console.error(error.message, error.error_detail));
  provider.on("backchannel.error", (ctx, error) => console.error(error));
  server.on("request", provider.callback());

  return {
    issuer,
    async order([command, name, list = ""]) {
      if (command === "disable") {
        disabled.add(name);
      } else if (command === "groups") {
        groups.set(name, list.split(",").filter(Boolean));
      } else if (command === "logout") {
        await (await provider.Client.find("junction")).backchannelLogout(name);
      } else if (command === "close") {
        server.close();
        server.closeAllConnections();
      }
    },
  };
}

const providers = new Map();
for await (const line of readline.createInterface({ input: process.stdin })) {
  const { open: redirects, issuer, order } = JSON.parse(line);
  if (redirects) {
    const provider = await open(redirects);
    providers.set(provider.issuer, provider);
    process.stdout.write(`${JSON.stringify({ issuer: provider.issuer })}\n`);
    continue;
  }
  let answer = { done: order };
  try {
    await providers.get(issuer).order(order.split(" "));
  } catch (error) {
    answer = { done: `${error}` };
  }
  process.stdout.write(`${JSON.stringify(answer)}\n`);
  if (order === "close") {
    providers.delete(issuer);
  }
}
process.exit(0);
