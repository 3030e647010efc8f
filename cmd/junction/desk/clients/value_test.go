package clients

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// TestValuesAreRendered writes values as Junction's file has them, with secrets in files of their own.
func TestValuesAreRendered(t *testing.T) {
	kept := map[string]string{}
	keep := func(label, secret string) (string, error) {
		kept[label] = secret
		return "/secrets/" + label, nil
	}
	for want, v := range map[string]Value{
		"text":                   Literal("text"),
		"$${NAME}":               Literal("${NAME}"), // a text that looks like a reference
		"${NAME}":                Variable("NAME"),
		"${NAME:-x}":             {{kind: variable, text: "NAME", fallback: "x"}},
		"Bearer ${file:/f}":      {{text: "Bearer "}, {kind: fileRef, text: "/f"}},
		"${file:/secrets/key}":   Secret("key", "canary-1"),
		"${file:/secrets/value}": Literal("env:HOME"), // which is a reference of Junction's
		"env:not a name":         Literal("env:not a name"),
	} {
		if got, err := v.Render(keep); err != nil || got != want {
			t.Errorf("%+v is written as %q, %v; want %q", v, got, err, want)
		}
	}
	if fmt.Sprint(kept) != "map[key:canary-1 value:env:HOME]" {
		t.Errorf("kept are %q", kept)
	}
	if got, err := (Value{{text: "a$"}, {kind: variable, text: "B"}}).Render(keep); err == nil {
		t.Errorf("a $ before a reference is written as %q", got)
	}
	full := errors.New("the disk is full")
	if _, err := Secret("key", "canary-1").Render(func(string, string) (string, error) { return "", full }); !errors.Is(err, full) {
		t.Errorf("a secret that cannot be kept: %v", err)
	}
}

