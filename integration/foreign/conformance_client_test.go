package foreign

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path"
	"slices"
	"strings"
	"testing"

	"junction/integration/harness"
	"junction/integration/harness/npm"
)

// This file runs the suite's scenarios for clients. The suite plays a server and starts a command
// that is to use it: here the command tells the test, which puts the server behind a program and
// has foreign clients of both eras use that. So the client that is judged is the program.

// driverRole is the role of the command that the suite starts: driver.
const driverRole = "conformance-driver"

// driverURL is the variable with the place where the driver tells the test of the server.
const driverURL = "JUNCTION_DRIVER_URL"

// driven is what the driver tells.
type driven struct {
	URL     string
	Context string // what the suite has to say about the scenario, JSON; may be empty
	// Scenario is its name.
	Scenario string
	done     chan struct{}
}

// driver tells the test of the server, whose URL is the last argument, and returns when the test
// has used it.
func driver(args []string) error {
	body, err := json.Marshal(driven{URL: args[len(args)-1], Context: os.Getenv("MCP_CONFORMANCE_CONTEXT"),
		Scenario: os.Getenv("MCP_CONFORMANCE_SCENARIO")})
	if err != nil {
		return err
	}
	resp, err := http.Post(os.Getenv(driverURL), "application/json", bytes.NewReader(body))
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// clientScenario is a scenario for clients.
type clientScenario struct {
	name      string
	revisions []string
	calls     func(t *testing.T, d driven, listed []byte) []toolCall // what the clients call
	skipped   []string                                               // names of checks that do not apply to us
}

type toolCall struct {
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
}

// callEach calls every tool of a list with the same arguments.
func callEach(arguments string) func(*testing.T, driven, []byte) []toolCall {
	return func(t *testing.T, _ driven, listed []byte) (calls []toolCall) {
		t.Helper()
		var list struct{ Tools []toolCall }
		if err := json.Unmarshal(listed, &list); err != nil {
			t.Fatalf("%v in:\n%s", err, listed)
		}
		for _, tool := range list.Tools {
			calls = append(calls, toolCall{tool.Name, json.RawMessage(arguments)})
		}
		return calls
	}
}

// callAsTold calls what the suite wants to be called.
func callAsTold(t *testing.T, d driven, _ []byte) []toolCall {
	t.Helper()
	var told struct{ ToolCalls []toolCall }
	if err := json.Unmarshal([]byte(d.Context), &told); err != nil || len(told.ToolCalls) == 0 {
		t.Fatalf("no calls, %v, in: %s", err, d.Context)
	}
	return told.ToolCalls
}

// callEcho has the schema of one tool, as it was listed, come back from another.
func callEcho(t *testing.T, _ driven, listed []byte) []toolCall {
	t.Helper()
	var list struct {
		Tools []struct {
			Name        string
			InputSchema json.RawMessage
		}
	}
	if err := json.Unmarshal(listed, &list); err != nil {
		t.Fatalf("%v in:\n%s", err, listed)
	}
	for _, tool := range list.Tools {
		if tool.Name == "json_schema_2020_12_tool" {
			return []toolCall{{"json_schema_echo", fmt.Appendf(nil, `{"schema":%s}`, tool.InputSchema)}}
		}
	}
	t.Fatalf("the tool is not in:\n%s", listed)
	return nil
}

func clientScenarios() []clientScenario {
	both, legacy, modern := conformanceRevisions(), []string{harness.LegacyVersion}, []string{harness.ModernVersion}
	none := func(*testing.T, driven, []byte) []toolCall { return []toolCall{} }
	return []clientScenario{
		{name: "initialize", revisions: legacy, calls: none},
		{name: "tools_call", revisions: both, calls: callEach(`{"a":5,"b":3}`)},
		{name: "elicitation-sep1034-client-defaults", revisions: legacy, calls: callEach(`{}`)},
		{name: "sse-retry", revisions: legacy, calls: callEach(`{}`)},
		{name: "json-schema-2020-12-preservation", revisions: both, calls: callEcho},
		{name: "request-metadata", revisions: modern, calls: none},
		// it speaks 2026-07-28, which has neither
		{name: "http-standard-headers", revisions: modern, calls: callEach(`{}`), skipped: []string{
			"ClientMcpMethodHeader_initialize", "ClientMcpMethodHeader_notifications_initialized"}},
		{name: "http-custom-headers", revisions: modern, calls: callAsTold},
		{name: "http-invalid-tool-headers", revisions: modern, calls: callEach(`{"region":"us-west1"}`)},
		{name: "sep-2322-client-request-state", revisions: modern, calls: callEach(`{}`)},
		{name: "json-schema-ref-no-deref", revisions: modern, calls: none},
	}
}

// TestConformanceAsClient has the suite judge the program as a client, which foreign clients of
// both eras drive.
func TestConformanceAsClient(t *testing.T) {
	harness.WithoutShort(t)
	harness.Waits(t)
	folder := npm.MustFolder(t)
	own, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if strings.ContainsAny(own, " '") {
		t.Skipf("the suite takes its command apart at spaces: %s", own)
	}
	var clients []npm.Client
	for _, c := range npm.Clients() {
		if c.Name == "sdk1" || c.Name == "sdk2-modern" {
			clients = append(clients, c.Kept(t))
		}
	}
	for _, revision := range conformanceRevisions() {
		scenarios := map[string]clientScenario{}
		for _, scenario := range clientScenarios() {
			if slices.Contains(scenario.revisions, revision) {
				scenarios[scenario.name] = scenario
			}
		}
		judge := func(t *testing.T, name string, c conformance) {
			c.check(t, name, c, nil)
			for _, v := range c.found[name] {
				if v.Status != "SUCCESS" && v.Status != "INFO" && !slices.Contains(scenarios[name].skipped, v.Name) {
					t.Error(v)
				}
			}
		}
		for _, c := range clients {
			t.Run(path.Join(revision, c.Name), func(t *testing.T) {
				defer harness.Computes(t)()
				use := func(t *testing.T, d driven) { scenarios[d.Scenario].use(t, d, c, revision) }
				mustDriveAll(t, folder, own, "all", revision, slices.Sorted(maps.Keys(scenarios)), use, judge)
			})
		}
	}
}

// use puts the server behind a program and has the client list, call, read and get what there is.
func (s clientScenario) use(t *testing.T, d driven, c npm.Client, revision string) {
	t.Helper()
	era := "auto"
	if revision == harness.ModernVersion {
		era = "modern" // on a busy machine, the suite answers so late that initialize would be tried, which it forbids
	}
	p := harness.MustProgram(t, fmt.Sprintf("upstreams:\n  suite: {url: %q, era: %s}\n", d.URL, era))
	defer p.MustStop(t) // the suite waits for our connections to end
	p.MustReady(t, harness.Patience)
	list := c.MustList(t, p.URL+"/suite")
	calls, err := json.Marshal(s.calls(t, d, list.Raw))
	if err != nil {
		t.Fatal(err)
	}
	var used struct {
		Results []struct{ Error json.RawMessage }
	}
	if err := c.Run(t, &used, p.URL+"/suite", "use", string(calls)); err != nil {
		t.Fatal(err)
	}
	for i, r := range used.Results {
		if len(r.Error) > 0 {
			t.Logf("call %d of %s failed: %s", i, calls, r.Error)
		}
	}
}
