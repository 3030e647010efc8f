package admin

import (
	"bytes"
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"junction/cmd/junction/base/certificate"
	"junction/cmd/junction/base/config"
	"junction/cmd/junction/ops/diagnose"
	"junction/proxy/view"
	"junction/upstream/prose"
)

// TestWatchStatus watches for a minute: the status is asked every two seconds, a proxy that is not
// there is shown and waited for, and only what has changed is written.
func TestWatchStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var out bytes.Buffer
		s := statusOptions{stdout: &out, watch: true, json: true}
		asked := 0
		err := s.repeat(ctx, func(context.Context) (*diagnose.Running, error) {
			asked++
			switch {
			case asked <= 5:
				return nil, errors.New("no junction is running")
			case asked <= 10:
				return &diagnose.Running{Report: diagnose.Report{Status: "starting"}}, nil
			}
			return &diagnose.Running{Report: diagnose.Report{Status: "ready"}}, nil
		})
		if err != nil || asked < 29 || asked > 31 {
			t.Errorf("asked %d times in a minute (%v), want 30", asked, err)
		}
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		if len(lines) != 3 || lines[0] != `{"error":"no junction is running"}` || !strings.Contains(lines[1], `"starting"`) ||
			!strings.Contains(lines[2], `"ready"`) {
			t.Errorf("written was\n%s", out.String())
		}
	})
}

// TestWriteStatus prints an upstream in each state: errors are not cut, and no control character
// reaches the terminal.
func TestWriteStatus(t *testing.T) {
	now := time.Now()
	long := strings.Repeat("word ", 60) + "end\x1b[31m"
	r := &diagnose.Running{
		Version: "1.2.0", Installed: "1.3.0", PID: 7, URL: "http://127.0.0.1:1/mcp", Config: "c.yaml", Started: now.Add(-3 * time.Hour),
		Report: diagnose.Report{Disabled: []string{"off"}, Status: "ready", Tools: 2, Reload: "2 mistakes", Problems: []view.Problem{{}}, Upstreams: []diagnose.UpstreamStatus{
			{Name: "ok", Calls: 2, Waiting: 1, State: "ready", Tools: 2, Processes: 2, Memory: 123_400_000,
				LastCall: &diagnose.LastCall{Time: now.Add(-90 * time.Second), Name: "ok__do", Outcome: "tool_error"}},
			{Name: "bad", State: "retrying", RetryAt: now.Add(20 * time.Second), Error: long, Advice: "mend it"},
			{Name: "mine", State: diagnose.PerUser},
		}},
	}
	var b prose.Page
	writeStatus(&b, r, now)
	got := b.String()
	for _, want := range []string{
		"Junction serves http://127.0.0.1:1/mcp of c.yaml.\n2 of 3 servers work, 1 needs you.\n" +
			"Junction 1.2.0 is ready, offers 2 tools, and has run for 3h.\n" +
			"The program on disk is 1.3.0. To run it, end the process 7, and start Junction\nagain as you did: junction --config c.yaml\n", "LAST CALL\nbad ", "file is not in force: 2 mistakes\n",
		"ok        ready            2      2          123 MB  2 in progress; 1 waiting; ok__do 1m ago, tool_error\n", "\nbad       retrying in 20s  0      -  ",
		"\n    → mend it\n", "\nmine      per user         -      -  ", "\nDisabled: off\n", "\n1 problem of tools: junction doctor --config c.yaml\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing in\n%s", want, got)
		}
	}
	if strings.Contains(got, "certificate") {
		t.Errorf("without TLS there is a certificate:\n%s", got)
	}
	r.Certificate = &certificate.InUse{Expires: now.Add(61 * 24 * time.Hour).UTC(), Issuer: "Our\nCA"}
	var secure prose.Page
	writeStatus(&secure, r, now)
	if want := "\nThe certificate is valid until " + r.Certificate.Expires.Format("2006-01-02 15:04 UTC") + " (61d), and is from Our CA.\n"; !strings.Contains(secure.String(), want) {
		t.Errorf("%q is missing in\n%s", want, secure.String())
	}
	r.Certificate.Expires = now.Add(-time.Second)
	secure = prose.Page{}
	if writeStatus(&secure, r, now); strings.Contains(secure.String(), "is valid") {
		t.Errorf("an expired certificate is valid in\n%s", secure.String())
	}
	r.Certificate = nil
	r.Variables = "/home/a/service.env"
	var service prose.Page
	writeStatus(&service, r, now)
	if want := "1.3.0. To run it: junction service restart --config c.yaml "; !strings.Contains(strings.Join(strings.Fields(service.String()), " "), want) {
		t.Errorf("%q is missing in\n%s", want, service.String())
	}
	if strings.Contains(got, "arning") {
		t.Errorf("a file without warnings has some:\n%s", got)
	}
	if n := strings.Count(got, "word"); n != 60 || strings.Contains(got, "\x1b") || !strings.Contains(got, "end") {
		t.Errorf("the error has %d of 60 words:\n%s", n, got)
	}
	for range mostWarnings + 1 {
		r.Warnings = append(r.Warnings, config.Problem{File: "c.yaml", Line: 7, Path: "policies[0].match", Text: "matches nobody"})
	}
	r.MoreWarnings = 1
	b = prose.Page{}
	writeStatus(&b, r, now)
	got = b.String()
	if strings.Count(got, "Warning: c.yaml:7: policies[0].match: matches nobody\n") != mostWarnings ||
		!strings.Contains(got, "\n2 more warnings; junction check --config c.yaml shows all\n") {
		t.Errorf("the warnings are\n%s", got)
	}
	if strings.Index(got, "UPSTREAM") > strings.Index(got, "Warning:") || !strings.Contains(got, "\nThe file has 10 warnings, which follow the table.\n") {
		t.Errorf("the warnings are not below the table, or are not announced above it:\n%s", got)
	}
}