// TestValuesAreExpanded reads variables and files.
func TestValuesAreExpanded(t *testing.T) {
	file := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(file, []byte("of the file\r\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	getenv := func(name string) (string, bool) { return map[string]string{"A": "a"}[name], name == "A" }
	for want, v := range map[string]Value{
		"-a-":         {{text: "-"}, {kind: variable, text: "A"}, {text: "-"}},
		"a":           {{kind: variable, text: "A", fallback: "other"}},
		"other":       {{kind: variable, text: "B", fallback: "other"}},
		"":            Variable("B"),
		"of the file": {{kind: fileRef, text: file}},
		"canary-1":    Secret("key", "canary-1"),
	} {
		if got := v.Expand(getenv); got != want {
			t.Errorf("%+v stands for %q, want %q", v, got, want)
		}
	}
}

// TestNamesOfUpstreams: names of servers as those of upstreams, and the first that is free.
func TestNamesOfUpstreams(t *testing.T) {
	long := strings.Repeat("x", 40)
	for name, want := range map[string]string{"git hub": "git-hub", "--a--": "a", "日本": "server", "": "server",
		long: long[:32], strings.Repeat("x", 31) + "/y": strings.Repeat("x", 31)} {
		if got := NameOf(name); got != want {
			t.Errorf("%q becomes %q, want %q", name, got, want)
		}
	}
	taken := map[string]bool{"a": true, "a-2": true, long[:32]: true}
	for name, want := range map[string]string{"A": "A-3", "b": "b", long[:32]: long[:30] + "-2"} {
		if got := free(name, taken); got != want {
			t.Errorf("beside %v, %q becomes %q, want %q", taken, name, got, want)
		}
	}
}

// TestOwnAddresses: an import leaves out the entry of Junction itself, however its address is written.
func TestOwnAddresses(t *testing.T) {
	own := []string{"http://127.0.0.1:8420/mcp", "https://mcp.x.org/mcp"}
	for address, want := range map[string]bool{
		"http://localhost:8420/mcp": true, "http://[::1]:8420/web/mcp": true, "http://0.0.0.0:8420": true,
		"http://[::ffff:127.0.0.1]:8420/": true, "https://MCP.x.org:443/": true,
		"http://localhost:8421/mcp": false, "https://x.org/mcp": false, "http://mcp.x.org/mcp": false, "stdio": false, "": false,
	} {
		if got := isOwnAddress(address, own); got != want {
			t.Errorf("%s is Junction's: %v, want %v", address, got, want)
		}
	}
}

// TestCommandInOneText: a text with several words is split like a client does, but neither a path with
// spaces nor what only a shell can read.
func TestCommandInOneText(t *testing.T) {
	for line, want := range map[string]string{
		"npx -y notes": "[npx -y notes]", `uv --directory "my notes" run 'a b'`: "[uv --directory my notes run a b]",
		"npx": "[]", "cd x && npx y": "[]", "x > log": "[]", `x "y`: "[]", `"x"`: "[]", "": "[]", " ": "[]",
		`C:\Program Files\x.exe`: "[]", "/opt/my app/x": "[]", "/bin/sh -c x": "[/bin/sh -c x]", `x ""`: "[x ]",
	} {
		if runtime.GOOS == "windows" && strings.HasPrefix(line, "/bin") {
			continue
		}
		if got := fmt.Sprint(Words(line)); got != want {
			t.Errorf("Words(%q) = %s, want %s", line, got, want)
		}
	}
	file := filepath.Join(t.TempDir(), "a program")
	for _, name := range []string{file, strings.TrimSuffix(file, " program")} {
		if err := os.WriteFile(name, nil, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if got := Words(file); got != nil {
		t.Errorf("Words(%q) = %q; want nil for a program", file, got)
	}
}

// TestSecretsOfArguments: a secret is found by the name before it, also in the value of a flag.
func TestSecretsOfArguments(t *testing.T) {
	for arg, want := range map[string]string{
		"--header=Authorization: Bearer canary": "--header=Authorization: Bearer …",
		"--env=API_KEY=canary":                  "--env=API_KEY=…", "-e=API_KEY=canary": "-e=API_KEY=…",
		"API_KEY=canary": "API_KEY=…", "X-Api-Key: canary": "X-Api-Key: …", "--token=a=canary": "--token=…",
		"--env=LEVEL=debug": "--env=LEVEL=debug", "--header=X-Team: blue": "--header=X-Team: blue",
		"--url=https://x.org:8420/token": "--url=https://x.org:8420/token", "--env=KEY=yes": "--env=KEY=yes",
		"--url=token://x.org": "--url=token://x.org",
	} {
		e := Entry{Command: concealArguments([]string{"x", arg}, Literal)}
		if got := e.CommandLine()[1]; got != want {
			t.Errorf("the argument %q is shown as %q, want %q", arg, got, want)
		}
	}
}

// TestImageOfDocker: the image is found behind flags with and without values.
func TestImageOfDocker(t *testing.T) {
	for args, want := range map[string]string{
		"run -i --rm -e TOKEN ghcr.io/x/y:1": "ghcr.io/x/y:1", "run -it --name=a -v /a:/b x arg": "x",
		"run -ie TOKEN x": "x", "run -eTOKEN=1 --network host --init x": "x", "--context c run --rm x": "x",
		"run --mount type=bind,src=/a,dst=/b x:latest postgres://u@h/db": "x:latest",
		"run -e": "", "run --rm": "", "compose up": "", "": "",
	} {
		if got := image(strings.Fields(args)); got != want {
			t.Errorf("image(%s) = %q, want %q", args, got, want)
		}
	}
}

// TestLacks: a program that this machine does not have is named, and nothing is said if that cannot be
// known.
func TestLacks(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "tool.exe")
	if err := os.WriteFile(file, nil, 0o700); err != nil {
		t.Fatal(err)
	}
	literal := func(words ...string) (list []Value) {
		for _, w := range words {
			list = append(list, Literal(w))
		}
		return list
	}
	for name, row := range map[string]struct {
		entry Entry
		want  string
	}{
		"not in PATH":         {Entry{Command: literal("no-such-program")}, "no-such-program"},
		"no such file":        {Entry{Command: literal(filepath.Join(dir, "x"))}, filepath.Join(dir, "x")},
		"a file":              {Entry{Command: literal(file)}, ""},
		"a file of a folder":  {Entry{Command: literal("./tool.exe"), Dir: Literal(dir)}, ""},
		"none of a folder":    {Entry{Command: literal("./x"), Dir: Literal(dir)}, filepath.Join(dir, "x")},
		"an unknown folder":   {Entry{Command: literal("./x")}, ""},
		"another PATH":        {Entry{Command: literal("no-such-program"), Env: map[string]Value{"PATH": Literal("/x")}}, ""},
		"a variable":          {Entry{Command: []Value{Variable("X")}}, ""},
		"an unknown variable": {Entry{Command: literal("${workspaceFolder}/x")}, ""},
		"disabled":            {Entry{Command: literal("no-such-program"), Off: true}, ""},
		"a URL":               {Entry{URL: Literal("https://x")}, ""},
	} {
		if got := row.entry.Lacks(environment(nil)); got != row.want {
			t.Errorf("%s: Lacks() = %q, want %q", name, got, row.want)
		}
	}
}

// TestToolsOfTwoClients: of a server that two clients have, only tools are offered that both offer, and
// an entry of the configuration that offers more than a client is found.
func TestToolsOfTwoClients(t *testing.T) {
	h := mustHome(t, "linux", map[string]string{
		".gemini/settings.json":             `{"mcpServers": {"s": {"command": "x", "includeTools": ["a", "b", "c"]}}}`,
		".codeium/windsurf/mcp_config.json": `{"mcpServers": {"s": {"command": "x", "disabledTools": ["b"]}}}`,
		".codex/config.toml":                "[mcp_servers.s]\ncommand = 'x'\nenabled_tools = ['c', 'a', 'b']\n",
	})
	servers, errs := h.Read(h.Places())
	if len(errs) > 0 || len(servers) != 3 {
		t.Fatal(servers, errs)
	}
	widerThan := func(offered, enabled []string) (all []string) {
		k := Known{Name: "s", Command: []string{"x"}, Enabled: enabled, Offers: func(tool string) bool {
			return slices.Contains(offered, tool)
		}}
		for _, o := range (&Merge{Existing: []Known{k}, Getenv: h.Getenv}).Plan(servers) {
			all = append(all, o.Server.Client.ID+" "+o.Wider)
		}
		return all
	}
	for _, row := range []struct {
		offered, enabled, want []string
	}{
		{[]string{"a", "b", "c"}, nil, []string{"codex all but a, b, c", "gemini all but a, b, c", "windsurf b"}},
		{[]string{"a", "b", "d"}, []string{"a", "b", "d"}, []string{"codex d", "gemini d", "windsurf b"}},
		{[]string{"a", "b"}, []string{"a", "b", "d"}, []string{"codex ", "gemini ", "windsurf b"}},
		{[]string{"a", "c"}, []string{"a", "c"}, []string{"codex ", "gemini ", "windsurf "}},
	} {
		if got := widerThan(row.offered, row.enabled); !slices.Equal(got, row.want) {
			t.Errorf("an entry that offers %q is wider by %q; want %q", row.offered, got, row.want)
		}
	}
	var notes []string
	out := (&Merge{Getenv: h.Getenv}).Plan(servers)
	for _, o := range out {
		notes = append(notes, fmt.Sprint(o.Result, o.Notes))
	}
	const note = "a tool that one of the two clients hides is hidden for all"
	if want := []string{"new[]", "same[]", "same[" + note + "]"}; !slices.Equal(notes, want) {
		t.Errorf("the plan is %q, want %q", notes, want)
	}
	if got := out[0].Server.Entry.offered(); got != "only a, c; without b" {
		t.Errorf("the entry offers %q", got)
	}
}

// TestNarrowedEntryOffersWhatBothOffer: whichever client is first, a tool that one of them hides is hidden.
func TestNarrowedEntryOffersWhatBothOffer(t *testing.T) {
	for _, row := range []struct {
		one, two Entry
		want     string
	}{
		{Entry{Only: []string{"a", "b"}}, Entry{Only: []string{"b", "c"}}, "only b"},
		{Entry{Only: []string{"a"}}, Entry{Only: []string{"b"}}, "none"},
		{Entry{Only: []string{"a"}}, Entry{Only: []string{}}, "none"},
		{Entry{}, Entry{Only: []string{"a"}}, "only a"},
		{Entry{}, Entry{Only: []string{}}, "none"},
		{Entry{Only: []string{"a", "b_c"}}, Entry{Without: []string{"b_*"}}, "only a; without 'b_*'"},
		{Entry{}, Entry{Without: []string{"a"}}, "without a"},
	} {
		for range 2 {
			both := row.one
			both.Only = slices.Clone(both.Only)
			both.narrow(&row.two)
			if got := both.offered(); row.one.sameTools(&row.two) || got != row.want {
				t.Errorf("%q with %q: the entry offers %q, want %q", row.one.offered(), row.two.offered(), got, row.want)
			}
			row.one, row.two = row.two, row.one
		}
	}
}

// TestServerThatRunsInAnotherWayConflicts: with other variables, headers or another folder it is another
// server. A variable that is not set here may have the same value.
func TestServerThatRunsInAnotherWayConflicts(t *testing.T) {
	command := Known{Name: "s", Command: []string{"x"}, Env: map[string]string{"A": "1", "B": "${NOT_SET}"}, Dir: "/d"}
	remote := Known{Name: "s", URL: "https://x.example.com", Headers: map[string]string{"Authorization": "1"}}
	for entry, want := range map[string]bool{
		`{"command": "x", "env": {"A": "1", "B": "2"}, "cwd": "/d"}`:           false,
		`{"command": "x", "env": {"A": "2", "B": "2"}, "cwd": "/d"}`:           true,
		`{"command": "x", "env": {"A": "1", "B": "2", "C": "3"}, "cwd": "/d"}`: true,
		`{"command": "x", "env": {"A": "1"}, "cwd": "/d"}`:                     true,
		`{"command": "x", "env": {"A": "1", "C": "3"}, "cwd": "/d"}`:           true,
		`{"command": "x", "env": {"A": "1", "B": "2"}, "cwd": "/e"}`:           true,
		`{"url": "https://x.example.com", "headers": {"Authorization": "1"}}`:  false,
		`{"url": "https://x.example.com", "headers": {"Authorization": "2"}}`:  true,
		`{"url": "https://x.example.com"}`:                                     true,
	} {
		h := mustHome(t, "linux", map[string]string{".claude.json": `{"mcpServers": {"s": ` + entry + `}}`})
		servers, errs := h.Read(h.Places())
		m := Merge{Existing: []Known{remote}, Getenv: h.Getenv, Command: func(args ...string) string { return strings.Join(args, " ") }}
		if strings.Contains(entry, "command") {
			m.Existing[0] = command
		}
		out := m.Plan(servers)
		if len(errs) > 0 || len(out) != 1 || out[0].Result != Present || out[0].Conflicts != want {
			t.Errorf("%s: %+v, %v; want it present, and a conflict is %t", entry, out, errs, want)
		}
	}
}
