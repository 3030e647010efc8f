package admin

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"junction/cmd/junction/ops/diagnose"
	"junction/upstream/prose"
)

// TestDiagnosisFitsATerminal: whatever upstreams say, a line is no wider than the banner, unless
// one word is, and nothing drives the terminal.
func TestDiagnosisFitsATerminal(t *testing.T) {
	now := time.Unix(1700000000, 0)
	since := now.Add(-49 * time.Hour)
	d := diagnose.Diagnosis{Running: true, Config: "/etc/junction\x1b[31m.yaml", Tools: 3, Bytes: 999, Upstreams: []diagnose.Examined{
		{Name: strings.Repeat("n", 24), State: "starting", Since: &since, Era: "modern", OK: true, Tools: 12345,
			Steps: []diagnose.Step{{Name: "start", Took: 59999}, {Name: "handshake", Took: 9999}, {Name: "list", Took: 999}, {Name: "ping", Took: 9.94}}},
		{Name: "early", State: "starting", Since: &now, Era: "modern", OK: true, Steps: []diagnose.Step{{Name: "list", Took: 1}}},
		{Name: "a", State: "retrying", Since: &now, RetryAt: now.Add(20 * time.Second), Steps: []diagnose.Step{{Name: "handshake", Took: 10}}},
	}, Findings: []diagnose.Finding{
		{Grave: true, Upstream: "a", Text: "it \x1b[31mfailed: " + strings.Repeat("why ", 50), Advice: "look"},
		{Upstream: "b\u202e", Kind: "tool", Name: "x\n", Text: "odd", Detail: "1", Advice: "tell"},
		{Upstream: "b\u202e", Kind: "tool", Name: "y", Text: "odd", Advice: "tell"},
		{Upstream: "b\u202e", Kind: "tool", Name: "z", Text: "queer", Advice: "tell"},
	}}
	for i := range 20 {
		d.Findings = append(d.Findings, diagnose.Finding{Upstream: "c", Kind: "prompt", Name: fmt.Sprint("p", i), Text: "bad", Advice: "tell"})
	}
	var b bytes.Buffer
	if _, err := b.WriteString(diagnosisText(&prose.Page{}, &d, now)); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	for line := range strings.Lines(text) {
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > prose.Width {
			t.Errorf("%d wide: %s", n, line)
		}
	}
	if strings.ContainsAny(text, "\x1b\u202e") {
		t.Errorf("it drives the terminal: %q", text)
	}
	mustContain(t, text, "starting 2d", "60.0s", "999ms", "9.9ms", "retrying in 20s", "failed", "early           starting 0s      modern      - ", "  b: 2 tools: odd: x (1), y\n  b: tool z: queer\n    → tell\n",
		"  c: 20 prompts: bad: p0, p1, p2, p3, p4, p5, p6, p7 and 12 more\n")
}

func mustContain(t *testing.T, text string, want ...string) {
	t.Helper()
	for _, w := range want {
		if !strings.Contains(text, w) {
			t.Errorf("no %q in:\n%s", w, text)
		}
	}
}

// TestDoctorCountsOnlyKnownDefinitions: a server that is not ready has tools whose definitions are not known.
func TestDoctorCountsOnlyKnownDefinitions(t *testing.T) {
	for bytes, want := range map[int]string{0: "14 tools for clients of /mcp.\n", 4000: "14 tools for clients of /mcp, with definitions of "} {
		if got := diagnosisText(&prose.Page{}, &diagnose.Diagnosis{Tools: 14, Bytes: bytes}, time.Now()); !strings.Contains(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
