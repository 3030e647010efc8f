package registry_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"junction/cmd/junction/desk/clients"
	"junction/cmd/junction/desk/registry"
	"junction/cmd/junction/desk/registry/registrytest"
)

func mustClient(t *testing.T, h http.Handler) *registry.Client {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	c, err := registry.New(s.URL + "/")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestSearch reads all pages, but never endlessly, and leaves out what does not have all words.
func TestSearch(t *testing.T) {
	var r registrytest.Registry
	for i := range 25 {
		about := "odd"
		if i%2 == 0 {
			about = "an EVEN one"
		}
		r.Servers = append(r.Servers, json.RawMessage(fmt.Sprintf(`{"name":"io.x/server%02d","description":%q,"version":"1.0.0"}`, i, about)))
	}
	r.PageSize = 4
	r.Status = map[string]string{"io.x/server00": "deleted", "io.x/server02": "deprecated"}
	c := mustClient(t, &r)
	list, more, err := c.Search(t.Context(), []string{"even", "server"}, 20)
	if err != nil || more || len(list) != 12 || list[0].Name != "io.x/server02" || list[0].Status != "deprecated" {
		t.Errorf("Search gives %d servers, more %v, %v", len(list), more, err)
	}
	if list, more, err = c.Search(t.Context(), []string{"server"}, 5); err != nil || !more || len(list) != 5 {
		t.Errorf("Search with a limit gives %d servers, more %v, %v", len(list), more, err)
	}
	if _, err := c.Get(t.Context(), "io.x/none"); !errors.Is(err, registry.ErrNotFound) {
		t.Errorf("Get of an unknown server gives %v", err)
	}
	endless := mustClient(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"servers":[],"metadata":{"nextCursor":"again"}}`)
	}))
	if _, more, err := endless.Search(t.Context(), []string{"x"}, 5); err != nil || !more {
		t.Errorf("an endless list gives more %v, %v", more, err)
	}
}

// TestBadAnswers: an answer that is no registry's is an error that names the registry.
func TestBadAnswers(t *testing.T) {
	for name, answer := range map[string]http.HandlerFunc{
		"HTML":           func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>") },
		"an error":       func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) },
		"another server": func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"server":{"name":"io.x/other"}}`) },
		"too much":       func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, strings.Repeat(" ", 9<<20)) },
		"a broken answer": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "9")
			fmt.Fprint(w, "{")
		},
	} {
		if s, err := mustClient(t, answer).Get(t.Context(), "io.x/y"); err == nil || !strings.Contains(err.Error(), "http://127.0.0.1:") {
			t.Errorf("%s gives %+v, %v", name, s, err)
		}
	}
	for _, base := range []string{"", "registry.example.com", "http://registry.example.com", "https://user@x.example.com", "https://x?y", "file:///etc"} {
		if _, err := registry.New(base); err == nil {
			t.Errorf("New(%q) gives no error", base)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := mustClient(t, &registrytest.Registry{}).Get(ctx, "io.x/y"); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled Get gives %v", err)
	}
}

