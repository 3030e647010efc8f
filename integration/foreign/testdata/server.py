"""A server of the tests. Arguments: sdk or fastmcp, and a port of the loopback; over stdio without one.

Its tools are written in the legacy way, which most tools are: they ask by a request.
"""

import asyncio
import sys

from pydantic import BaseModel

if sys.argv[1] == "fastmcp":
    from fastmcp import Context, FastMCP as Server
else:
    from mcp.server.mcpserver import Context, MCPServer as Server

server = Server("python")


class Person(BaseModel):
    name: str


@server.tool()
async def ask(ctx: Context) -> str:
    answer = await ctx.elicit("Who is it?", Person)
    return f"It is {answer.data.name}." if answer.action == "accept" else answer.action


@server.tool()
async def wait(ctx: Context) -> str:
    await ctx.report_progress(1)
    await asyncio.sleep(600)
    return "waited"


@server.tool()
async def plain() -> str:
    return "plain"


@server.tool()
async def grow(name: str) -> str:
    server.tool(name=name)(plain)
    return "grown"


if len(sys.argv) < 3:
    server.run()
elif sys.argv[1] == "fastmcp":
    server.run(transport="http", port=int(sys.argv[2]))
else:
    server.run(transport="streamable-http", port=int(sys.argv[2]))
