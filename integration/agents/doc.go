// Package agents tests the program with agent command lines that others wrote: Claude Code, Codex,
// Gemini CLI, GitHub Copilot CLI, opencode, and mcp-remote as the bridge of one of them.
//
// The tests run only on Linux with JUNCTION_AGENTS=1: the packages need 1.4 GB. README.md has the
// command that runs them and the results. They use no account and no network beyond loopback: each
// agent talks to a stand-in of its model API, which the test serves. The stand-in hands every model
// request to the test. The test reads the list of tools from the request, changes something, and
// answers with a tool call or with text.
package agents
