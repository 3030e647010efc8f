package oddities

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"
)

// row is an odd server.
type row struct {
	Name    string   `yaml:"row"`
	Story   string   `yaml:"story"`
	Servers []string `yaml:"servers"` // which kinds of server answer what no rule answers
	Wires   []string `yaml:"wires"`
	// Sessionless is a legacy server that gives no session.
	Sessionless bool `yaml:"sessionless"`
	// TLS is the kind of certificate and connection, of kindsOfTLS; "" is plain HTTP.
	TLS string `yaml:"tls"`
	// SignIn is where the authorization server is: "" is nowhere, here is the server's own origin, apart
	// is an origin of its own, and named is one with a public name, as has the third party.
	SignIn string `yaml:"sign-in"`
	// OpenTo are methods that need no sign-in.
	OpenTo []string `yaml:"open-to"`
	// Client is a client that a person has registered at the authorization server.
	Client map[string]string `yaml:"client"`
	Script []rule            `yaml:"script"`
	// Calls is how often the first tool is called. Again lets a client connect again after a call that
	// failed, as a user does.
	Calls int  `yaml:"calls"`
	Again bool `yaml:"again"`
	// Later is for a server that works from a later attempt on.
	Later bool `yaml:"later"`
	// Call is a request in place of the call of the first tool: the method and the params.
	Call string `yaml:"call"`
	// Relist is how many tools there are after the calls, when a client lists them once more. The last
	// list counts.
	Relist int `yaml:"relist"`
	// Asked is whether the reference clients declare what they can be asked, and answer. The clients of
	// Junction always do.
	Asked bool `yaml:"asked"`
	// Extends is whether the reference clients declare an extension. The clients of Junction always do.
	Extends bool `yaml:"extends"`
	// Clients are those of Junction, of kindsOfClient; none are those of both eras. Endpoint is the era of
	// their endpoint; "" is both.
	Clients  []string `yaml:"clients"`
	Endpoint string   `yaml:"endpoint"`
	// Entry has further keys of the upstream's entry, in the flow style.
	Entry string `yaml:"entry"`

	// What the reference clients do; record_test.go writes them.
	TypeScript1 string `yaml:"typescript-1"`
	TypeScript2 string `yaml:"typescript-2"`
	Python      string `yaml:"python"`

	// Want is the answer that Junction must give, if it is not that of any reference client.
	Want string `yaml:"want"`
	// Junction is works or fails. Says is a part of the reason that it gives.
	Junction string `yaml:"junction"`
	Says     string `yaml:"says"`
	// Open names who builds what Junction does not do yet.
	Open string `yaml:"open"`
	// Reason is why Junction does not do what a reference client does.
	Reason string `yaml:"reason"`

	file string
	line int
}

// references are the reference clients, in the order in which rows have them.
var references = []string{"typescript-1", "typescript-2", "python"}

// recorded returns what a reference client does.
func (r *row) recorded(client string) string {
	return map[string]string{"typescript-1": r.TypeScript1, "typescript-2": r.TypeScript2, "python": r.Python}[client]
}

const (
	wireHTTP  = "http"
	wireStdio = "stdio"
	wireSSE   = "sse"

	works = "works"
	fails = "fails"
)

var (
	bases = []string{"legacy", "modern", "both"}
	wires = []string{wireHTTP, wireStdio, wireSSE}
)

// outcome is what a client made of a server: "works", "works: what was different" or "fails: why".
type outcome string

func (o outcome) works() bool { return o == works || strings.HasPrefix(string(o), works+": ") }

