package audit

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"junction/auth/authtest"
	"junction/cmd/junction/base/config"
	"junction/cmd/junction/base/record"
	"junction/proxy"
)

// mustRecord runs an audit that writes calls of these tools, and stops it. It returns its log.
func mustRecord(t *testing.T, file string, tools ...string) string {
	t.Helper()
	var log bytes.Buffer
	var trail record.Trail
	a, err := trail.Next(config.Audit{File: file}, nil, authtest.Log(t, &log))
	if err != nil {
		t.Fatal(err)
	}
	trail.Use(a)
	for _, tool := range tools {
		trail.Call(&proxy.CallInfo{Principal: "key:ci", Method: "tools/call", Name: tool, Outcome: proxy.OK})
	}
	trail.Use(nil)
	return log.String()
}

func mustRead(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func mustWrite(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestTableFitsTheTerminal: each line of the audit fits a terminal of any width. The outcome and the ID
// of a key are on every terminal, and so is the reason of a refusal. Without a terminal, names are whole.
func TestTableFitsTheTerminal(t *testing.T) {
	calls := []line{
		{Principal: "key:a-name-of-many-letters@example.com", KeyID: "3f2a8c1e", Name: strings.Repeat("server__", 8),
			Outcome: "unavailable", Took: 1234.5},
		{Principal: "key:ann", KeyID: "3f2a8c1e", Event: "request_refused", Outcome: "unavailable",
			Detail: "the key was revoked at 2026-11-25T00:07:19Z"},
	}
	for _, test := range []struct {
		columns, lines int
		took           bool // how long the call took is shown
	}{{0, 3, true}, {20, 4, false}, {60, 4, false}, {80, 4, false}, {100, 4, false}, {120, 4, true}, {142, 3, true},
		{200, 3, true}} {
		var b bytes.Buffer
		p := printer{w: &b, table: tableFor(test.columns)}
		if err := p.row("TIME", "WHO", "WHAT", "OUTCOME", "DETAIL"); err != nil {
			t.Fatal(err)
		}
		for i := range calls {
			if err := p.print(&calls[i], nil); err != nil {
				t.Fatal(err)
			}
		}
		got := b.String()
		for text := range strings.Lines(got) {
			if n := utf8.RuneCountInString(text) - 1; test.columns >= 60 && n > test.columns {
				t.Errorf("%d columns: a line has %d: %s", test.columns, n, text)
			}
		}
		if strings.Count(got, " 3f2a8c1e ") != 2 || strings.Count(got, "unavailable") != 2 ||
			!strings.Contains(got, "the key was revoked at 2026-11-") || strings.Count(got, "\n") != test.lines ||
			strings.Contains(got, "1.2345s") != test.took {
			t.Errorf("%d columns:\n%s", test.columns, got)
		}
		if whole := strings.Contains(got, " "+calls[0].Principal+" 3f2a8c1e ") && strings.Contains(got, calls[0].Name+" "); whole !=
			(test.columns == 0) {
			t.Errorf("%d columns: names are whole: %v:\n%s", test.columns, whole, got)
		}
	}
}

// TestDetailOfUnapprovedCalls: the detail of a call that nobody has approved has the rule that asks, and
// whether the user was asked. It has its line on a narrow terminal, too.
func TestDetailOfUnapprovedCalls(t *testing.T) {
	for _, test := range []struct{ outcome, approval, want string }{
		{"declined", "declined", "policy people, rules[0]: the user declined"},
		{"unanswered", "asked", "policy people, rules[0]: asked, no answer yet"},
		{"unanswered", "unanswered", "policy people, rules[0]: asked, no answer"},
		{"unanswered", "impossible", "policy people, rules[0]: the user cannot be asked"},
		{"denied", "late", "policy people, rules[0]"},
		{"unanswered", "", "1.5ms"}, // a server has asked
		{"ok", "given", "1.5ms, approved"},
		{"ok", "remembered", "1.5ms, approved before"},
	} {
		if l := (line{Outcome: test.outcome, Approval: test.approval}); l.outcome() != test.outcome && test.approval != "asked" ||
			l.outcome() != "asked" && test.approval == "asked" {
			t.Errorf("%s, %q: the outcome is shown as %s", test.outcome, test.approval, l.outcome())
		}
		l := line{Outcome: test.outcome, Approval: test.approval, Policy: "people", Rule: "rules[0]", Took: 1.5}
		if got := l.detail(); got != test.want || l.explained() != strings.HasPrefix(test.want, "policy") {
			t.Errorf("%s, %q: the detail is %q, explained %v; want %q", test.outcome, test.approval, got,
				l.explained(), test.want)
		}
	}
}

// TestDetailNamesTheFolder: the detail of a call has the folder of its client beside what explains the outcome, also
// on a narrow terminal.
func TestDetailNamesTheFolder(t *testing.T) {
	for want, l := range map[string]line{
		"1.5ms, in /src/shop":                   {Outcome: "ok"},
		"1.5ms, from the cache, in /src/shop":   {Outcome: "ok", Cached: true},
		"policy people, rules[0], in /src/shop": {Outcome: "denied", Policy: "people", Rule: "rules[0]"},
	} {
		l.Took, l.Folder = 1.5, "/src/shop"
		if got := l.detail(); got != want || !l.explained() {
			t.Errorf("the detail of %+v is %q, explained %v; want %q", l, got, l.explained(), want)
		}
	}
}

// TestEachDeniedCallHasAReason: the detail says what denied a call, also if that is no rule.
func TestEachDeniedCallHasAReason(t *testing.T) {
	for want, l := range map[string]line{
		"policy people, rules[0]":        {Policy: "people", Rule: "rules[0]", Verdict: "deny"},
		"no rule allows it":              {Verdict: "deny"},
		"the caller lacks ops":           {Verdict: "deny", Missing: "ops"},
		"the caller lacks mcp:read docs": {Verdict: "deny", Missing: "mcp:read docs"},
		"1.5ms":                          {Verdict: "allow"}, // the schema of the tool cannot be checked
	} {
		l.Outcome, l.Took = "denied", 1.5
		if got := l.detail(); got != want || l.explained() != (want != "1.5ms") {
			t.Errorf("the detail of %+v is %q, explained %v; want %q", l, got, l.explained(), want)
		}
	}
}

func mustVerify(t *testing.T, file string, known ...record.Link) Report {
	t.Helper()
	r, err := verify(t.Context(), file, append(known, record.Link{})[0])
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// shownTools returns the names of the tools that the command shows.
func shownTools(t *testing.T, file string, f filter) string {
	t.Helper()
	var out, errs bytes.Buffer
	if err := show(t.Context(), &printer{w: &out, asJSON: true}, &errs, file, f, false); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, m := range regexp.MustCompile(`"name":"([^"]*)"`).FindAllStringSubmatch(out.String(), -1) {
		names = append(names, m[1])
	}
	return strings.Join(names, " ")
}

// TestChainGoesOn restarts the proxy, rotates the file while the proxy runs and while it does not,
// compresses a part, and has a process die in the middle of a line: it stays one chain, of which all
// whole lines are shown.
func TestChainGoesOn(t *testing.T) {
	file := filepath.Join(t.TempDir(), "audit.jsonl")
	mustRecord(t, file, "a", "b")
	mustWrite(t, file, mustRead(t, file)+`{"time":"20`) // killed
	if r := mustVerify(t, file); len(r.Problems) > 0 || len(r.Notes) != 1 || !strings.HasSuffix(r.Notes[0], ":3: the last line is incomplete (11 bytes)") {
		t.Errorf("a torn last line: %+v", r)
	}
	if log := mustRecord(t, file, "c"); !strings.Contains(log, "the last line of the audit is incomplete") {
		t.Errorf("the log does not report the torn line: %s", log)
	}
	if err := os.Rename(file, file+".1"); err != nil {
		t.Fatal(err)
	}
	mustRecord(t, file, "d", "e")
	text := mustRead(t, file)
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	io.WriteString(z, text)
	z.Close()
	mustWrite(t, file+"-20260101.gz", packed.String())
	mustRecord(t, file, "f")
	r := mustVerify(t, file)
	if len(r.Problems) > 0 || r.Lines != 6 || r.First != 1 || len(r.Files) != 3 {
		t.Errorf("the report is %+v, want six lines in three files", r)
	}
	if got := shownTools(t, file, filter{}); got != "a b c d e f" {
		t.Errorf("shown are %q", got)
	}
}

// TestBrokenRotation: a rotation that compresses at present, or that a full disk has ended, changes
// neither the chain nor what is shown. A compressed file that is damaged is a problem of its own.
func TestBrokenRotation(t *testing.T) {
	file := filepath.Join(t.TempDir(), "audit.jsonl")
	mustRecord(t, file, "a", "b", "c")
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	io.WriteString(z, mustRead(t, file))
	z.Close()
	if err := os.Rename(file, file+".1"); err != nil {
		t.Fatal(err)
	}
	mustWrite(t, file+".1.gz", packed.String()[:packed.Len()/2])
	mustRecord(t, file, "d")
	for range 2 {
		if r := mustVerify(t, file); len(r.Problems) > 0 || r.Lines != 4 || len(r.Files) != 2 {
			t.Errorf("the report is %+v, want four lines in two files", r)
		}
		mustWrite(t, file+".1.gz", packed.String()) // complete, and the other one is not removed yet
	}
	if got := shownTools(t, file, filter{}); got != "a b c d" {
		t.Errorf("shown are %q", got)
	}
	if err := os.Remove(file + ".1"); err != nil {
		t.Fatal(err)
	}
	mustWrite(t, file+".1.gz", packed.String()[:packed.Len()-4])
	mustWrite(t, file+".0.gz", "no gzip")
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if log := mustRecord(t, file, "e"); !strings.Contains(log, "audit.jsonl.1.gz: unexpected EOF") {
		t.Errorf("the log does not report the damaged file: %s", log)
	}
	r := mustVerify(t, file)
	if len(r.Problems) != 2 || r.Lines != 4 || !strings.Contains(r.Problems[0], ".0.gz:1: the file cannot be read") ||
		!strings.Contains(r.Problems[1], ".1.gz:4: the file cannot be read") {
		t.Errorf("the report is %+v, want two files that cannot be read, and four lines that follow each other", r)
	}
	var out bytes.Buffer
	err := show(t.Context(), &printer{w: &out}, io.Discard, file, filter{}, false)
	if !errors.As(err, new(*fileError)) || !strings.Contains(err.Error(), ".0.gz: ") || strings.Count(out.String(), "tools/call")+
		strings.Count(out.String(), "key:ci") != 4 {
		t.Errorf("show gives %v and\n%s", err, out.String())
	}
}

// TestCompressedBomb: a compressed file of a few KiB that has one endless line costs neither memory
// nor the other files.
func TestCompressedBomb(t *testing.T) {
	file := filepath.Join(t.TempDir(), "audit.jsonl")
	mustRecord(t, file, "a", "b")
	if err := os.Rename(file, file+".1"); err != nil {
		t.Fatal(err)
	}
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	for range 65 {
		z.Write(make([]byte, 1<<20))
	}
	z.Close()
	mustWrite(t, file+".2.gz", packed.String())
	if r := mustVerify(t, file); len(r.Problems) != 1 || r.Lines != 2 ||
		!strings.HasSuffix(r.Problems[0], ".2.gz:1: the file cannot be read: a line has more than 64 MiB, so that the file is no audit") {
		t.Errorf("the report is %+v, want two lines, and one file that cannot be read", r)
	}
}

// TestRotationOfARunningAudit: the chain goes on in the new file.
func TestRotationOfARunningAudit(t *testing.T) {
	file := filepath.Join(t.TempDir(), "audit.jsonl")
	var trail record.Trail
	a, err := trail.Next(config.Audit{File: file}, nil, authtest.Log(t))
	if err != nil {
		t.Fatal(err)
	}
	trail.Use(a)
	trail.Call(&proxy.CallInfo{Name: "a"})
	if a, err = trail.Next(config.Audit{File: file, Arguments: true}, nil, authtest.Log(t)); err != nil {
		t.Fatal(err) // a reload that keeps the file
	}
	trail.Use(a)
	if err := os.Rename(file, file+".1"); err != nil {
		t.Fatal(err)
	}
	trail.Call(&proxy.CallInfo{Name: "b"})
	trail.Use(nil)
	if r := mustVerify(t, file); len(r.Problems) > 0 || r.Lines != 2 || len(r.Files) != 2 {
		t.Errorf("the report is %+v, want two lines in two files", r)
	}
}

// TestVerifyFindsChanges changes the file in each way that hides a line.
func TestVerifyFindsChanges(t *testing.T) {
	file := filepath.Join(t.TempDir(), "audit.jsonl")
	log := mustRecord(t, file, "a", "b", "c", "d")
	whole := mustRead(t, file)
	lines := strings.SplitAfter(whole, "\n")
	m := regexp.MustCompile(`last=(\d+:[0-9a-f]{64})`).FindStringSubmatch(log)
	if m == nil {
		t.Fatalf("the log does not have the last line: %s", log)
	}
	known, err := parseKnown(m[1])
	if err != nil {
		t.Fatal(err)
	}
	second := record.Link{Number: 1}.Next([]byte(lines[1]))
	rechained := func() string { // all hashes are computed again
		forged := filepath.Join(t.TempDir(), "audit.jsonl")
		mustRecord(t, forged, "a", "harmless", "c", "d")
		return mustRead(t, forged)
	}
	forged := strings.SplitAfter(rechained(), "\n")
	for _, tt := range []struct {
		name, text string
		known      record.Link
		want       string // a part of the only problem; "" for none
	}{
		{"nothing", whole, known, ""},
		{"a changed line", strings.Replace(whole, `"name":"b"`, `"name":"x"`, 1), record.Link{}, ":3: number 3 does not follow: number 2 was changed"},
		{"a line that is gone", lines[0] + lines[2] + lines[3], record.Link{}, ":2: numbers 2 to 2 are missing"},
		{"an added line", lines[0] + `{"name":"x"}` + "\n" + lines[1], record.Link{}, ":2: the line has no number"},
		{"a copied line", lines[0] + lines[0] + lines[1], record.Link{}, "the numbers begin again"},
		{"exchanged lines", lines[0] + lines[1] + lines[3] + lines[2], record.Link{}, "numbers 3 to 3 are missing"},
		{"a new audit", lines[0] + lines[1] + rechained(), record.Link{}, "the numbers begin again: lines after number 2"},
		{"the end is gone", lines[0] + lines[1], record.Link{}, ""},
		{"the end is gone, and the log is there", lines[0] + lines[1], known, "ends before number 4"},
		{"everything anew", rechained(), record.Link{}, ""},
		{"everything anew, and the log is there", rechained(), known, "number 4 is not the line that --known names"},
		{"everything is gone", "", record.Link{}, "no line with a number"},
		{"everything is gone, and the log is there", "", known, "no line with a number"},
		{"the beginning is gone", lines[2] + lines[3], record.Link{}, ":1: the first line is number 3: the lines before it are in no file here"},
		{"the beginning is gone, and the log is there", lines[2] + lines[3], known, ""},
		{"the beginning is gone, and the log has the line before", lines[2] + lines[3], second, ""},
		{"the beginning is gone, and the log has an earlier line", lines[3], second, ":1: numbers 3 to 3 are missing after the line that --known names"},
		{"another beginning", forged[2] + forged[3], second, ":1: the first line, number 3, does not follow the line that --known names"},
		{"another beginning, and the log has the end", forged[2] + forged[3], known, "number 4 is not the line that --known names"},
		{"an added first line", `{"name":"x"}` + "\n" + whole, known, ":1: the line has no number"},
		{"an added last line", whole + `{"time":"2026","name":"x"}` + "\n", known, ":5: the line has no number"},
		{"an added line with a wrong number", lines[0] + `{"time":"2026","name":"x","number":"2"}` + "\n" + lines[1], record.Link{}, ":2: the line is none of an audit"},
		{"an added text", lines[0] + "x\n" + lines[1], record.Link{}, ":2: the line is none of an audit"},
		{"a line that became an incomplete one", lines[0] + lines[1][:20] + "\n" + lines[2], record.Link{}, ":3: numbers 2 to 2 are missing"},
		{"an incomplete line", lines[0] + lines[1][:20] + "\n" + lines[1], record.Link{}, ""},
		{"zeros of a crash", lines[0] + `{"ti` + "\x00\x00\n" + lines[1], record.Link{}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			mustWrite(t, file, tt.text)
			r := mustVerify(t, file, tt.known)
			if tt.want == "" && len(r.Problems) > 0 || tt.want != "" && (len(r.Problems) == 0 || !strings.Contains(r.Problems[0], tt.want)) {
				t.Errorf("the problems are %q, want %q", r.Problems, tt.want)
			}
		})
	}
}

// TestVerifyReadsAllFiles: the files of a rotation are read in the order of their numbers, whatever
// their names and times are. A file that is gone, or there twice, is a problem, also if it is the
// first one, and so is an audit without files.
func TestVerifyReadsAllFiles(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "audit.jsonl")
	if r := mustVerify(t, file); len(r.Problems) != 1 || !strings.Contains(r.Problems[0], "no line with a number") {
		t.Errorf("without a file, the report is %+v", r)
	}
	var texts []string
	for _, name := range []string{"-z", "-m", "-a", ""} { // not in the order of names
		mustRecord(t, file, "one", "two")
		texts = append(texts, mustRead(t, file))
		if name != "" {
			if err := os.Rename(file, file+name); err != nil {
				t.Fatal(err)
			}
		}
	}
	mustWrite(t, file+"-empty", "")
	if r := mustVerify(t, file); len(r.Problems) > 0 || r.Lines != 8 || len(r.Files) != 5 {
		t.Errorf("the report is %+v, want eight lines in five files", r)
	}
	if r := mustVerify(t, file+"-m"); len(r.Problems) != 1 || !strings.Contains(r.Problems[0], ":1: the first line is number 3: ") {
		t.Errorf("of one file in the middle, the report is %+v", r)
	}
	for _, tt := range []struct{ name, changed, text, want string }{
		{"the first file is gone", "-z", "", "-m:1: the first line is number 3: "},
		{"a file is gone", "-m", "", "-a:1: numbers 3 to 4 are missing"},
		{"a file is there twice", "-copy", texts[1], ":1: number 3 comes after number 4"},
		{"a file of another process", "-other", texts[0], ":1: the numbers begin again"},
		{"lines without a number are in a file of their own", "-old", `{"time":"2026-01-01T00:00:00Z","name":"x"}` + "\n", "-old:1: the line has no number"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before, err := os.ReadFile(file + tt.changed)
			mustWrite(t, file+tt.changed, tt.text)
			r := mustVerify(t, file)
			if len(r.Problems) == 0 || !strings.Contains(r.Problems[0], tt.want) {
				t.Errorf("the problems are %q, want %q", r.Problems, tt.want)
			}
			if err == nil {
				mustWrite(t, file+tt.changed, string(before))
			} else if err := os.Remove(file + tt.changed); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestVerifyCountsLostLines: the audit itself tells of lines that a full disk has cost. They are
// neither a problem nor left out of the report.
func TestVerifyCountsLostLines(t *testing.T) {
	file := filepath.Join(t.TempDir(), "audit.jsonl")
	mustRecord(t, file, "a")
	text := strings.TrimSuffix(mustRead(t, file), "\n")
	last := record.Link{}.Next([]byte(text))
	mustWrite(t, file, text+"\n"+fmt.Sprintf(`{"time":"2026-01-01T00:00:00.000000Z","dropped":7,"number":2,"after":%q}`, last.Hash)+"\n")
	var out bytes.Buffer
	r := mustVerify(t, file)
	if err := r.print(&out, false); err != nil || len(r.Problems) > 0 || r.Dropped != 7 || !strings.Contains(out.String(), "7 lines could not be written") {
		t.Errorf("the report is %+v:\n%s", r, out.String())
	}
}

// TestFilters: all filters must match.
func TestFilters(t *testing.T) {
	file := filepath.Join(t.TempDir(), "audit.jsonl")
	mustWrite(t, file, `{"time":"2026-01-01T00:00:00Z","principal":"user:x","email":"Ann@example.com","name":"a__1","outcome":"ok"}
{"time":"2026-01-02T00:00:00Z","principal":"key:ci","key_id":"3f2a8c1e","name":"a__2","own_name":"2","outcome":"denied"}
{"time":"2026-01-03T00:00:00Z","principal":"user:y","person":"Bea \u001b[31m Ö","name":"b__3","outcome":"tool_error"}
no JSON
`)
	day := func(n int) time.Time { return time.Date(2026, 1, n, 0, 0, 0, 0, time.UTC) }
	for _, tt := range []struct {
		f    filter
		want string
	}{
		{filter{}, "a__1 a__2 b__3"},
		{filter{who: "ann@"}, "a__1"},
		{filter{who: "key:ci"}, "a__2"},
		{filter{who: "bea"}, "b__3"},
		{filter{who: "3f2a8c1e"}, "a__2"},
		{filter{tool: "a__*"}, "a__1 a__2"},
		{filter{tool: "2"}, "a__2"},
		{filter{tool: "a__*", who: "ci"}, "a__2"},
		{filter{outcomes: []string{"denied", "tool_error"}}, "a__2 b__3"},
		{filter{since: day(2)}, "a__2 b__3"},
		{filter{since: day(2), outcomes: []string{"ok"}}, ""},
	} {
		if got := shownTools(t, file, tt.f); got != tt.want {
			t.Errorf("%+v shows %q, want %q", tt.f, got, tt.want)
		}
	}
	var out, errs bytes.Buffer
	if err := show(t.Context(), &printer{w: &out}, &errs, file, filter{}, false); err != nil {
		t.Fatal(err)
	}
	if text := out.String(); strings.Contains(text, "\x1b") || !strings.Contains(text, "Ann@example.com") || strings.Count(text, "\n") != 4 {
		t.Errorf("the table is\n%s", text)
	}
	if !strings.Contains(errs.String(), "1 line that cannot be read") {
		t.Errorf("the line that is no JSON is not reported: %s", errs.String())
	}
}

func TestSince(t *testing.T) {
	now := time.Date(2026, 1, 10, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Time{
		"": {}, "90m": now.Add(-90 * time.Minute), "7d": now.Add(-7 * 24 * time.Hour), "2026-01-02T03:04:05Z": time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		"2026-01-02": time.Date(2026, 1, 2, 0, 0, 0, 0, time.Local),
	} {
		if got, err := parseSince(text, now); err != nil || !got.Equal(want) {
			t.Errorf("since %q is %v, %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"yesterday", "-5m", "0s", "d"} {
		if got, err := parseSince(text, now); err == nil {
			t.Errorf("since %q is %v, want an error", text, got)
		}
	}
}

// TestFollow shows lines as they come, also after the file was rotated, and no half of a line.
func TestFollow(t *testing.T) {
	file := filepath.Join(t.TempDir(), "audit.jsonl")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	read, w := io.Pipe()
	done := make(chan error, 1)
	go func() {
		done <- show(ctx, &printer{w: w, asJSON: true}, io.Discard, file, filter{}, true)
		w.Close()
	}()
	mustSee := func(want string) {
		t.Helper()
		text := make([]byte, len(want)+1)
		if _, err := io.ReadFull(read, text); err != nil || string(text) != want+"\n" {
			t.Fatalf("shown is %q, %v, want %q", text, err, want)
		}
	}
	named := func(name string) string { return fmt.Sprintf(`{"name":%q}`, name) }
	mustWrite(t, file, named("a")+"\n"+named("b")+"\n"+`{"na`)
	mustSee(named("a"))
	mustSee(named("b"))
	f, err := os.OpenFile(file, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	fmt.Fprint(f, `me":"c"}`+"\n")
	mustSee(`{"name":"c"}`)
	if err := os.Rename(file, file+".1"); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(f, named("d"))
	mustSee(named("d"))
	mustWrite(t, file, named("e")+"\n")
	mustSee(named("e"))
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// atEnd is a file for which something happens when its end is reached the first time.
type atEnd struct {
	*os.File
	happens func()
}

func (r *atEnd) Read(b []byte) (int, error) {
	n, err := r.File.Read(b)
	if err == io.EOF && r.happens != nil {
		r.happens()
		r.happens = nil
	}
	return n, err
}

// TestFollowReadsTheOldFileToItsEnd: the proxy writes a line after the end of the file was reached,
// and then the file is rotated. No line is left out.
func TestFollowReadsTheOldFileToItsEnd(t *testing.T) {
	file := filepath.Join(t.TempDir(), "audit.jsonl")
	mustWrite(t, file, "first\n")
	r := reader{file: file, follow: true}
	if err := r.use(file); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.close() })
	r.rows = record.NewLines(&atEnd{r.open.(*os.File), func() {
		mustWrite(t, file, "first\nlate\n")
		if err := os.Rename(file, file+".1"); err != nil {
			t.Error(err)
		}
		mustWrite(t, file, "new\n")
	}})
	var got []string
	enough := errors.New("enough")
	err := r.read(t.Context(), true, func(text []byte) error {
		if got = append(got, string(text)); string(text) == "new" {
			return enough
		}
		return nil
	})
	if want := "first late new"; err != enough || strings.Join(got, " ") != want {
		t.Errorf("shown are %q, %v; want %s", got, err, want)
	}
}