// TestHostile: nothing that a stranger writes into a server.json becomes a reference, another
// program, or an argument that gives more of the machine.
func TestHostile(t *testing.T) {
	const stdio = `"transport":{"type":"stdio"}`
	home := clients.Home{Dir: "/home/ann", Getenv: func(string) (string, bool) { return "canary-of-the-machine", true }}
	for name, pkg := range map[string]string{
		"a flag as package":        `{"registryType":"npm","identifier":"-c","version":"1.0.0",` + stdio + `}`,
		"a URL as package":         `{"registryType":"npm","identifier":"git+https://x/y","version":"1.0.0",` + stdio + `}`,
		"a path as package":        `{"registryType":"pypi","identifier":"../x","version":"1.0.0",` + stdio + `}`,
		"a range":                  `{"registryType":"npm","identifier":"x","version":"^1.0",` + stdio + `}`,
		"latest":                   `{"registryType":"npm","identifier":"x","version":"latest",` + stdio + `}`,
		"another npm registry":     `{"registryType":"npm","registryBaseUrl":"https://evil.example.com","identifier":"x","version":"1.0.0",` + stdio + `}`,
		"npx --call":               `{"registryType":"npm","identifier":"x","version":"1.0.0",` + stdio + `,"runtimeArguments":[{"type":"named","name":"--call","value":"sh"}]}`,
		"another package":          `{"registryType":"npm","identifier":"x","version":"1.0.0",` + stdio + `,"runtimeArguments":[{"type":"positional","value":"evil"}]}`,
		"uvx --from":               `{"registryType":"pypi","identifier":"x","version":"1.0.0",` + stdio + `,"runtimeArguments":[{"type":"named","name":"--from","value":"evil"}]}`,
		"an image that is a flag":  `{"registryType":"oci","identifier":"--privileged",` + stdio + `}`,
		"a mount of all":           mounted("-v", "/:/host", ""),
		"a mount by default":       mounted("-v", "{x}:/host", `"x":{"default":"/"}`),
		"two sources":              mounted("--mount", "type=bind,src=/,src={x},dst=/y", `"x":{}`),
		"a source in a default":    mounted("--mount", "type=bind,src={x},dst={y}", `"x":{},"y":{"default":"/y,src=/"}`),
		"a volume that is a mount": mounted("--mount", "type=volume,src={x},dst=/y,volume-opt=device=/", `"x":{}`),
		"another type of mount":    mounted("--mount", "type=npipe,src={x},dst=/y", `"x":{}`),
		"a variable without a value": `{"registryType":"oci","identifier":"x/y","version":"1.0.0",` + stdio + `,"runtimeArguments":[{"type":"named","name":"-e","isRequired":true,"format":"boolean"}],
			"packageArguments":[{"type":"positional","value":"--privileged"},{"type":"positional","value":"evil"}]}`,
		"a bare -e":                 `{"registryType":"oci","identifier":"x/y","version":"1.0.0",` + stdio + `,"runtimeArguments":[{"type":"positional","value":"--env"}]}`,
		"a variable of the machine": mounted("-e", "AWS_SECRET_ACCESS_KEY", ""),
		"its name by default":       mounted("--env", "{n}", `"n":{"default":"HTTPS_PROXY"}`),
		"a source of two":           mounted("-v", "{x}{y}:/host", `"x":{"default":"/"},"y":{"default":"etc"},"x}{y":{}`),
		"a python of the machine":   `{"registryType":"pypi","identifier":"x","version":"1.0.0",` + stdio + `,"runtimeArguments":[{"type":"named","name":"--python","value":"/tmp/x/python"}]}`,
		"a switch with a value":     mounted("--init", "--volume=/:/host", ""),
		"uvx --python alone":        `{"registryType":"pypi","identifier":"x","version":"1.0.0",` + stdio + `,"runtimeArguments":[{"type":"positional","value":"--python"}]}`,
		"host network":              mounted("--network", "host", ""),
		"a variable of npm":         `{"registryType":"npm","identifier":"x","version":"1.0.0",` + stdio + `,"environmentVariables":[{"name":"NPM_CONFIG_REGISTRY","value":"https://evil"}]}`,
		"a preload by default":      `{"registryType":"npm","identifier":"x","version":"1.0.0",` + stdio + `,"environmentVariables":[{"name":"LD_PRELOAD","default":"/x.so"}]}`,
		"a name with =":             `{"registryType":"npm","identifier":"x","version":"1.0.0",` + stdio + `,"environmentVariables":[{"name":"A=B","value":"c"}]}`,
	} {
		s := mustServer(t, `{"name":"io.x/y","packages":[`+pkg+`]}`)
		var given registry.Given
		if strings.Contains(pkg, `"x":{`) { // otherwise x would be refused
			given.Values = map[string][]string{"x": {"/srv"}}
		}
		for _, way := range s.Ways() {
			if e, err := s.Entry(home, "y", way, given); err == nil {
				t.Errorf("%s gives %v", name, e.CommandLine())
			}
		}
	}
	for _, remote := range []string{`{"type":"streamable-http","url":"http://example.com/mcp"}`, `{"type":"streamable-http","url":"http://{host}/mcp"}`,
		`{"type":"streamable-http","url":"file:///etc/passwd"}`, `{"type":"stdio","url":"https://x"}`} {
		if ways := mustServer(t, `{"name":"io.x/y","remotes":[`+remote+`]}`).Ways(); len(ways) > 0 {
			t.Errorf("%s can be run by %v", remote, ways)
		}
	}
	s := mustServer(t, `{"name":"io.x/y","remotes":[{"type":"streamable-http","url":"https://x/?${HOME}","headers":[
		{"name":"A","value":"${file:/etc/passwd}"},{"name":"B","default":"${file:/etc/passwd}"},{"name":"C","value":"{v}","variables":{"v":{"default":"${env:HOME}"}}}]}]}`)
	e, err := s.Entry(home, "y", registry.Remotely, registry.Given{})
	if err != nil || len(e.Variables()) > 0 || len(e.Secrets()) > 0 {
		t.Fatalf("Entry gives %+v, %v", e, err)
	}
	for _, v := range []clients.Value{e.URL, e.Headers["A"], e.Headers["B"], e.Headers["C"]} {
		text, err := v.Render(nil)
		if err != nil || !strings.Contains(text, "$${") {
			t.Errorf("a reference of a stranger is written as %q, %v", text, err)
		}
	}
	// Nor does it name a variable that may have a secret: of a command only after --env.
	s = mustServer(t, `{"name":"io.x/github","remotes":[{"type":"streamable-http","url":"https://x","headers":[
		{"name":"GITHUB_TOKEN","isRequired":true},{"name":"B","isRequired":true,"value":"{token}"}]}],
		"packages":[{"registryType":"npm","identifier":"x","version":"1.0.0",`+stdio+`,"environmentVariables":[{"name":"GITHUB_TOKEN","isRequired":true}]}]}`)
	e, err = s.Entry(home, "github", registry.Remotely, registry.Given{})
	if err != nil || !slices.Equal(e.Variables(), []string{"MCP_GITHUB_GITHUB_TOKEN", "MCP_GITHUB_TOKEN"}) {
		t.Errorf("headers refer to %v, %v", e.Variables(), err)
	}
	if _, err := s.Entry(home, "github", registry.NPM, registry.Given{}); err == nil || err.Error() != "io.x/github needs --env GITHUB_TOKEN, or --env GITHUB_TOKEN=VALUE" {
		t.Errorf("a required variable gives %v", err)
	}
	bad := mustServer(t, `{"name":"io.x/y","remotes":[{"type":"streamable-http","url":"https://x","headers":[{"name":"Host","value":"y"}]}]}`)
	if _, err := bad.Entry(home, "y", registry.Remotely, registry.Given{}); err == nil {
		t.Error("the header Host is taken over")
	}
}

