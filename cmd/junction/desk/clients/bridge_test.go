package clients

import (
	"encoding/json"
	"strings"
	"testing"
)

// TestBridges: a command that only connects to a URL becomes that URL with its transport. The notes name what
// is not imported. A flag that adds headers or hides tools keeps the command.
func TestBridges(t *testing.T) {
	const url = "https://mcp.example.com/mcp"
	instead := func(name string) string { return "\nconnects to the URL without " + name }
	remote := "s:\n  url: " + url
	const stays = "stays a command: Junction does not translate "
	const npx = "npx|mcp-remote|" + url
	for _, test := range []struct {
		name    string
		command string // with its arguments, separated by |
		env     map[string]string
		want    string // the entry, and its notes
	}{
		{"plain", npx, nil, remote + instead("mcp-remote")},
		{"a version", "npx|-y|mcp-remote@0.1.38|" + url, nil, remote + instead("mcp-remote")},
		{"a package", "npx|--yes|--package=mcp-remote@latest|--|mcp-remote|" + url,
			nil, remote + instead("mcp-remote")},
		{"a path", "/opt/bin/mcp-remote|" + url, nil, remote + instead("mcp-remote")},
		{"Windows", `cmd|/C|C:\node\npx.cmd|-y|mcp-remote|` + url, nil, remote + instead("mcp-remote")},
		{"pnpm", "pnpm|dlx|mcp-remote@latest|" + url, nil, remote + instead("mcp-remote")},
		{"bun", "bunx|--bun|mcp-remote|" + url, nil, remote + instead("mcp-remote")},
		{"a header", npx + "|--header|X-Team: blue", nil, "s:\n  command: [npx, mcp-remote, '" + url +
			"', --header, 'X-Team: blue']\n" + stays + "--header of mcp-remote"},
		{"a header before the URL", "npx|mcp-remote|--header|X-Team: blue|" + url, nil,
			"s:\n  command: [npx, mcp-remote, --header, 'X-Team: blue', '" + url + "']"},
		{"variables", npx, map[string]string{"HTTPS_PROXY": "http://127.0.0.1:3128"},
			remote + instead("mcp-remote") + "\nnot imported: the variable HTTPS_PROXY"},
		{"lost flags", npx + "|9696|--host|127.0.0.1|--debug|--transport|http-only", nil,
			remote + instead("mcp-remote") + "\nnot imported: the port 9696, --host, --debug"},
		{"HTTP+SSE", npx + "|--transport|sse-only", nil,
			remote + "\n  transport: sse" + instead("mcp-remote")},
		{"hidden tools", npx + "|--ignore-tool|drop", nil, "s:\n  command: [npx, mcp-remote, '" + url +
			"', --ignore-tool, drop]\n" + stays + "--ignore-tool of mcp-remote"},
		{"a secret in the URL", "npx|mcp-remote|https://ann:canary@mcp.example.com/?api_key=canary-2", nil,
			"s:\n  url: \"https://mcp.example.com/?api_key=${file:url=canary-2}\"\n  headers:\n" +
				"    Authorization: \"Basic ${file:Authorization=YW5uOmNhbmFyeQ==}\"" + instead("mcp-remote")},
		{"a flag that is needed", npx + "|--static-oauth-client-info|@client.json", nil,
			"s:\n  command: [npx, mcp-remote, '" + url + "', --static-oauth-client-info, '@client.json']\n" +
				stays + "--static-oauth-client-info of mcp-remote"},
		{"a flag of tomorrow", npx + "|--new", nil, "s:\n  command: [npx, mcp-remote, '" + url +
			"', --new]\n" + stays + "--new of mcp-remote"},
		{"supergateway", "npx|-y|supergateway|--streamableHttp|" + url + "|--logLevel=none", nil, remote +
			instead("supergateway") + "\nnot imported: --logLevel"},
		{"supergateway with a header", "npx|supergateway|--sse|" + url + "|--header|X-A: 1", nil, "s:\n  command: " +
			"[npx, supergateway, --sse, '" + url + "', --header, 'X-A: 1']\n" + stays + "--header of supergateway"},
		{"supergateway with HTTP+SSE", "npx|supergateway@4.0.0|--sse=" + url, nil,
			remote + "\n  transport: sse" + instead("supergateway")},
		{"supergateway with a command", "npx|supergateway|--stdio|npx server", nil,
			"s:\n  command: [npx, supergateway, --stdio, npx server]"},
		{"mcp-proxy", "uvx|mcp-proxy|--transport|streamablehttp|--debug|" + url, nil,
			remote + instead("mcp-proxy") + "\nnot imported: --debug"},
		{"mcp-proxy with HTTP+SSE", "uv|tool|run|--from|mcp-proxy==0.13.0|mcp-proxy|" + url, nil,
			remote + "\n  transport: sse" + instead("mcp-proxy")},
		{"mcp-proxy with a token", "mcp-proxy|" + url, map[string]string{"API_ACCESS_TOKEN": "canary-1"},
			"s:\n  command: [mcp-proxy, '" + url + "']\n  env:\n    API_ACCESS_TOKEN: \"${file:API_ACCESS_TOKEN=canary-1}\"\n" +
				stays + "the variable API_ACCESS_TOKEN of mcp-proxy"},
		{"mcp-proxy without certificates", "mcp-proxy|--no-verify-ssl|" + url, nil, "s:\n  command: [mcp-proxy, " +
			"--no-verify-ssl, '" + url + "']\n" + stays + "--no-verify-ssl of mcp-proxy"},
		{"mcp-proxy with a command", "uvx|mcp-proxy|--port|8080|uvx|server", nil,
			"s:\n  command: [uvx, mcp-proxy, --port, \"8080\", uvx, server]"},
		{"another mcp-proxy", "npx|mcp-proxy|" + url, nil, "s:\n  command: [npx, mcp-proxy, '" + url + "']"},
		{"another program", "npx|other-server|mcp-remote|" + url, nil,
			"s:\n  command: [npx, other-server, mcp-remote, '" + url + "']"},
		{"no argument", "npx|mcp-remote", nil, "s:\n  command: [npx, mcp-remote]"},
		{"a flag without its value", npx + "|--header", nil, "s:\n  command: [npx, mcp-remote, '" + url +
			"', --header]\n" + stays + "--header of mcp-remote"},
	} {
		t.Run(test.name, func(t *testing.T) {
			words := strings.Split(test.command, "|")
			text, err := json.Marshal(map[string]any{"mcpServers": map[string]any{
				"s": map[string]any{"command": words[0], "args": words[1:], "env": test.env}}})
			if err != nil {
				t.Fatal(err)
			}
			h := mustHome(t, "linux", map[string]string{".config/Claude/claude_desktop_config.json": string(text)})
			servers, errs := h.Read(h.Places())
			if len(servers) != 1 || len(errs) > 0 || servers[0].Err != nil {
				t.Fatalf("Read = %v, %v; want one server", servers, errs)
			}
			e := servers[0].Entry
			if got := strings.Join(append([]string{mustRender(t, h, "s", e)}, e.Notes...), "\n"); got != test.want {
				t.Errorf("the entry is\n%s\nwant\n%s", got, test.want)
			}
		})
	}
}

