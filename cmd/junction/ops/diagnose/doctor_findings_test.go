package diagnose

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"junction/cmd/junction/base/config"
	"junction/proxy/view"
	"junction/upstream"
	"junction/upstream/command"
	"junction/upstream/raw"
	"junction/upstream/stdio"
	"junction/upstream/transport"
)

// examined returns the diagnosis of one upstream, up.
func examined(t *testing.T, c upstream.Config, s *upstream.Status, r upstream.Report) Diagnosis {
	t.Helper()
	check := func(context.Context) upstream.Report { return r }
	return examine(t.Context(), "test", view.Names{}.WithDefaults(), []examinee{{"up", c, check, s, nil}}, nil,
		func(string, *upstream.Report) {})
}

// TestFindingsOfAnUpstream: what doctor says, by the state in the proxy and the result of the check.
func TestFindingsOfAnUpstream(t *testing.T) {
	failed := upstream.Report{Err: errors.New("no route"), Steps: []upstream.Step{{Name: "connect"}}, Advice: "do this"}
	pack := upstream.Config{Command: []string{"junction-pack", "serve", "/srv/p"}}
	status := func(s upstream.State, change func(*upstream.Status)) *upstream.Status {
		st := &upstream.Status{State: s, Since: time.Now()}
		if change != nil {
			change(st)
		}
		return st
	}
	for _, row := range []struct {
		name   string
		config upstream.Config
		status *upstream.Status
		report upstream.Report
		want   string // grave or not, and the text; "" is no finding
		advice string
	}{
		{"well", upstream.Config{}, status(upstream.StateReady, nil), upstream.Report{}, "", ""},
		{"idle", upstream.Config{}, status(upstream.StateClosed, nil), upstream.Report{}, "", ""},
		{"clients without a session", upstream.Config{Command: []string{"x"}, Isolation: upstream.IsolationSession}, nil,
			upstream.Report{}, "clients of MCP 2026-07-28, such as Claude Code and Copilot CLI, have no session: windows " +
				"of one principal share one process for each folder in the header Junction-Folder, and one without the header " +
				"(isolation: session)", "set isolation: folder"},
		{"still starting", upstream.Config{}, status(upstream.StateStarting, nil), upstream.Report{},
			"the running Junction still starts it, and has no tools of it yet", "run this command again"},
		{"failed", upstream.Config{}, nil, failed, "grave connect failed: no route", "do this"},
		{"failed beside a connection", upstream.Config{}, status(upstream.StateReady, nil), failed,
			"the connection in use works, and a second one does not: no route", "questions: false"},
		{"refused beside a connection", upstream.Config{}, status(upstream.StateReady, nil),
			upstream.Report{Steps: failed.Steps, Err: transport.NotSent(errors.New("refused")), Advice: "start it"},
			"the connection in use works, and a second one does not: refused", "start it"},
		{"failed, and so does the connection in use", upstream.Config{}, status(upstream.StateReady, nil),
			upstream.Report{Steps: failed.Steps, Err: failed.Err, Advice: "do this", InUse: errors.New("refused")},
			"grave connect failed: no route", "do this"},
		{"well, and not in the proxy", upstream.Config{},
			status(upstream.StateRetrying, func(s *upstream.Status) { s.Err = "refused" }), upstream.Report{},
			"grave the proxy has no connection (retrying)", "with its next attempt"},
		{"does not answer, and a new connection works", upstream.Config{}, status(upstream.StateDegraded,
			func(s *upstream.Status) { s.Err, s.Advice = "no answer", "restart it" }), upstream.Report{},
			"grave the server answers over a new connection, and not over the one in use", "restart it"},
		{"a new connection works, and the one in use does not", upstream.Config{}, status(upstream.StateReady, nil),
			upstream.Report{InUse: errors.New("no answer")},
			"grave the server answers over a new connection, and not over the one in use", "junction reconnect up"},
		{"answers nothing at all", upstream.Config{}, status(upstream.StateDegraded, nil), failed,
			"grave connect failed: no route", "do this"},
		{"waits for a folder", upstream.Config{}, status(upstream.StateWaiting, nil), upstream.Report{Waits: errors.New("no folder"),
			Advice: "open one"}, "no folder", "open one"},
		{"a problem of a pack", pack, status(upstream.StateReady, func(s *upstream.Status) {
			s.Reported = append(s.Reported, stdio.Reported{Text: "a mistake"})
		}), upstream.Report{}, "a mistake", "junction-pack check /srv/p"},
		{"has asked for folders", upstream.Config{}, status(upstream.StateReady,
			func(s *upstream.Status) { s.Rootless = true }), upstream.Report{Rootless: true}, rootlessText, "set \"isolation: folder\""},
		{"asks the check alone for folders", upstream.Config{}, status(upstream.StateReady, nil),
			upstream.Report{Rootless: true}, "note " + asksText, "if its tools belong"},
		{"a sandbox in part", upstream.Config{Sandbox: &command.Sandbox{}}, nil, upstream.Report{Sandbox: "not enforced: x"},
			"grave the sandbox is not enforced: x", "sandbox.require: true"},
		{"a whole sandbox", upstream.Config{Sandbox: &command.Sandbox{}}, nil, upstream.Report{Sandbox: command.Enforced}, "", ""},
		{"a required sandbox", upstream.Config{Sandbox: &command.Sandbox{Require: true}}, nil,
			upstream.Report{Sandbox: "not enforced: x"}, "", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			d := examined(t, row.config, row.status, row.report)
			var got []string
			advice := ""
			for _, f := range d.Findings {
				text := f.Text
				if f.Grave {
					text = "grave " + text
				} else if f.Kind == KindNote {
					text = "note " + text
				}
				got, advice = append(got, text), advice+f.Advice
			}
			if text := strings.Join(got, "; "); text != row.want || !strings.Contains(advice, row.advice) {
				t.Errorf("the findings are %q with the advice %q, want %q and %q", text, advice, row.want, row.advice)
			}
		})
	}
}