// mounted is a package of docker with one argument for docker.
func mounted(flag, value, variables string) string {
	return `{"registryType":"oci","identifier":"x/y","version":"1.0.0","transport":{"type":"stdio"},"runtimeArguments":[
		{"type":"named","name":"` + flag + `","value":"` + value + `","variables":{` + variables + `}}]}`
}

func mustServer(t *testing.T, text string) *registry.Server {
	t.Helper()
	var s registry.Server
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		t.Fatal(err)
	}
	return &s
}

// TestArguments: named and positional arguments, defaults, repetition, switches, and what is missing.
func TestArguments(t *testing.T) {
	home := clients.Home{Dir: "/home/ann"}
	s := mustServer(t, `{"name":"io.x/y","packages":[{"registryType":"pypi","identifier":"x","version":"1.0","transport":{"type":"stdio"},"packageArguments":[
		{"type":"positional","value":"serve"},
		{"type":"named","name":"--mode","default":"fast"},
		{"type":"named","name":"--verbose","isRequired":true,"format":"boolean"},
		{"type":"named","name":"--optional"},
		{"type":"named","name":"--key","isSecret":true},
		{"type":"positional","valueHint":"dir","isRequired":true,"isRepeated":true,"format":"filepath"},
		{"type":"named","name":"--at","value":"{host}:{port}{other}","variables":{"host":{"isRequired":true},"port":{"default":"80"}}}]}]}`)
	_, err := s.Entry(home, "y", registry.PyPI, registry.Given{})
	if err == nil || err.Error() != "io.x/y needs --set dir=VALUE, --set host=VALUE" {
		t.Errorf("Entry without inputs gives %v", err)
	}
	e, err := s.Entry(home, "y", registry.PyPI, registry.Given{Values: map[string][]string{
		"dir": {"~/a", "/b"}, "host": {"h"}, "key": {"canary-of-key"}}, Env: map[string]string{"MORE": "${MORE}"}})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"uvx", "x==1.0", "serve", "--mode", "fast", "--verbose", "--key", "…", "/home/ann/a", "/b", "--at", "h:80{other}"}
	if got := e.CommandLine(); !slices.Equal(got, want) {
		t.Errorf("the command is %q\nwant %q", got, want)
	}
	if got := e.Variables(); !slices.Equal(got, []string{"MORE"}) || len(e.Secrets()) != 1 {
		t.Errorf("it has the variables %v and the secrets %v", got, e.Secrets())
	}
	if _, err := s.Entry(home, "y", registry.NPM, registry.Given{}); err == nil || !strings.Contains(err.Error(), "it can be run by pypi") {
		t.Errorf("another way gives %v", err)
	}
}

