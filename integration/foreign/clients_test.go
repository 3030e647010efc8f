package foreign

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"junction/integration/harness"
	"junction/integration/harness/npm"
	"junction/upstream/raw"
)

// npmUpstream is an upstream of the matrix, and what a client can do with it.
type npmUpstream struct {
	name   string
	config string // in YAML's flow style
	era    string // what Junction finds out
	tools  int

	call, arguments string // a tool, by its own name, with what it answers
	text            string
	steps           int // of progress that the call reports; 0 for none

	bareCall, bareArguments string // another, to call at the upstream's own endpoint
	bareText                string
}

// node is the command of a stdio server from the folder npm.
func node(t testing.TB, server string, args ...string) string {
	t.Helper()
	file := filepath.Join(npm.MustFolder(t), "node_modules", "@modelcontextprotocol", server, "dist", "index.js")
	return harness.Command(t, append([]string{"node", file}, args...)...)
}

// everything completes u, which is server-everything over some wire.
func everything(name, config string) npmUpstream {
	return npmUpstream{
		// three of them for a client that can be asked; a fourth wants roots
		name: name, config: config, era: "legacy", tools: 16,
		call: "trigger-long-running-operation", arguments: `{"duration":0.2,"steps":4}`,
		text: "Long running operation completed. Duration: 0.2 seconds, Steps: 4.", steps: 4,
		bareCall: "echo", bareArguments: `{"message":"grüß dich"}`, bareText: "Echo: grüß dich",
	}
}

