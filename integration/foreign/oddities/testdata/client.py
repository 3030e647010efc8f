"""The reference client of foreign/oddities that is made with the Python SDK. It does what npm/oddities.mjs says."""

import asyncio
import json
import socket
import sys

import anyio
import mcp_types as types
from mcp import Client, StdioServerParameters, stdio_client
from mcp.client.auth import OAuthClientProvider
from mcp.client.extension import ClientExtension, NotificationBinding
from mcp.client.sse import sse_client
from mcp.client.streamable_http import create_mcp_http_client, streamable_http_client
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientInformationFull, OAuthClientMetadata

import httpx2
from pydantic import BaseModel, ConfigDict

# Names of .example are this machine.
getaddrinfo = socket.getaddrinfo


def local(host, *args, **kwargs):
    name = host.decode() if isinstance(host, bytes) else host
    return getaddrinfo("127.0.0.1" if isinstance(name, str) and name.endswith(".example") else host, *args, **kwargs)


socket.getaddrinfo = local

REDIRECT = "http://127.0.0.1:61802/callback"


class Kept:
    """What a sign-in gives."""

    def __init__(self, client):
        self.client = client
        self.tokens = None
        self.back = None

    async def get_tokens(self):
        return self.tokens

    async def set_tokens(self, tokens):
        self.tokens = tokens

    async def get_client_info(self):
        return self.client

    async def set_client_info(self, client):
        self.client = client

    async def visit(self, where):
        async with httpx2.AsyncClient() as browser:
            page = await browser.get(where)
        if "location" not in page.headers:
            raise RuntimeError(f"the page answers {page.status_code}")
        self.back = httpx2.URL(page.headers["location"]).params

    async def returned(self):
        return AuthorizationCodeResult(code=self.back.get("code", ""), state=self.back.get("state"), iss=self.back.get("iss"))


def sign_in(server):
    client = None
    if server.get("client"):
        client = OAuthClientInformationFull(redirect_uris=[REDIRECT], **server["client"])
    kept = Kept(client)
    metadata = OAuthClientMetadata(
        client_name="odd", redirect_uris=[REDIRECT], grant_types=["authorization_code", "refresh_token"], token_endpoint_auth_method=None
    )
    return OAuthClientProvider(server["url"], metadata, kept, kept.visit, kept.returned)


def transport_to(server, auth):
    if server.get("command"):
        return stdio_client(
            StdioServerParameters(command=server["command"], args=server["args"], env=server["env"]), errlog=open("/dev/null", "w")
        )
    if server["wire"] == "sse":
        return sse_client(server["url"], auth=auth)
    return streamable_http_client(server["url"], http_client=create_mcp_http_client(auth=auth))


async def listed(client):
    tools, cursor = [], None
    for _ in range(50):
        page = await client.list_tools(cursor=cursor)
        tools += [tool.name for tool in page.tools]
        cursor = page.next_cursor
        if cursor is None:
            return tools
    raise RuntimeError("the list has no end")


class Whatever(BaseModel):
    model_config = ConfigDict(extra="allow")


async def elicited(context, params):
    return types.ElicitResult(action="accept", content={})


async def sampled(context, params):
    return types.CreateMessageResult(role="assistant", content=types.TextContent(type="text", text="x"), model="m")


async def roots(context):
    return types.ListRootsResult(roots=[])


def options(server, found):
    result = {}
    if server["asked"]:
        result = {"elicitation_callback": elicited, "sampling_callback": sampled, "list_roots_callback": roots}
    if server["extends"]:

        async def note(params):
            found["notes"].append("notifications/strange/news")

        class Odd(ClientExtension):
            identifier = "com.example/strange"

            def notifications(self):
                return [NotificationBinding(method="notifications/strange/news", params_type=Whatever, handler=note)]

        result["extensions"] = [Odd()]
    return result


async def called(client, server, tool):
    if server.get("call"):
        method, params = server["call"].split(" ", 1)
        data, opts = {"method": method, "params": json.loads(params)}, {"timeout": 5}
        client.session._stamp(data, opts)
        raw = await client.session._dispatcher.send_raw_request(method, data["params"], opts)
        for every in ["_meta", "resultType", "ttlMs", "cacheScope"]:
            raw.pop(every, None)
        return json.dumps(raw, sort_keys=True, separators=(",", ":"))
    result = await client.call_tool(tool, {})
    text = "".join(getattr(part, "text", "") for part in result.content)
    return "error: " + text if result.is_error else text


async def once(server, auth, found):
    async with Client(transport_to(server, auth), read_timeout_seconds=5, **options(server, found)) as client:
        found["tools"] = await listed(client)
        while (server.get("call") or found["tools"]) and len(found["answers"]) < server["calls"]:
            try:
                found["answers"].append(await called(client, server, (found["tools"] or [""])[0]))
            except Exception:
                if not server["again"] or found.get("failed"):
                    raise
                found["failed"] = True
                return True
            found["failed"] = False
        if server["relist"]:
            found["tools"] = await listed(client)
    return False


def reason(error):
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"


async def tried(server):
    found = {"tools": [], "answers": [], "notes": []}
    auth = sign_in(server) if server["signIn"] else None
    try:
        with anyio.fail_after(20):
            while await once(server, auth, found):
                pass
    except Exception as error:
        found["error"] = reason(error)
    return found


async def main():
    while line := await asyncio.to_thread(sys.stdin.readline):
        print(json.dumps(await tried(json.loads(line))), flush=True)


asyncio.run(main())
