package oddities

import (
	"strings"
	"testing"
)

// TestRuleIsForItsTimesAndValues asks a server with one rule, which answers "odd".
func TestRuleIsForItsTimesAndValues(t *testing.T) {
	const call = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo"}}`
	const page = `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"cursor":"2"}}`
	for _, tt := range []struct {
		name  string
		rule  rule
		asked []string
		odd   string // x where the rule answers
	}{
		{"each time", rule{On: "tools/call"}, []string{call, call, page}, "xx-"},
		{"once", rule{On: "tools/call", At: "2"}, []string{call, call, call}, "-x-"},
		{"from a time on", rule{On: "tools/call", At: "2.."}, []string{call, call, call}, "-xx"},
		{"up to a time", rule{On: "tools/call", At: "..2"}, []string{call, call, call}, "xx-"},
		{"a range", rule{On: "any", At: "2..3"}, []string{call, page, call, page}, "-xx-"},
		{"a value", rule{On: "any", When: map[string]string{"cursor": "2"}}, []string{call, page}, "-x"},
		{"another value", rule{On: "any", When: map[string]string{"cursor": "!2"}}, []string{call, page}, "x-"},
		{"a place of the server", rule{On: "any", When: map[string]string{"cursor": "!$url"}}, []string{page}, "x"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			body := "odd"
			tt.rule.Body = &body
			s := newServer(&row{Script: []rule{tt.rule}, Sessionless: true}, "legacy")
			s.origin["url"] = "http://h"
			got := ""
			for _, text := range tt.asked {
				a, err := read([]byte(text))
				if err != nil {
					t.Fatal(err)
				}
				if p := s.answer(a); p.body != nil {
					got += "x"
				} else {
					got += "-"
				}
			}
			if got != tt.odd {
				t.Errorf("the rule answers %s, want %s", got, tt.odd)
			}
		})
	}
}

// TestMistakesOfRowsAreFound has a mistake in each row.
func TestMistakesOfRowsAreFound(t *testing.T) {
	good := row{Name: "good", Story: "s", Servers: []string{"legacy"}, Wires: []string{"http"}, Junction: works}
	if why := good.mistake(); why != "" {
		t.Errorf("a good row has the mistake %q", why)
	}
	for want, change := range map[string]func(*row){
		"the name":         func(r *row) { r.Name = "Good Row" },
		"story":            func(r *row) { r.Story = "" },
		"servers are":      func(r *row) { r.Servers = []string{"old"} },
		"wires are":        func(r *row) { r.Wires = nil },
		"neither here":     func(r *row) { r.SignIn = "there" },
		"a command has":    func(r *row) { r.SignIn, r.Wires = "here", []string{"stdio"} },
		"such kind of c":   func(r *row) { r.Clients = []string{"old"} },
		"endpoint is":      func(r *row) { r.Endpoint = "both" },
		"over sse asks":    func(r *row) { r.Wires, r.Script = []string{"sse"}, []rule{{On: "any", Asks: "roots/list"}} },
		"kind of tls":      func(r *row) { r.TLS = "odd" },
		"neither works":    func(r *row) { r.Junction = "" },
		"a row that is":    func(r *row) { r.Open = "part 1" },
		"it has no on":     func(r *row) { r.Script = []rule{{Status: 500}} },
		"at:":              func(r *row) { r.Script = []rule{{On: "any", At: "1..x"}} },
		"then is":          func(r *row) { r.Script = []rule{{On: "any", Then: "stop"}} },
		"the result is no": func(r *row) { r.Script = []rule{{On: "any", Result: "{"}} },
	} {
		r := good
		if change(&r); !strings.Contains(r.mistake(), want) {
			t.Errorf("the mistake is %q, want %q", r.mistake(), want)
		}
	}
}