// npmUpstreams starts the servers that are to be started, and returns all.
func npmUpstreams(t *testing.T) []npmUpstream {
	t.Helper()
	dir := t.TempDir()
	poem, memory := filepath.Join(dir, "poem.txt"), filepath.Join(t.TempDir(), "memory.jsonl")
	for file, text := range map[string]string{
		poem:   "Zwei Zeilen,\n\"mehr\" nicht.\n",
		memory: `{"type":"entity","name":"Junction","entityType":"proxy","observations":["carries bytes"]}` + "\n",
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	graph := `{
  "entities": [
    {
      "name": "Junction",
      "entityType": "proxy",
      "observations": [
        "carries bytes"
      ]
    }
  ],
  "relations": []
}`
	sse := npm.MustServe(t, "sse")
	return []npmUpstream{
		{
			name: "demo", config: harness.Command(t, "junction", "demo"), era: "modern", tools: 3,
			call: "count", arguments: `{"n":3,"ms":10}`, text: "Counted 3 steps.", steps: 3,
			bareCall: "echo", bareArguments: `{"text":"größer"}`, bareText: "größer",
		},
		everything("every-auto", "transport: auto, url: "+strconv.Quote(sse)),
		everything("every-http", "url: "+strconv.Quote(npm.MustServe(t, "streamableHttp"))),
		everything("every-sse", "transport: sse, url: "+strconv.Quote(sse)),
		everything("every-stdio", node(t, "server-everything", "stdio")),
		{
			name: "files", config: node(t, "server-filesystem", dir), era: "legacy", tools: 14,
			call: "read_text_file", arguments: fmt.Sprintf(`{"path":%q}`, poem), text: "Zwei Zeilen,\n\"mehr\" nicht.\n",
			bareCall: "list_directory", bareArguments: fmt.Sprintf(`{"path":%q}`, dir), bareText: "[FILE] poem.txt",
		},
		{
			name: "memory", config: fmt.Sprintf("%s, env: {MEMORY_FILE_PATH: %q}", node(t, "server-memory"), memory),
			era: "legacy", tools: 9,
			call: "read_graph", arguments: `{}`, text: graph,
			bareCall: "search_nodes", bareArguments: `{"query":"bytes"}`, bareText: graph,
		},
	}
}

// configOf is the configuration of upstreams.
func configOf(upstreams []npmUpstream) string {
	var b strings.Builder
	b.WriteString("upstreams:\n")
	for _, u := range upstreams {
		fmt.Fprintf(&b, "  %s: {%s}\n", u.name, u.config)
	}
	return b.String()
}

// withoutTool returns the result of tools/list without one of the tools.
func withoutTool(t *testing.T, result []byte, name string) []byte {
	t.Helper()
	tools, err := raw.Elements([]byte(harness.Member(result, "tools")))
	if err != nil {
		t.Fatalf("%s: %v", result, err)
	}
	tools = slices.DeleteFunc(tools, func(tool []byte) bool { return harness.Text(t, tool, "name") == name })
	less, err := raw.Set(result, append(append([]byte("["), bytes.Join(tools, []byte(","))...), ']'), "tools")
	if err != nil {
		t.Fatal(err)
	}
	return less
}

// TestForeignClientsAndServers has clients that others wrote use servers that others wrote, in
// every era and over every wire, through one Junction.
func TestForeignClientsAndServers(t *testing.T) {
	defer harness.Computes(t)()
	npm.MustFolder(t)
	upstreams := npmUpstreams(t)
	p := harness.MustProgram(t, configOf(upstreams))
	ready := p.MustReady(t, harness.Patience)
	for i, u := range upstreams {
		if got := ready.Upstreams[i]; got.Name != u.name || got.Era != u.era || got.Tools != u.tools {
			t.Errorf("upstream %+v, want %s of the %s era with %d tools", got, u.name, u.era, u.tools)
		}
	}
	first := npm.Clients()[0].Kept(t)
	// What the servers themselves say, asked without Junction: the one that can be asked.
	for _, u := range upstreams {
		if u.name == "every-http" {
			_, url, _ := strings.Cut(u.config, "url: ")
			var direct npm.List // as a client that can be asked everything sees it
			if err := first.Run(t, &direct, strings.Trim(url, `"`), "use", "[]"); err != nil {
				t.Fatal(err)
			}
			through := first.MustList(t, p.URL+"/"+u.name)
			// which it offers to a client with roots
			direct.Raw = withoutTool(t, direct.Raw, "get-roots-list")
			// we make the task of a tool that wants one
			direct.Raw = bytes.Replace(direct.Raw, []byte(`,"execution":{"taskSupport":"required"}`), nil, 1)
			if !harness.SameJSON(t, through.Raw, direct.Raw) {
				t.Errorf("the list of %s through Junction is\n%s\nwant, as the server gives it,\n%s", u.name, through.Raw,
					direct.Raw)
			}
		}
	}
	// Each client lists the same. What it must be follows from the bare names, which the pairs
	// below list in every client.
	var want []string
	for _, u := range upstreams {
		for _, bare := range first.MustList(t, p.URL+"/"+u.name).Tools {
			want = append(want, u.name+"__"+bare)
		}
	}
	for _, c := range npm.Tried(t, npm.Clients()) {
		t.Run(c.Name, func(t *testing.T) {
			defer harness.Computes(t)()
			upstreams := upstreams
			if c.Sdk {
				c = c.Kept(t)
			} else { // it uses the SDK, and is a process for each command: one server of each era is enough
				upstreams = []npmUpstream{upstreams[0], upstreams[2]}
			}
			list := c.MustList(t, p.URL)
			if !slices.Equal(list.Tools, want) {
				t.Errorf("tools are\n%q\nwant\n%q", list.Tools, want)
			}
			if c.Sdk && (list.Era != c.Era() || list.ServerInfo.Name != "junction") {
				t.Errorf("connected to %q in the %s era, want junction in the %s era", list.ServerInfo.Name, list.Era, c.Era())
			}
			for _, u := range upstreams {
				t.Run(u.name, func(t *testing.T) { u.try(t, c, p.URL, want) })
			}
		})
	}
}

// try has the client use the upstream through the merged endpoint, whose tools are all, and through
// the upstream's own.
func (u npmUpstream) try(t *testing.T, c npm.Client, url string, all []string) {
	defer harness.Computes(t)()
	exposed := u.name + "__" + u.call
	if u.steps > 0 && c.Sdk {
		var p npm.Progress
		if err := c.Run(t, &p, url, "progress", exposed, u.arguments); err != nil {
			t.Fatal(err)
		}
		u.check(t, exposed, p.Result, u.text)
		if len(p.Progress) != u.steps {
			t.Errorf("%s: progress is %+v, want %d steps", exposed, p.Progress, u.steps)
		}
		for i, step := range p.Progress {
			if step.Progress != float64(i+1) || step.Total != float64(u.steps) {
				t.Errorf("%s: step %d of progress is %+v, want %d of %d", exposed, i, step, i+1, u.steps)
			}
		}
	} else {
		u.check(t, exposed, c.MustCall(t, url, exposed, u.arguments), u.text)
	}

	url += "/" + u.name
	var bare []string
	for _, name := range all {
		if own, ok := strings.CutPrefix(name, u.name+"__"); ok {
			bare = append(bare, own)
		}
	}
	if !c.Sdk {
		if got := c.MustList(t, url).Tools; !slices.Equal(got, bare) {
			t.Errorf("at its own endpoint, the tools are %q, want %q", got, bare)
		}
		u.check(t, u.bareCall, c.MustCall(t, url, u.bareCall, u.bareArguments), u.bareText)
		return
	}
	var s struct {
		npm.List
		Result       npm.ToolResult
		Alive        string
		HadSession   bool
		DeleteStatus *int
	}
	if err := c.Run(t, &s, url, "story", u.bareCall, u.bareArguments); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(s.Tools, bare) {
		t.Errorf("at its own endpoint, the tools are %q, want %q", s.Tools, bare)
	}
	u.check(t, u.bareCall, s.Result, u.bareText)
	if c.Modern {
		if s.HadSession || s.DeleteStatus != nil || s.Alive != "server/discover" {
			t.Errorf("the client had a session: %v, its DELETE was answered with %v; want none", s.HadSession, s.DeleteStatus)
		}
	} else if !s.HadSession || s.DeleteStatus == nil || *s.DeleteStatus != 204 || s.Alive != "ping" {
		t.Errorf("the client had a session: %v, its DELETE was answered with %v; want a session and 204", s.HadSession,
			s.DeleteStatus)
	}
}

func (u npmUpstream) check(t *testing.T, tool string, got npm.ToolResult, want string) {
	t.Helper()
	if got.IsError || got.Text() != want {
		t.Errorf("%s answered %q (isError %v), want %q", tool, got.Text(), got.IsError, want)
	}
}
