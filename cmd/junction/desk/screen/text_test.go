package screen

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"junction/cmd/junction/ops/diagnose"
	"junction/upstream/prose"
)

var at = time.Unix(1700000000, 0)

// some are upstreams in every state.
func some() []diagnose.UpstreamStatus {
	return []diagnose.UpstreamStatus{
		{Name: "demo", State: "ready", Era: "modern", Tools: 3},
		{Name: "empty", State: "ready", Era: "legacy"},
		{Name: "filesystem", State: "retrying", RetryAt: at.Add(20 * time.Second),
			Error: "exited with status 1:\n\t\x1b[31mError: API_KEY environment variable is required, see https://example.com/docs", Advice: "set env: { API_KEY: … }"},
		{Name: "linear", State: "needs sign-in", SignIn: true, Error: "nobody has signed in yet; run: junction login linear"},
		{Name: "new", State: "starting", Note: "npx may be downloading the package"},
		{Name: "own", State: "per user"},
	}
}

// TestWarningsAreAboveTheTable: a policy that hides all tools is a warning above a table of servers that work.
func TestWarningsAreAboveTheTable(t *testing.T) {
	text := Text{URL: "URL", Warnings: []string{"config.yaml:6: policies: no rule allows an item of the upstreams of this file"}}
	want := "Junction serves URL\nWarning: config.yaml:6: policies: no rule allows an item of the upstreams of\n  this file\n\n"
	if got := text.header(&prose.Page{}); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestTable(t *testing.T) {
	got, _ := new(Text).table(&prose.Page{}, some(), at)
	want := `  UPSTREAM    STATE            TOOLS
  filesystem  retrying in 20s      -
    exited with status 1: [31mError: API_KEY environment variable is required,
    see https://example.com/docs
    → set env: { API_KEY: … }
  linear      needs sign-in        -
    nobody has signed in yet; run: junction login linear
  demo        ready                3
  empty       ready                0
  new         starting             -  npx may be downloading the package
  own         per user             -
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestNext: the last line says what to do first. Before it, a line counts the servers that need a
// person.
func TestNext(t *testing.T) {
	file := Text{Flags: " --config a.yaml"}
	for _, tt := range []struct {
		text *Text
		list []diagnose.UpstreamStatus
		want string
	}{
		{&file, some(), "\n3 of 6 servers work, 2 need you, 1 is starting.\nNext: sign in with junction login linear --config a.yaml; correct filesystem as shown above, then check with junction doctor --config a.yaml"},
		{&file, some()[2:3], "\n0 of 1 server works, 1 needs you.\nNext: correct filesystem as shown above, then check with junction doctor --config a.yaml"},
		{&Text{}, some()[:2], "\nNext: connect a client with a line above, or with junction connect CLIENT"},
		{&Text{Demo: true}, some()[:1], "\nNext: stop this demo (Ctrl-C) and run junction setup, which adds your servers and connects your clients; or try the demo: junction connect CLIENT"},
		{&file, nil, "\nNext: add the servers of your clients with junction setup --config a.yaml, or one with junction add NAME --config a.yaml -- COMMAND"},
		{&Text{Flags: " --config a.yaml", Disabled: []string{"notes", "x"}}, nil, "\nNext: enable an upstream, for example with junction enable notes --config a.yaml"},
	} {
		if got := tt.text.next(tt.list); got != tt.want+"\n" {
			t.Errorf("next = %q\nwant %q", got, tt.want)
		}
	}
}

// TestTableOfDisabled: a file whose upstreams are all disabled is not one without upstreams.
func TestTableOfDisabled(t *testing.T) {
	text := Text{Disabled: []string{"notes"}}
	if got, _ := text.table(&prose.Page{}, nil, at); got != "  all upstreams are disabled\n" {
		t.Errorf("the table is %q", got)
	}
}

func TestTextFits(t *testing.T) {
	long := []diagnose.UpstreamStatus{{Name: "demo", State: "starting", Error: strings.Repeat("what went wrong ", 20), Advice: strings.Repeat("do this ", 30)}}
	for name, list := range map[string][]diagnose.UpstreamStatus{"none": nil, "some": some(), "long": long} {
		for _, keys := range []bool{false, true} {
			t.Run(fmt.Sprint(name, keys), func(t *testing.T) {
				text := Text{URL: "http://127.0.0.1:8420/mcp", Status: "http://127.0.0.1:8421/", Keys: keys}
				rows, _ := text.table(&prose.Page{}, list, at)
				all := text.header(&prose.Page{}) + rows + text.clients()
				for line := range strings.Lines(all) {
					line = strings.TrimSuffix(line, "\n")
					if n := utf8.RuneCountInString(line); n > prose.Width {
						t.Errorf("%d columns, want at most %d: %s", n, prose.Width, line)
					}
					if strings.TrimRight(line, " ") != line {
						t.Errorf("space at the end of %q", line)
					}
				}
				if got := strings.Count(all, "wrong"); name == "long" && got != 20 {
					t.Errorf("the error is shortened: %s", all)
				}
				if got, want := strings.Contains(all, "no upstreams are configured"), name == "none"; got != want {
					t.Errorf("says that there are none: %v, want %v", got, want)
				}
				if got := strings.Count(all, "Bearer"); (got > 0) != keys {
					t.Errorf("the lines for clients have %d headers with a key; want them: %v", got, keys)
				}
			})
		}
	}
}
