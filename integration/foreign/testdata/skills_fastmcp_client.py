# The client of FastMCP: it lists the skills of a server, reads each of them and verifies sizes, digests and frontmatter. Usage:
# skills_fastmcp_client.py URL. It prints the files of each skill, with the digests of the bytes that it has read.
import asyncio
import hashlib
import json
import sys

from fastmcp import Client
from fastmcp.skills.client import SkillsClientExtension


async def main():
    async with Client(sys.argv[1], extensions=[SkillsClientExtension()]) as client:
        found = {}
        for listed in await client.list_skills():
            skill = await client.read_skill(listed.uri, cache_mode="refresh")
            folder = listed.uri.removesuffix("SKILL.md")
            found[listed.uri] = {
                folder + path: "sha256:" + hashlib.sha256(content).hexdigest()
                for path, content in skill.files.items()
            }
        print(json.dumps(found))


asyncio.run(main())
