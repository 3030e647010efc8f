# Windows of the client of the Python SDK, one in each folder, at the same time. Usage:
# folder_client.py MODE WAY URL JUNCTION CALLS FOLDER ... MODE is legacy or 2026-07-28. WAY is how a window names its
# folder: header, roots or stdio. CALLS is a JSON array of [name, arguments], in which FOLDER stands for the folder. It
# prints the results of each window.
import asyncio
import json
import os
import pathlib
import sys

import httpx2
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import ListRootsResult, Root

mode, way, url, junction, calls, *folders = sys.argv[1:]


def transport(folder):
    if way == "stdio":
        return stdio_client(
            StdioServerParameters(command=junction, args=["stdio", "--url", url], cwd=folder, env=dict(os.environ))
        )
    headers = {"Junction-Folder": folder} if way == "header" else {}
    return streamable_http_client(url, http_client=httpx2.AsyncClient(headers=headers, timeout=60))


async def window(folder):
    async def roots(_):
        return ListRootsResult(roots=[Root(uri=pathlib.Path(folder).as_uri())])

    results = []
    answer = roots if way == "roots" else None
    async with Client(transport(folder), mode=mode, list_roots_callback=answer) as client:
        for name, arguments in json.loads(calls.replace("FOLDER", folder)):
            result = await client.call_tool(name, arguments)
            results.append(result.model_dump(mode="json", by_alias=True, exclude_none=True))
    return results


async def main():
    print(json.dumps(await asyncio.gather(*map(window, folders))))


asyncio.run(main())
