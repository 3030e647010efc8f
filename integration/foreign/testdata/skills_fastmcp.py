# A FastMCP server with the skills of a folder, over Streamable HTTP. Usage: skills_fastmcp.py FOLDER PORT
import sys

from fastmcp import FastMCP
from fastmcp.skills.provider import SkillsDirectoryProvider

server = FastMCP("skills")
server.add_provider(SkillsDirectoryProvider(sys.argv[1], reload=True))
server.run(transport="http", host="127.0.0.1", port=int(sys.argv[2]), show_banner=False)