// TestDoctorHasBothRejectedHandshakes: if a server has rejected the handshakes of both eras, the finding
// has the error of the second one, too.
func TestDoctorHasBothRejectedHandshakes(t *testing.T) {
	d := examined(t, upstream.Config{}, nil, upstream.Report{Err: errors.New("the server answered 502"),
		Other: "server/discover: the server answered 403", Steps: []upstream.Step{{Name: "handshake"}}})
	want := Finding{Grave: true, Upstream: "up", Text: "handshake failed: the server answered 502",
		Detail: "the answer to server/discover: the server answered 403"}
	if len(d.Findings) != 1 || d.Findings[0] != want || d.Upstreams[0].Other != "server/discover: the server answered 403" {
		t.Errorf("the findings are %+v, want %+v", d.Findings, want)
	}
}

// TestManyToolsAreAFinding counts the tools and the bytes that clients of the merged endpoint get: not
// those that the file leaves out, and of two of one name one.
func TestManyToolsAreAFinding(t *testing.T) {
	c := &upstream.Catalog{}
	add := func(name string) {
		definition, err := raw.Parse([]byte(`{"name":"` + name + `","description":"` + strings.Repeat("x", 1000) + `"}`))
		if err != nil {
			t.Fatal(err)
		}
		c.Tools = append(c.Tools, upstream.Tool{Item: upstream.Item{Name: name, Definition: definition}})
	}
	for i := range 150 {
		add("t" + strings.Repeat("i", i%40) + string(rune('a'+i/40)))
	}
	d := examined(t, upstream.Config{}, nil, upstream.Report{Catalog: c})
	var texts []string
	for _, f := range d.Findings {
		texts = append(texts, f.Text)
	}
	all := strings.Join(texts, "; ")
	if d.Tools != 150 || !strings.Contains(all, "150 tools: some clients take no more than 128") ||
		!strings.Contains(all, "KB: a client that loads all of them") {
		t.Errorf("%d tools of %d bytes: %s", d.Tools, d.Bytes, all)
	}
	c.Tools = c.Tools[:1]
	add("t" + "a") // again
	if d = examined(t, upstream.Config{}, nil, upstream.Report{Catalog: c}); d.Tools != 1 || d.Upstreams[0].Listed != 2 ||
		len(d.Findings) != 0 {
		t.Errorf("of two tools of one name %d are seen of %d, with %+v", d.Tools, d.Upstreams[0].Listed, d.Findings)
	}
}

// TestFindingsAreSorted: grave ones first, then by upstream, and each upstream's in their order.
func TestFindingsAreSorted(t *testing.T) {
	d := Diagnosis{Findings: []Finding{{Upstream: "b", Text: "1"}, {Upstream: "a", Text: "2"}, {Grave: true, Upstream: "b", Text: "3"},
		{Upstream: "b", Text: "4"}, {Grave: true, Upstream: "a", Text: "5"}}}
	subjects := &config.Config{Upstreams: map[string]upstream.Config{}}
	for _, name := range []string{"a0", "c"} {
		subjects.Upstreams[name] = upstream.Config{Auth: upstream.Auth{Mode: upstream.SignInMode(upstream.OwnerSubject)}}
	}
	d.leave(subjects, []string{"a0", "c"}, []string{"a0"})
	order := ""
	for _, f := range d.Findings {
		order += f.Text[:1]
	}
	if order != "532e14" { // e: each person signs in there
		t.Errorf("the order is %s, want 532e14: %+v", order, d.Findings)
	}
}

// TestUnknownUpstream names the upstream that is near, or all.
func TestUnknownUpstream(t *testing.T) {
	for want, row := range map[string][2][]string{
		"did you mean github?":                {{"github", "githib"}, {"github", "jira"}},
		"there is github, jira":               {{"zzzzzz"}, {"github", "jira"}},
		"or it is not enabled; there is none": {{"x"}, nil},
	} {
		if err := unknownUpstream(row[0], row[1]); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q of %q: %v, want %q", row[0], row[1], err, want)
		}
	}
	if err := unknownUpstream([]string{"a"}, []string{"b", "a"}); err != nil {
		t.Errorf("a known one: %v", err)
	}
}

// TestOfferedToolsAreCountedAfterTheChecks: a server that becomes ready while it is checked has its tools in the report.
func TestOfferedToolsAreCountedAfterTheChecks(t *testing.T) {
	listed := 0
	check := func(context.Context) upstream.Report {
		listed = 14
		return upstream.Report{}
	}
	d := examine(t.Context(), "test", view.Names{}.WithDefaults(), []examinee{{"up", upstream.Config{}, check, nil, nil}},
		func() map[string]int { return map[string]int{"up": listed} }, func(string, *upstream.Report) {})
	if d.Tools != 14 || d.Upstreams[0].Tools != 14 {
		t.Errorf("the report has %d tools, of up %d; want 14", d.Tools, d.Upstreams[0].Tools)
	}
}