// TestExactVersions: an entry runs the version that was looked at. A tag such as next, a range or
// nothing lets the publisher replace it later.
func TestExactVersions(t *testing.T) {
	digest := "@sha256:" + strings.Repeat("a", 64)
	for _, test := range []struct {
		kind, identifier, version string
		runs                      string // the word of the command; "" if the entry is refused
	}{
		{"npm", "@ann/x", "1.2.3", "@ann/x@1.2.3"},
		{"npm", "x", "1.2.3-rc.1+build", "x@1.2.3-rc.1+build"},
		{"npm", "x", "", ""}, {"npm", "x", "next", ""}, {"npm", "x", "latest", ""}, {"npm", "x", "1", ""}, {"npm", "x", "1.2", ""},
		{"npm", "x", "1.2.x", ""}, {"npm", "x", "~1.2.3", ""}, {"npm", "x", "1.2.3 || 2.0.0", ""}, {"npm", "x", "v1.2.3", ""},
		{"pypi", "x", "1.2.3", "x==1.2.3"}, {"pypi", "x", "2024.1", "x==2024.1"}, {"pypi", "x", "1!2.0rc1.post2.dev3+local.1", "x==1!2.0rc1.post2.dev3+local.1"},
		{"pypi", "x", "", ""}, {"pypi", "x", "latest", ""}, {"pypi", "x", "1.2.*", ""}, {"pypi", "x", ">=1", ""}, {"pypi", "x", "1.2,!=1.3", ""},
		{"oci", "ghcr.io/ann/x", "1.2.3", "ghcr.io/ann/x:1.2.3"}, {"oci", "ghcr.io/ann/x:v1.2.3", "", "ghcr.io/ann/x:v1.2.3"},
		{"oci", "ghcr.io/ann/x" + digest, "", "ghcr.io/ann/x" + digest}, {"oci", "ghcr.io:443/ann/x", "1.2.3", "ghcr.io:443/ann/x:1.2.3"},
		{"oci", "ghcr.io/ann/x:1.2.3" + digest, "latest", "ghcr.io/ann/x:1.2.3" + digest},
		{"oci", "ghcr.io/ann/x", "", ""}, {"oci", "ghcr.io:443/ann/x", "", ""}, {"oci", "ghcr.io/ann/x:latest", "1.2.3", ""}, {"oci", "ghcr.io/ann/x", "next", ""},
	} {
		s := mustServer(t, fmt.Sprintf(`{"name":"io.x/y","version":"9.9.9","packages":[{"registryType":%q,"identifier":%q,"version":%q,"transport":{"type":"stdio"}}]}`,
			test.kind, test.identifier, test.version))
		e, err := s.Entry(clients.Home{}, "y", test.kind, registry.Given{})
		if test.runs == "" {
			if err == nil || !strings.Contains(err.Error(), "names no exact version") {
				t.Errorf("%+v gives %v, %v", test, e, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%+v gives %v", test, err)
			continue
		}
		if words := e.CommandLine(); words[len(words)-1] != test.runs {
			t.Errorf("%+v runs %v", test, words)
		}
		if warned := len(e.Notes) > 0; warned != (test.kind == "oci" && !strings.Contains(test.runs, "@")) {
			t.Errorf("%+v has the notes %v", test, e.Notes)
		}
	}
}