// mustTable reads all rows.
func mustTable(t testing.TB) (table []*row) {
	t.Helper()
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("there is no table: %v", err)
	}
	seen := map[string]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var nodes []yaml.Node
		if err := yaml.Unmarshal(text, &nodes); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		var rows []*row
		decoder := yaml.NewDecoder(bytes.NewReader(text))
		decoder.KnownFields(true)
		if err := decoder.Decode(&rows); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		for i, r := range rows {
			r.file, r.line, r.Calls = file, nodes[i].Line, max(r.Calls, 1)
			if why := r.mistake(); why != "" || seen[r.Name] {
				t.Errorf("%s:%d: row %q: %s", file, r.line, r.Name, why)
			}
			seen[r.Name] = true
		}
		table = append(table, rows...)
	}
	if t.Failed() {
		t.FailNow()
	}
	return table
}

// rowName is the form of a name.
var rowName = regexp.MustCompile(`^[a-z][a-z0-9-]{2,40}$`)

// mistake says what is wrong with a row; "" if nothing is.
func (r *row) mistake() string {
	unknown := func(known []string, words ...string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return !slices.Contains(known, w) })
	}
	switch {
	case !rowName.MatchString(r.Name):
		return "the name is not of the form " + rowName.String()
	case r.Story == "":
		return "it has no story"
	case len(r.Servers) == 0 || unknown(bases, r.Servers...):
		return fmt.Sprintf("servers are not of %q", bases)
	case len(r.Wires) == 0 || unknown(wires, r.Wires...):
		return fmt.Sprintf("wires are not of %q", wires)
	case unknown([]string{"", "here", "apart", "named"}, r.SignIn):
		return "sign-in is neither here nor apart nor named"
	case r.TLS != "" && kindsOfTLS[r.TLS] == nil:
		return "there is no such kind of tls"
	case (r.SignIn != "" || r.TLS != "") && slices.Contains(r.Wires, wireStdio):
		return "a command has neither a sign-in nor tls"
	case unknown(slices.Collect(maps.Keys(kindsOfClient)), r.Clients...):
		return "there is no such kind of client"
	case unknown([]string{"", "legacy", "modern"}, r.Endpoint):
		return "endpoint is neither legacy nor modern"
	case slices.Contains(r.Wires, wireSSE) && slices.ContainsFunc(r.Script, func(r rule) bool { return r.Asks != "" }):
		return "a server over sse asks nothing"
	case r.Open == "" && unknown([]string{works, fails}, r.Junction):
		return "junction is neither works nor fails"
	case r.Open != "" && r.Junction != "":
		return "a row that is open does not say what Junction does"
	}
	for i := range r.Script {
		if why := r.Script[i].mistake(); why != "" {
			return fmt.Sprintf("rule %d: %s", i+1, why)
		}
	}
	return ""
}

// judge says what is wrong with what Junction did, beside the reference clients; "" if nothing is.
func (r *row) judge(did outcome) string {
	var good []string // what the reference clients that work have
	for _, name := range references {
		switch o := outcome(r.recorded(name)); {
		case o == "":
			return "nothing is recorded of " + name + "; run this test with -record"
		case o.works():
			good = append(good, string(o))
		}
	}
	if r.Want != "" {
		good = []string{r.Want}
	}
	asGood := did.works() && (len(good) == 0 || slices.Contains(good, string(did)))
	switch {
	case r.Open != "" && asGood:
		return "it works, so the row is not open any more; replace open by junction: works"
	case r.Open != "":
		return ""
	case r.Reason != "" && (asGood || len(good) == 0):
		return "the row has a reason for a difference, and there is none"
	case r.Junction == works && !did.works():
		return fmt.Sprintf("Junction works according to the row; it did this: %s", did)
	case r.Junction == fails && did.works():
		return fmt.Sprintf("Junction fails according to the row; it did this: %s", did)
	case r.Says != "" && !strings.Contains(string(did), r.Says):
		return fmt.Sprintf("Junction did this: %s; it does not contain %q", did, r.Says)
	case r.Reason == "" && len(good) > 0 && !asGood:
		return fmt.Sprintf("a reference client does this: %q; Junction did this: %q; make it work, or give the row a reason",
			good[0], did)
	}
	return ""
}