// TestScreenful: a status that is higher than the terminal keeps its beginning, and counts the rest.
func TestScreenful(t *testing.T) {
	text := "first\n" + strings.Repeat("a row of the table\n", 50)
	got := screenful(text, 60, 24)
	lines := strings.Split(strings.TrimSuffix(got, "\n"), "\n")
	if len(lines) != 23 || lines[0] != "first" || lines[22] != "… 29 more lines; junction status shows all" {
		t.Errorf("%d lines, the last is %q", len(lines), lines[len(lines)-1])
	}
	for _, fits := range []string{"a\nb\n", strings.Repeat("x\n", 23), ""} {
		if got := screenful(fits, 60, 24); got != fits {
			t.Errorf("%q became %q", fits, got)
		}
	}
	if got := screenful(strings.Repeat("word ", 40)+"\n"+text, 60, 10); strings.Count(got, "\n") != 9 {
		t.Errorf("wide lines take %d rows", strings.Count(got, "\n"))
	}
}

// TestTextsHaveTheHomeFolderAsTilde: people read ~ for the home folder. What they copy into a file stays whole.
func TestTextsHaveTheHomeFolderAsTilde(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no shell of Windows reads ~")
	}
	home := t.TempDir()
	t.Setenv("HOME", home)
	u := diagnose.UpstreamStatus{Name: "x", State: "retrying", Error: "dir " + home + "/x: no such folder",
		Advice: "create " + home + "/x, or set env: { ROOT: " + home + "/y }"}
	r := &diagnose.Running{Config: home + "/c.yaml", Report: diagnose.Report{Upstreams: []diagnose.UpstreamStatus{u}}}
	var b prose.Page
	writeStatus(&b, r, time.Now())
	text := strings.Join(strings.Fields(b.String()), " ")
	for _, want := range []string{" of ~/c.yaml.", "dir ~/x: no such folder", "create ~/x, or set env: { ROOT: " + home + "/y }"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, b.String())
		}
	}
	if row := RowOf(r.Config, &u).Text; !strings.HasPrefix(row, "x: retrying: dir ~/x: no such folder; create ~/x, ") {
		t.Errorf("the row is %q", row)
	}
}
