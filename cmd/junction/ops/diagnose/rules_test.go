package diagnose

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"junction/cmd/junction/base/config"
	"junction/cmd/junction/base/health"
	"junction/upstream"
	"junction/upstream/raw"
)

// TestRulesAreComparedWithCatalogs: a rule with a typo is reported with its line. A rule for a tool
// that clients do not see, for one that was left out, or for a server that may have it, is not.
func TestRulesAreComparedWithCatalogs(t *testing.T) {
	tool := func(name string) upstream.Tool {
		definition, err := raw.Parse(fmt.Appendf(nil,
			`{"name":%q,"inputSchema":{"type":"object","properties":{"path":{}},"additionalProperties":false}}`, name))
		if err != nil {
			t.Fatal(err)
		}
		return upstream.Tool{Item: upstream.Item{Name: name, Definition: definition}}
	}
	catalog := func(names ...string) *upstream.Catalog {
		c := &upstream.Catalog{Listed: time.Now()}
		for _, name := range names {
			c.Tools = append(c.Tools, tool(name))
		}
		return c
	}
	files := catalog("read", "write", "hidden", "a.dot")
	files.Left = []upstream.LeftOut{{Part: upstream.PartTools, Name: "bad"}}
	unread := catalog("x")
	unread.Left = []upstream.LeftOut{{Part: upstream.PartTools}}
	loose := catalog("loose")
	loose.Tools[0].Loose = "its schema was repaired"
	file := filepath.Join(t.TempDir(), "config.yaml")
	down := upstream.Report{Err: errors.New("down"), Steps: []upstream.Step{{Name: "start"}}}
	read := upstream.Report{Catalog: files}
	ready, retrying := &upstream.Status{State: upstream.StateReady}, &upstream.Status{State: upstream.StateRetrying}
	for _, tt := range []struct {
		rule   string
		report upstream.Report
		status *upstream.Status
		used   *upstream.Catalog
		want   string
	}{
		{"deny: { tools: files__raed }", read, nil, nil, "deny.tools: \"files__raed\" matches no tool; did you mean files__read? (policy all, line 10)"},
		{"deny: { tools: files__write }", read, nil, nil,
			"deny.tools: \"files__write\" matches no tool; tools.NAME.as renames it: write files__put (policy all, line 10)"},
		{"deny: { tools: [files__put, files__hidden, files__bad, files__a.dot, 'files__a_dot_*'] }", read, nil, nil, ""},
		{"deny: { tools: read }", read, nil, nil, "deny.tools: \"read\" matches no tool; did you mean files__read? (policy all, line 10)"},
		{"deny: { tools: [off__x, own__x, '*x'] }", read, nil, nil, ""},
		{"deny: { tools: files__read, where: { pth: x } }", read, nil, nil,
			`deny.where.pth: nothing that this rule selects has an argument "pth"; did you mean path? (policy all, line 10)`},
		{"deny: { tools: files__raed }", down, nil, nil, ""},
		{"deny: { tools: files__raed }", down, retrying, files, ""},
		{"deny: { tools: files__raed }", down, ready, files,
			"deny.tools: \"files__raed\" matches no tool; did you mean files__read? (policy all, line 10)"},
		{"deny: { tools: files__x }", read, ready, catalog("x"), ""}, // in one of two catalogs
		{"deny: { tools: files__y }", upstream.Report{Catalog: unread}, nil, nil, ""},
		{"deny: { tools: files__y }", down, ready, &upstream.Catalog{}, ""}, // it was never listed
		{"deny: { tools: files__loose, where: { pth: x } }", upstream.Report{Catalog: loose}, nil, nil, ""},
		{"deny: { tools: files__y }", upstream.Report{Catalog: files}, nil, &upstream.Catalog{}, "deny.tools: \"files__y\" matches no tool (policy all, line 10)"},
	} {
		text := "upstreams:\n" +
			"  files: { url: https://files.example.com, tools: { hidden: { enabled: false }, write: { as: put } } }\n" +
			"  off: { url: https://off.example.com, enabled: false }\n" +
			"  own: { url: https://own.example.com, auth: { mode: oauth_user } }\n" +
			"policies:\n  - name: all\n    rules:\n      - allow: { upstreams: files }\n      # a comment\n      - " + tt.rule + "\n"
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := config.LoadForCommand(file)
		if c == nil {
			t.Fatal(err)
		}
		e := examinee{name: "files", config: c.Upstreams["files"], status: tt.status, catalog: tt.used}
		d := Diagnosis{catalogs: map[string][]*upstream.Catalog{"files": e.known(&tt.report)}}
		d.compareRules(c, file)
		var got []string
		for _, f := range d.Findings {
			if f.Grave || f.Kind != KindRule || f.Advice == "" {
				t.Errorf("%+v", f)
			}
			got = append(got, fmt.Sprintf("%s: %s (%s)", strings.TrimPrefix(f.Name, "policies[0].rules[1]."), f.Text, f.Detail))
		}
		if text := strings.Join(got, "\n"); text != tt.want {
			t.Errorf("%s:\n got %q\nwant %q", tt.rule, text, tt.want)
		}
		if d.Findings = nil; tt.want != "" {
			if d.compareRules(c, ""); len(d.Findings) != 1 || d.Findings[0].Detail != "" {
				t.Errorf("without the file: %+v", d.Findings)
			}
		}
	}
	text := "upstreams:\n  files: { url: https://files.example.com }\n  off: { url: https://off.example.com, enabled: false }\n" +
		"endpoints:\n  web:\n    upstreams: [files]\n    catalog: search\n    always: [files__raed, 'files__*', off__x]\n" +
		"  chat: { catalog: search, always: [files__write, off__x] }\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := config.LoadForCommand(file)
	if c == nil {
		t.Fatal(err)
	}
	d := Diagnosis{catalogs: map[string][]*upstream.Catalog{"files": {files}}}
	d.compareRules(c, file)
	var got []string
	for _, f := range d.Findings {
		got = append(got, fmt.Sprintf("%s: %s (%s)", f.Name, f.Text, f.Detail))
	}
	const want = "endpoints.web.always[0]: \"files__raed\" matches no tool; did you mean files__read? (line 8)\n" +
		"endpoints.web.always[2]: \"off__x\" matches no tool (line 8)"
	if text := strings.Join(got, "\n"); text != want {
		t.Errorf("the tools that endpoints list:\n got %s\nwant %s", text, want)
	}
	exact := examinee{config: upstream.Config{Questions: upstream.QuestionsExact}, status: ready, catalog: files}
	if exact.known(&read) != nil {
		t.Error("the catalogs of other clients are unknown, and the rules are compared")
	}
}

// TestPartsThatFailAreFindings: a part that works, and one whose first check has not ended, are none.
func TestPartsThatFailAreFindings(t *testing.T) {
	d := Diagnosis{Config: "c.yaml"}
	now := time.Now()
	d.addParts([]health.State{{Name: "storage", OK: true, Since: now}, {Name: "audit", Error: "not checked"},
		{Name: "storage", Since: now, Error: "no\nroute"}, {Name: health.IdentityProviders, Since: now, Error: "off"}})
	var got []string
	for _, f := range d.Findings {
		got = append(got, fmt.Sprint(f.Grave, " ", f.Text, ", ", f.Advice))
	}
	want := []string{"true storage: no route, ", "true identity_providers: off, users cannot sign in; this command " +
		"compares the file with the providers: junction auth doctor --config c.yaml"}
	if !slices.Equal(got, want) {
		t.Errorf("the findings are %q, want %q", got, want)
	}
}
