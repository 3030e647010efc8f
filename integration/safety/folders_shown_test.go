package safety

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"junction/auth"
	"junction/auth/authtest"
	"junction/integration/harness"
	"junction/upstream/client"
	"junction/upstream/upstreamtest"
)

// shown is a program with a command that works in the folders of its clients, and two callers in folders of their
// own.
type shown struct {
	*harness.Program
	dir string
}

// mustShow starts the program and makes a call in each folder. callers are the names of API keys, by folder; an
// empty name is a caller without a key.
func mustShow(t *testing.T, callers map[string]string) *shown {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	child := upstreamtest.Command(t, upstreamtest.Script{Era: string(client.EraModern)})
	keys, entries := map[string]string{}, ""
	for folder, name := range callers {
		if err := os.Mkdir(filepath.Join(dir, folder), 0o700); err != nil {
			t.Fatal(err)
		}
		if name == "" || keys[name] != "" {
			continue
		}
		keys[name] = auth.NewKey()
		authtest.Secret("the key of "+name, keys[name])
		hash, err := auth.HashKey(keys[name])
		if err != nil {
			t.Fatal(err)
		}
		entries += fmt.Sprintf("  - { name: %s, hash: %q }\n", name, hash.String())
	}
	config := fmt.Sprintf("upstreams:\n  up: { command: [%q], env: { %s }, isolation: folder }\n", child.Command[0],
		strings.Join(envOf(child.Env), ", ")) + fmt.Sprintf("folders: { within: [%q] }\n", dir) +
		"audit: { file: audit.jsonl }\nlog: { level: debug }\n"
	if entries != "" {
		config += "auth:\n  api_keys:\n" + entries
	}
	s := &shown{harness.NewProgram(t), dir}
	s.MustConfigure(t, config)
	s.MustServe(t)
	s.MustReady(t, harness.Patience)
	for folder, name := range callers {
		c := (&harness.Talker{URL: s.URL, Era: client.EraModern, Capabilities: `{}`, Key: keys[name]}).Start(t)
		q := whoami
		q.Header = http.Header{"Junction-Folder": {filepath.Join(dir, folder)}}
		if m := c.Begin(t, q).Answer(t); m.Error != nil {
			t.Fatalf("%s in %s: %v", name, folder, m.Error)
		}
	}
	return s
}

// envOf returns variables in the flow style of YAML.
func envOf(env map[string]string) (list []string) {
	for name, value := range env {
		list = append(list, fmt.Sprintf("%s: %q", name, value))
	}
	return list
}

// read returns the answer of the admin address to a request without the secret of the owner.
func (s *shown) read(t *testing.T, path string) string {
	t.Helper()
	resp, err := http.Get(s.Admin + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// run returns what a command of the owner prints, as one line.
func (s *shown) run(t *testing.T, args ...string) string {
	t.Helper()
	out, errors, err := harness.RunJunction(t, s.Owner(), append(args, "--config", s.File())...)
	if err != nil {
		t.Fatalf("junction %s: %v: %s", strings.Join(args, " "), err, errors)
	}
	return strings.Join(strings.Fields(out), " ")
}

// TestFoldersAreShownToTheirOwner: the user who runs Junction reads the folder of each process in the status, and the
// folder of each call in audit and log. A report about one caller has no folder of another one. The admin address,
// which every user of the machine can read, names no folder if callers have keys.
func TestFoldersAreShownToTheirOwner(t *testing.T) {
	harness.Waits(t)
	harness.InMemory(t, "the folders and the commands are those of one process")
	s := mustShow(t, map[string]string{"shop": "ann", "blog": "bob"})
	shop, blog := filepath.Join(s.dir, "shop"), filepath.Join(s.dir, "blog")
	says := func(what, text string, want, not []string) {
		t.Helper()
		for _, word := range want {
			if !strings.Contains(text, word) {
				t.Errorf("%s lacks %q:\n%s", what, word, text)
			}
		}
		for _, word := range not {
			if strings.Contains(text, word) {
				t.Errorf("%s has %q:\n%s", what, word, text)
			}
		}
	}
	both := []string{shop, blog}
	says("status", s.run(t, "status"), []string{"old, in " + shop + ", for key:ann", "old, in " + blog + ", for key:bob",
		"old, reads the lists"}, nil)
	says("status --json", s.run(t, "status", "--json"), []string{`"folder": "` + shop + `"`, `"lists": true`,
		`"memory_bytes"`, `"started"`}, []string{"folder_hidden"})
	says("why of ann", s.run(t, "why", "--as", "ann", "up__whoami"),
		[]string{"isolation: folder); processes of this caller run in " + shop}, []string{blog})
	says("why of bob", s.run(t, "why", "--as", "bob", "up__whoami", "--output", "json"), []string{blog}, []string{shop})
	for path, want := range map[string]string{"/status": `"folder_hidden": true`, "/servers/up": "in the folder of a client",
		"/readyz": `"processes": 3`, "/why?as=ann&name=up__whoami": "Only the user who runs Junction may do this"} {
		says(path+" without the secret", s.read(t, path), []string{want}, append([]string{"key:ann", "key:bob"}, both...))
	}
	says("audit", s.run(t, "audit"), []string{"up__whoami ok", ", in " + s.dir[:20]}, nil)
	says("audit --json", s.run(t, "audit", "--json"), []string{`"folder":"` + shop + `"`, `"folder":"` + blog + `"`}, nil)
	says("the log", s.Stderr.String(), []string{"folder=" + shop, "folder=" + blog}, nil)
}

// TestFoldersWithoutAuthentication: without authentication, every program may call every tool, and the status page
// has the folder of each process.
func TestFoldersWithoutAuthentication(t *testing.T) {
	harness.Waits(t)
	harness.InMemory(t, "the folders are those of one process")
	s := mustShow(t, map[string]string{"a": "", "b": "", "c": "", "d": "", "e": ""})
	page := s.read(t, "/servers/up")
	named := slices.DeleteFunc([]string{"a", "b", "c", "d", "e"}, func(name string) bool {
		return !strings.Contains(page, "in "+filepath.Join(s.dir, name))
	})
	if len(named) != 5 {
		t.Errorf("the page names the folders %q:\n%s", named, page)
	}
	if text := s.run(t, "status"); !strings.Contains(text, "and 1 more; junction status up") ||
		strings.Count(text, " old, in "+s.dir) != 5 {
		t.Errorf("status has other rows than five and the number of others:\n%s", text)
	}
	if text := s.run(t, "why", "up__whoami"); strings.Count(text, s.dir) != 3 || !strings.Contains(text, ", 2 more") {
		t.Errorf("why has not three folders and the number of others:\n%s", text)
	}
}