// TestBridgePresent: a bridge that a person has added as a command is present.
func TestBridgePresent(t *testing.T) {
	h := mustHome(t, "linux", map[string]string{".cursor/mcp.json": `{"mcpServers": {
		"command": {"command": "npx", "args": ["mcp-remote", "https://one.example.com/mcp"], "env": {"A": "b"}},
		"url": {"command": "npx", "args": ["mcp-remote", "https://two.example.com/mcp"]},
		"new": {"command": "npx", "args": ["mcp-remote", "https://three.example.com/mcp"]}}}`})
	servers, errs := h.Read(h.Places())
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	m := Merge{Getenv: h.Getenv, Existing: []Known{
		{Name: "mine", Command: []string{"npx", "mcp-remote", "https://one.example.com/mcp"}, Env: map[string]string{"A": "b"}},
		{Name: "two", URL: "https://two.example.com/mcp"}}}
	var got []string
	for _, o := range m.Plan(servers) {
		got = append(got, o.Server.Name+" "+string(o.Result)+" "+o.Name)
	}
	if got, want := strings.Join(got, ", "), "command present mine, url present two, new new new"; got != want {
		t.Errorf("the plan is %s, want %s", got, want)
	}
}

// TestBridgeTyped: a command that a person types stays a command.
func TestBridgeTyped(t *testing.T) {
	h := mustHome(t, "linux", nil)
	given := Given{Command: []string{"npx", "mcp-remote", "https://mcp.example.com/mcp"}}
	e, err := given.Entry(h, "config.yaml")
	if err != nil || len(e.Command) != 3 {
		t.Errorf("Entry = %+v, %v; want the command", e, err)
	}
}
