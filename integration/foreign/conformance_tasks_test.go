package foreign

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"junction/integration/harness"
	"junction/integration/harness/npm"
	"junction/upstream/raw"
	"junction/upstream/upstreamtest"
)

// jobs is a server with the tools that the suite's scenarios about tasks want. It is an
// upstreamtest server that is told with each call what to do.
type jobs struct {
	*upstreamtest.Server
	next  http.Handler
	gates atomic.Int64
}

func mustJobs(t testing.TB) string {
	t.Helper()
	var tools []json.RawMessage
	for _, name := range []string{"greet", "slow_compute", "failing_job", "protocol_error_job", "confirm_delete",
		"multi_input", "test_tool_with_task"} {
		tools = append(tools, json.RawMessage(`{"name":"`+name+`","inputSchema":{"type":"object"}}`))
	}
	s := upstreamtest.New(upstreamtest.Script{Era: "modern", Tasks: true, Tools: tools})
	url, _ := upstreamtest.Serve(t, "127.0.0.1:0", &jobs{Server: s, next: s.Handler()})
	return url
}

// ServeHTTP puts into the arguments of a call what the server is to do.
func (j *jobs) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	var call struct {
		Method string
		Params struct {
			Name           string
			Arguments      struct{ Name, Seconds json.RawMessage }
			InputResponses map[string]struct{ Content struct{ Name string } }
		}
	}
	if json.Unmarshal(body, &call) == nil && call.Method == "tools/call" {
		if todo := j.order(call.Params.Name, string(call.Params.Arguments.Name),
			string(call.Params.Arguments.Seconds)); todo != "" {
			if name := call.Params.InputResponses["user_name"].Content.Name; name != "" &&
				call.Params.Name == "test_tool_with_task" {
				todo = fmt.Sprintf(`{"do":"task","result":{"content":[{"type":"text","text":%q}]}}`, "Hello, "+name)
			}
			if changed, err := raw.Set(body, []byte(todo), "params", "arguments"); err == nil {
				body = changed
			}
		}
	}
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	j.next.ServeHTTP(w, r)
}

// order is the arguments with which an upstreamtest server does what the suite expects of a tool.
func (j *jobs) order(tool, name, seconds string) string {
	const ask = `{"key":%q,"method":"elicitation/create","params":{"mode":"form","message":"Sure?",` +
		`"requestedSchema":{"type":"object","properties":{"confirm":{"type":"boolean"}}}}}`
	text := func(t string) string {
		return fmt.Sprintf(`{"content":[{"type":"text","text":%q}],"resultType":"complete"}`, t)
	}
	switch tool {
	case "greet":
		return `{"do":"ask","questions":[],"state":"none","result":` + text("Hello, "+strings.Trim(name, `"`)+"!") + `}`
	case "slow_compute":
		gate := fmt.Sprint("gate", j.gates.Add(1))
		if wait, err := time.ParseDuration(seconds + "s"); err == nil && wait > 0 {
			time.AfterFunc(wait, func() { j.Release(gate) })
			return `{"do":"task","gate":"` + gate + `","result":` + text("computed") + `}`
		}
		return `{"do":"task","result":` + text("computed") + `}`
	case "failing_job":
		return `{"do":"task","required":true,"result":{"content":[],"isError":true,"resultType":"complete"}}`
	case "protocol_error_job":
		return `{"do":"task","error":{"code":-32603,"message":"it broke"}}`
	case "confirm_delete":
		return `{"do":"task","questions":[` + fmt.Sprintf(ask, "confirm") + `],"result":` + text("deleted") + `}`
	case "multi_input":
		return `{"do":"task","questions":[` + fmt.Sprintf(ask, "first") + "," + fmt.Sprintf(ask, "second") +
			`],"together":true,"result":` + text("both") + `}`
	case "test_tool_with_task":
		return `{"do":"ask","questions":[{"key":"user_name","method":"elicitation/create","params":{"mode":"form",` +
			`"message":"Who?","requestedSchema":` +
			`{"type":"object","properties":{"name":{"type":"string"}}}}}]}`
	}
	return ""
}

// TestConformanceTasks has the suite judge tasks, which the reference server does not have: those
// of a server of ours, directly and through the program.
func TestConformanceTasks(t *testing.T) {
	harness.WithoutShort(t)
	harness.Waits(t)
	folder := npm.MustFolder(t)
	direct := mustJobs(t)
	p := harness.MustProgram(t, fmt.Sprintf("upstreams:\n  jobs: {url: %q}\n", mustJobs(t)))
	p.MustReady(t, harness.Patience)
	var runs [2]conformance
	var errs [2]error
	var both sync.WaitGroup
	for i, url := range []string{direct, p.URL + "/jobs"} {
		dir := t.TempDir()
		both.Go(func() {
			runs[i], errs[i] = conform(t.Context(), conformancePatience, folder, dir, nil, "server", "--url", url, "--requirements",
				harness.ModernVersion)
		})
	}
	both.Wait()
	if err := errors.Join(errs[:]...); err != nil {
		t.Fatal(err)
	}
	for i, place := range []string{"direct", "through"} {
		some := false
		for scenario := range runs[0].found {
			if strings.HasPrefix(scenario, "tasks-") {
				some = true
				t.Run(place+"/"+scenario, func(t *testing.T) {
					runs[i].check(t, scenario, runs[0], nil)
					for _, v := range runs[i].found[scenario] {
						if v.Status == "FAILURE" || v.Status == "WARNING" {
							t.Error(v)
						}
					}
				})
			}
		}
		if !some {
			t.Errorf("no scenario about tasks was run; the suite said:\n%s", runs[i].said)
		}
	}
}
