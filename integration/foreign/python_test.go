package foreign

import (
	"crypto/sha256"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"junction/integration/harness"
	"junction/integration/harness/process"
	"junction/upstream/client"
	"junction/upstream/jsonrpc"
)

// This file tries servers of the Python SDK and of FastMCP, in the versions of
// testdata/requirements.txt. JUNCTION_TEST_PYTHON names the Python that installs them with pip.

// mustPython returns the Python of the tests, and the folder with the packages.
func mustPython(t *testing.T) (python, packages string) {
	t.Helper()
	python = os.Getenv("JUNCTION_TEST_PYTHON")
	if python == "" {
		t.Skip("JUNCTION_TEST_PYTHON names no Python")
	}
	packages, err := pythonPackages()
	if err != nil {
		t.Fatal(err)
	}
	return python, packages
}

// pythonPackages installs the packages once for all test processes: a folder that is complete gets
// its name at the end.
var pythonPackages = sync.OnceValues(func() (string, error) {
	list, err := os.ReadFile("testdata/requirements.txt")
	if err != nil {
		return "", err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	folder := filepath.Join(cache, "junction-tests", fmt.Sprintf("python-%x", sha256.Sum256(list)))
	if _, err := os.Stat(folder); err == nil {
		return folder, nil
	}
	if err := os.MkdirAll(filepath.Dir(folder), 0o700); err != nil {
		return "", err
	}
	incomplete, err := os.MkdirTemp(filepath.Dir(folder), "incomplete-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(incomplete)
	cmd := exec.Command(os.Getenv("JUNCTION_TEST_PYTHON"), "-m", "pip", "install", "--quiet", "--target", incomplete,
		"--requirement", "testdata/requirements.txt")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s: %w\n%s", cmd, err, out)
	}
	if err := os.Rename(incomplete, folder); err != nil && !os.IsExist(err) {
		return "", err
	}
	return folder, nil
})

// pythonServers has each SDK over both wires. A command has one process, which speaks the modern
// era, unless the file says otherwise.
func pythonServers(t *testing.T) *harness.Program {
	t.Helper()
	python, packages := mustPython(t)
	script, err := filepath.Abs("testdata/server.py")
	if err != nil {
		t.Fatal(err)
	}
	config := "upstreams:\n"
	for _, sdk := range pythonSDKs {
		_, port, err := net.SplitHostPort(process.FreePort(t))
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(python, script, sdk, port)
		cmd.Env = append(os.Environ(), "PYTHONPATH="+packages)
		process.MustStartServer(t, cmd, regexp.MustCompile("Uvicorn running"))
		config += fmt.Sprintf("  %s-url: {url: %q}\n", sdk, "http://127.0.0.1:"+port+"/mcp")
		for name, line := range map[string]string{"default": "", "legacy": "era: legacy, ", "both": "era: both, ",
			"own-legacy": "era: legacy, ", "learns": ""} {
			config += fmt.Sprintf("  %s-%s: {%scommand: [%q, %q, %s], env: {PYTHONPATH: %q}}\n", sdk, name, line, python, script,
				sdk, packages)
		}
	}
	p := harness.MustProgram(t, config)
	for _, u := range p.MustReady(t, harness.Patience).Upstreams {
		if want := map[bool]string{true: "legacy", false: "modern"}[strings.HasSuffix(u.Name, "-legacy")]; u.Era != want {
			t.Fatalf("upstream %+v, want the %s era", u, want)
		}
	}
	return p
}

var pythonSDKs = []string{"sdk", "fastmcp"}

// person is the answer to the question of the servers.
const person = `{"action":"accept","content":{"name":"Ann"}}`

// answerAll makes calls of one client at the same time, answers the questions that come on any of
// their streams, and returns the answers in the order of the calls.
func answerAll(t *testing.T, c *harness.Talker, calls ...harness.Query) []jsonrpc.Message {
	t.Helper()
	type incoming struct {
		call int
		jsonrpc.Message
	}
	all, ended := make(chan incoming), make(chan struct{})
	defer close(ended)
	begin := func(call int, q harness.Query) {
		a := c.Begin(t, q)
		go func() {
			for m := range a.Messages {
				select {
				case all <- incoming{call, m}:
				case <-ended:
					return
				}
			}
		}()
	}
	for i, q := range calls {
		begin(i, q)
	}
	answers, patience := make([]jsonrpc.Message, len(calls)), harness.Patient(t)
	for left := len(calls); left > 0; {
		select {
		case m := <-all:
			switch {
			case m.IsRequest():
				c.Respond(t, m.ID, `"result":`+person)
			case !m.IsResponse():
			case m.Error == nil && harness.Member(m.Result, "resultType") == `"input_required"`:
				var responses []string
				for _, asked := range harness.Requested(t, m.Message) {
					responses = append(responses, fmt.Sprintf("%q:%s", asked.Key, person))
				}
				again := calls[m.call]
				again.Params = harness.Retried(again.Params, m.Message, responses...)
				begin(m.call, again)
			default:
				answers[m.call] = m.Message
				left--
			}
		case <-patience.Done():
			t.Fatalf("%d of %d calls have no answer", left, len(calls))
		}
	}
	return answers
}

// wantAnswer fails the test unless the answer of a tool has this text.
func wantAnswer(t *testing.T, what string, m jsonrpc.Message, text string) {
	t.Helper()
	if m.Error != nil || harness.Member(m.Result, "isError") == "true" || !strings.Contains(string(m.Result), text) {
		t.Errorf("%s is answered %s, want %q", what, m.Append(nil), text)
	}
}

// TestForeignPython has servers that ask by a request, which Python calls ctx.elicit, and whose lists
// change.
func TestForeignPython(t *testing.T) {
	defer harness.Computes(t)()
	p := pythonServers(t)
	// Who can be asked by a request. The clients have processes of their own: Python does not answer a
	// cancelled call, so for a minute the questions of a process could belong to it.
	askable := map[client.Era][]string{client.EraLegacy: {"legacy", "both", "url"}, client.EraModern: {"own-legacy"}}
	for _, sdk := range pythonSDKs {
		for _, era := range harness.Eras {
			for _, name := range askable[era] {
				up := sdk + "-" + name
				c := harness.Talk(t, p.URL+"/"+up, era)
				t.Run(fmt.Sprintf("%s client, %s, a cancelled call", era, up), func(t *testing.T) {
					for range 2 {
						wait := harness.Called("wait", "{}")
						wait.Meta = `"progressToken":"p"`
						a := c.Begin(t, wait)
						m, ok := a.Next(t)
						if ok && m.Method == "notifications/message" { // its process still starts
							m, ok = a.Next(t)
						}
						if !ok || m.Method != "notifications/progress" {
							t.Fatalf("the call that waits sent %s, %v", m.Append(nil), a.Err)
						}
						if era == client.EraLegacy {
							c.Notify(t, "notifications/cancelled", `"requestId":`+a.ID)
						} else {
							a.Drop()
						}
						wantAnswer(t, "the call after it", answerAll(t, c, harness.Called("ask", "{}"))[0], "It is Ann.")
					}
				})
				t.Run(fmt.Sprintf("%s client, %s, parallel calls", era, up), func(t *testing.T) {
					ask, plain := harness.Called("ask", "{}"), harness.Called("plain", "{}")
					answers := answerAll(t, c, ask, ask, plain, ask, ask)
					for i, m := range answers {
						wantAnswer(t, fmt.Sprintf("call %d", i), m, map[bool]string{true: "plain", false: "It is Ann."}[i == 2])
					}
				})
			}
			t.Run(fmt.Sprintf("%s client, %s, a command without a line", era, sdk), func(t *testing.T) {
				c := harness.Talk(t, p.URL+"/"+sdk+"-learns", era)
				m := c.Call(t, "ask", "{}")
				if era == client.EraModern {
					if said := string(m.Append(nil)); !strings.Contains(said, `\"era: legacy\"`) {
						t.Errorf("the answer is %s, want one that names era: legacy", said)
					}
					return
				}
				if said := string(m.Append(nil)); !strings.Contains(said, "second process") {
					t.Errorf("the answer is %s, want one that announces a second process", said)
				}
				wantAnswer(t, "the next call", answerAll(t, c, harness.Called("ask", "{}"))[0], "It is Ann.")
			})
			for _, name := range []string{"legacy", "default", "url"} {
				t.Run(fmt.Sprintf("%s client, %s-%s, a changed list", era, sdk, name), func(t *testing.T) {
					c := harness.Talk(t, p.URL+"/"+sdk+"-"+name, era)
					for i := range 3 {
						tool := fmt.Sprintf("%s%d", era, i)
						wantAnswer(t, "grow", c.Call(t, "grow", fmt.Sprintf(`{"name":%q}`, tool)), "grown")
						wantAnswer(t, "the new tool", c.Call(t, tool, "{}"), "plain")
						if names := c.Names(t); !slices.Contains(names, tool) {
							t.Errorf("%s is missing in %q", tool, names)
						}
					}
				})
			}
		}
	}
}
