package record

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"junction/auth"
	"junction/auth/authtest"
	"junction/cmd/junction/base/config"
	"junction/proxy"
	"junction/upstream"
	"junction/upstream/client"
	"junction/upstream/files"
)

// auditRig is an audit to a pretended standard error, in a bubble.
type auditRig struct {
	*Audit
	disk *disk
	log  bytes.Buffer // read only while everybody waits
}

// disk is where lines go.
type disk struct {
	mu    sync.Mutex
	text  string
	list  []string      // of writes
	fail  error         // what writes return
	limit int           // bytes that a write takes before it fails; 0 is none
	stuck chan struct{} // writes wait until it is closed; nil does not wait
}

func (d *disk) Write(b []byte) (int, error) {
	d.mu.Lock()
	stuck := d.stuck
	d.mu.Unlock()
	if stuck != nil {
		<-stuck
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	n := len(b)
	if d.fail != nil {
		n = min(n, d.limit)
	}
	d.text += string(b[:n])
	d.list = append(d.list, string(b[:n]))
	return n, d.fail
}

func (d *disk) set(fail error, limit int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fail, d.limit = fail, limit
}

// hold has writes wait until the channel is closed; nil does not.
func (d *disk) hold(stuck chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stuck = stuck
}

// take returns the writes since the last take.
func (d *disk) take() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	list := d.list
	d.list = nil
	return list
}

func inAudit(t *testing.T, c config.Audit, f func(t *testing.T, r *auditRig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &auditRig{disk: &disk{}}
		c.File = config.AuditStderr
		var err error
		if r.Audit, err = startAudit(c, r.disk, authtest.Log(t, &r.log)); err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		f(t, r)
	})
}

// startAudit is an audit that has started.
func startAudit(c config.Audit, stderr io.Writer, log *slog.Logger) (*Audit, error) {
	a, err := openAudit(c, nil, stderr, log)
	if err == nil {
		a.start()
	}
	return a, err
}

func (r *auditRig) call(name string) { r.record(&proxy.CallInfo{Name: name, Outcome: "ok"}) }

func auditNames(text string) (names []string) {
	for line := range strings.Lines(text) {
		var l struct {
			Name    string
			Dropped int
		}
		switch err := json.Unmarshal([]byte(line), &l); {
		case err != nil:
			l.Name = "broken"
		case l.Dropped > 0:
			l.Name = fmt.Sprint("dropped ", l.Dropped)
		}
		names = append(names, l.Name)
	}
	return names
}

func (r *auditRig) mustHave(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	r.disk.mu.Lock()
	defer r.disk.mu.Unlock()
	if got := auditNames(r.disk.text); strings.Join(got, ", ") != strings.Join(want, ", ") {
		t.Fatalf("the lines are %q, want %q", got, want)
	}
}

func sha256Hex(text string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(text))) }

// TestAuditLine: one line has all that there is to say, and no argument unless that is asked for.
func TestAuditLine(t *testing.T) {
	arguments := []byte("{\n\"token\": \"canary-1\"}")
	full := proxy.CallInfo{
		RequestID: "abcdefgh-1z", Principal: "key:ci", KeyID: "3f2a8c1e", Person: "Ann Ö", Email: "ann@example.com", Kind: "key", Address: netip.MustParseAddr("10.1.2.3"), Client: "claude \"code\"\n", Session: "s1", Request: "7", Era: "modern",
		Endpoint: "web", Surface: "cli", Upstream: "shell", Method: "tools/call", Name: "shell__run", Own: "run", Verdict: "deny", Policy: "developers", Rule: "rules[2]",
		Missing: "destructive", Approval: "declined", Arguments: arguments, Took: 1234567 * time.Nanosecond, Sent: 120, Received: 30, Outcome: "denied", Code: -32602, Err: errors.New("canary"),
	}
	want := map[string]any{
		"request_id": "abcdefgh-1z", "principal": "key:ci", "key_id": "3f2a8c1e", "person": "Ann Ö", "email": "ann@example.com", "kind": "key", "address": "10.1.2.3", "claimed_client": "claude \"code\"\n", "session": "s1", "request": "7", "era": "modern",
		"endpoint": "web", "surface": "cli", "upstream": "shell", "method": "tools/call", "name": "shell__run", "own_name": "run", "verdict": "deny",
		"policy": "developers", "rule": "rules[2]", "missing": "destructive", "approval": "declined", "arguments_sha256": sha256Hex(string(arguments)), "duration_ms": 1.234, "sent": 120.0,
		"received": 30.0, "outcome": "denied", "code": -32602.0,
	}
	for _, tt := range []struct {
		name string
		c    config.Audit
		call proxy.CallInfo
		want map[string]any
	}{
		{"everything", config.Audit{}, full, want},
		{"nothing", config.Audit{}, proxy.CallInfo{}, map[string]any{"duration_ms": 0.0, "sent": 0.0, "received": 0.0}},
		{"endless texts of a client", config.Audit{}, proxy.CallInfo{Client: strings.Repeat("c", 1<<20), Request: strings.Repeat("r", 1<<20)},
			map[string]any{"claimed_client": strings.Repeat("c", 200), "request": strings.Repeat("r", 200), "duration_ms": 0.0, "sent": 0.0, "received": 0.0}},
		{"an upstream that is not reached", config.Audit{}, proxy.CallInfo{Outcome: proxy.Unavailable,
			Err: &upstream.Error{Upstream: "a", Kind: client.KindUnavailable, Err: errors.New("refused\n" + strings.Repeat("x", 1000))}},
			map[string]any{"outcome": "unavailable", "error": "upstream a: refused " + strings.Repeat("x", 180), "duration_ms": 0.0, "sent": 0.0, "received": 0.0}},
		{"arguments", config.Audit{Arguments: true}, proxy.CallInfo{Arguments: arguments}, map[string]any{"duration_ms": 0.0, "sent": 0.0, "received": 0.0,
			"arguments_sha256": sha256Hex(string(arguments)), "arguments": map[string]any{"token": "canary-1"}}},
		{"arguments of bytes that are no text", config.Audit{Arguments: true}, proxy.CallInfo{Arguments: []byte("{\"a\":\"\xff\"}"), Name: "\xff\u2028\x00"},
			map[string]any{"duration_ms": 0.0, "sent": 0.0, "received": 0.0, "name": "\ufffd\u2028\x00",
				"arguments_sha256": sha256Hex("{\"a\":\"\xff\"}"), "arguments": map[string]any{"a": "\ufffd"}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inAudit(t, tt.c, func(t *testing.T, r *auditRig) {
				r.record(&tt.call)
				tt.want["number"], tt.want["after"] = 1.0, ""
				tt.want["time"] = time.Now().UTC().Format("2006-01-02T15:04:05.000000Z")
				r.Close()
				text := r.disk.text
				if strings.Count(text, "\n") != 1 || !strings.HasSuffix(text, "\n") {
					t.Errorf("it is no one line: %q", text)
				}
				if strings.Contains(text, "canary") && !tt.c.Arguments {
					t.Errorf("it tells an argument: %s", text)
				}
				var got map[string]any
				if err := json.Unmarshal([]byte(text), &got); err != nil {
					t.Fatalf("%q: %v", text, err)
				}
				for k := range got {
					if fmt.Sprint(got[k]) != fmt.Sprint(tt.want[k]) {
						t.Errorf("%s is %v, want %v", k, got[k], tt.want[k])
					}
				}
				if len(got) != len(tt.want) {
					t.Errorf("got %v, want %v", got, tt.want)
				}
			})
		})
	}
}

// TestAuditIsWrittenTogether: lines are written with one write and not late, and an audit
// without a destination does nothing.
func TestAuditIsWrittenTogether(t *testing.T) {
	inAudit(t, config.Audit{}, func(t *testing.T, r *auditRig) {
		for range 3 {
			time.Sleep(time.Hour)
			r.call("one")
			r.call("two")
			synctest.Wait()
			if got := r.disk.take(); len(got) > 0 {
				t.Fatalf("%q was written at once", got)
			}
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
			if got := r.disk.take(); len(got) != 1 || fmt.Sprint(auditNames(got[0])) != "[one two]" {
				t.Fatalf("written were %q, want one and two at once", got)
			}
		}
		long := strings.Repeat("x", 1000)
		for range auditBatch/1000 + 1 {
			r.call(long)
		}
		synctest.Wait()
		if got := r.disk.take(); len(got) != 1 {
			t.Errorf("%d writes of as much as one takes, want one without a delay", len(got))
		}
		r.call("last")
		r.Close()
		r.Close()
		if got := r.disk.take(); len(got) != 1 || r.record(&proxy.CallInfo{}) {
			t.Errorf("at the end %q was written, want the last line, and none taken after it", got)
		}
	})
}

// TestAuditOfAStuckDisk: no call waits for it. What there is no room for is counted, in the log
// and, where it would have been, in the file.
func TestAuditOfAStuckDisk(t *testing.T) {
	inAudit(t, config.Audit{}, func(t *testing.T, r *auditRig) {
		stuck := make(chan struct{})
		r.disk.hold(stuck)
		r.call("first")
		time.Sleep(time.Second) // the goroutine is in the write now
		long := strings.Repeat("x", auditQueue/4)
		began := time.Now()
		for range 30 {
			r.call(long)
			time.Sleep(10 * time.Second)
		}
		if took := time.Since(began); took != 5*time.Minute {
			t.Errorf("calls have waited for %v", took-5*time.Minute)
		}
		r.call("short, for which there is room")
		synctest.Wait()
		if got := strings.Count(r.log.String(), "audit lines are lost"); got != 5 {
			t.Errorf("the log complains %d times in 5 minutes, want 5:\n%s", got, r.log.String())
		}
		r.disk.hold(nil)
		close(stuck)
		time.Sleep(time.Second)
		r.mustHave(t, "first", long, long, long, "dropped 27", "short, for which there is room")
		if !strings.Contains(r.log.String(), `msg="audit lines are written again" file=stderr dropped=27`) {
			t.Errorf("the log does not say that all is well again:\n%s", r.log.String())
		}
		time.Sleep(time.Hour)
		stuck = make(chan struct{})
		r.disk.hold(stuck)
		r.call(strings.Repeat("y", auditQueue*2)) // alone, whatever its length
		synctest.Wait()                           // the goroutine is in the write again
		r.call("late")
		r.disk.hold(nil)
		close(stuck)
		time.Sleep(time.Second)
		r.call("last")
		time.Sleep(time.Second)
		r.mustHave(t, "first", long, long, long, "dropped 27", "short, for which there is room", strings.Repeat("y", auditQueue*2), "dropped 1", "last")
		if n := strings.Count(r.log.String(), "\n"); n != 9 {
			t.Errorf("the log has %d lines, want 9:\n%.2000s", n, r.log.String())
		}
	})
}

// TestAuditOfAFullDisk: lines wait, in order, and are written when there is room; a line that was
// half written comes again.
func TestAuditOfAFullDisk(t *testing.T) {
	inAudit(t, config.Audit{}, func(t *testing.T, r *auditRig) {
		r.call("a")
		time.Sleep(time.Second)
		r.mustHave(t, "a")
		line := len(r.disk.text)
		r.disk.set(syscall.ENOSPC, line+2*sha256.Size+line/2) // only the first line has no hash
		r.call("b")
		r.call("c")
		time.Sleep(time.Second / 2)
		r.disk.set(syscall.ENOSPC, 0)
		for range 90 {
			time.Sleep(time.Second)
		}
		r.call("d")
		synctest.Wait()
		if got := strings.Count(r.log.String(), "audit lines wait in memory"); got != 2 || !strings.Contains(r.log.String(), "no space left") {
			t.Errorf("the log complains %d times in 90 seconds, want 2:\n%s", got, r.log.String())
		}
		r.disk.set(nil, 0)
		time.Sleep(2 * time.Second)
		r.mustHave(t, "a", "b", "broken", "c", "d")
		if got := strings.Count(r.log.String(), "written again"); got != 1 {
			t.Errorf("the log says %d times that all is well:\n%s", got, r.log.String())
		}
		r.disk.set(syscall.EIO, 0)
		r.call("e")
		r.call("f")
		r.Close()
		if !strings.Contains(r.log.String(), `msg="audit lines are lost" file=stderr dropped=2 error="input/output error"`) {
			t.Errorf("the log does not say what was lost at the end:\n%s", r.log.String())
		}
	})
}

// auditFiles reads all that was written below a folder, one file after another.
func auditFiles(t *testing.T, dir string) (text string, files int) {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(dir, "audit*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range list {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		text += string(b)
	}
	return text, len(list)
}

// TestAuditSurvivesRotation: while many calls are made the file is renamed again and again, and
// made anew or not. No line is lost, twice, or broken.
func TestAuditSurvivesRotation(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "audit.jsonl")
	var log writes
	a, err := startAudit(config.Audit{File: file}, nil, authtest.Log(t, &log))
	if err != nil {
		t.Fatal(err)
	}
	const callers, rotations = 4, 30
	var wg sync.WaitGroup
	var made [callers]int
	rotated := make(chan struct{})
	for i := range callers {
		wg.Go(func() {
			for ; ; made[i]++ {
				a.record(&proxy.CallInfo{Name: fmt.Sprint(i, ".", made[i]), Method: "tools/call", Arguments: []byte(`{"a":1}`)})
				if made[i]%100 == 0 {
					a.mustWriteAll(t)
					select {
					case <-rotated:
						made[i]++
						return
					default:
					}
				}
			}
		})
	}
	for i := range rotations {
		mustRename(t, file, filepath.Join(dir, fmt.Sprint("audit.", i)))
		switch i % 3 {
		case 0:
			a.Reopen()
		case 1:
			mustWrite(t, file, "") // as logrotate does with create
		}
		for _, err := os.Stat(file); err != nil; _, err = os.Stat(file) {
			a.mustWriteAll(t)
		}
	}
	close(rotated)
	wg.Wait()
	a.Close()
	text, files := auditFiles(t, dir)
	seen := map[string]int{}
	for _, name := range auditNames(text) {
		seen[name]++
	}
	for i := range callers {
		for n := range made[i] {
			if got := seen[fmt.Sprint(i, ".", n)]; got != 1 {
				t.Fatalf("the line of call %d.%d is there %d times", i, n, got)
			}
		}
	}
	if files != rotations+1 || seen["broken"] > 0 {
		t.Errorf("%d files, %d broken lines, want %d and none", files, seen["broken"], rotations+1)
	}
	if got := log.take(); len(got) != 1 || !strings.Contains(got[0], "INFO msg=audit ") {
		t.Errorf("the log says %q, want only the last hash", got)
	}
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file is %v, %v, want one for its owner alone", info.Mode(), err)
	}
}

// TestAuditStaysLocked: while reloads replace the audit of a file, no other process gets its lock, and the
// chain goes on. When the audit ends, the lock is free.
func TestAuditStaysLocked(t *testing.T) {
	file := filepath.Join(t.TempDir(), "audit.jsonl")
	trail := &Trail{Log: authtest.Log(t)}
	use := func(c config.Audit) {
		t.Helper()
		a, err := trail.Next(c, io.Discard, authtest.Log(t))
		if err != nil {
			t.Fatal(err)
		}
		trail.Use(a)
	}
	use(config.Audit{File: file})
	other, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	ended, tried := make(chan struct{}), make(chan int)
	go func() {
		n := 0
		for {
			select {
			case <-ended:
				tried <- n
				return
			default:
				if files.TryLock(other) == nil {
					n++
				}
			}
		}
	}()
	for i := range 40 {
		trail.Call(&proxy.CallInfo{Name: fmt.Sprint(i), Outcome: "ok"})
		use(config.Audit{File: file, Arguments: i%2 == 0})
	}
	close(ended)
	if n := <-tried; n > 0 {
		t.Errorf("another opener of the file got its lock %d times", n)
	}
	trail.Use(nil)
	if err := files.TryLock(other); err != nil {
		t.Errorf("after the end: %v", err)
	}
	text, err := os.ReadFile(file)
	if err != nil || len(auditNames(string(text))) != 40 {
		t.Errorf("the file has %d lines, %v; want 40", len(auditNames(string(text))), err)
	}
	if last, torn, err := resume(file); err != nil || torn || last.Number != 40 {
		t.Errorf("the chain ends at %d, %v, %v; want 40", last.Number, torn, err)
	}
}

// mustWriteAll makes a call, and waits until no line waits.
func (a *Audit) mustWriteAll(t *testing.T) {
	t.Helper()
	a.record(&proxy.CallInfo{Name: "waited for"})
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for range 10_000 {
		<-tick.C
		a.mu.Lock()
		done := len(a.waiting)+a.held == 0
		a.mu.Unlock()
		if done {
			return
		}
	}
	t.Error("a line was not written")
}

// TestAuditFileThatIsGone: lines wait until its folder is there again.
func TestAuditFileThatIsGone(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "folder")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		var log writes
		a, err := startAudit(config.Audit{File: filepath.Join(dir, "audit.jsonl")}, nil, authtest.Log(t, &log))
		if err != nil {
			t.Fatal(err)
		}
		defer a.Close()
		mustRename(t, dir, dir+"2")
		a.record(&proxy.CallInfo{Name: "a"})
		time.Sleep(time.Minute - time.Second)
		synctest.Wait()
		if got := log.take(); len(got) != 1 || !strings.Contains(got[0], "audit lines wait in memory") {
			t.Errorf("the log says %q, want once that lines wait", got)
		}
		mustRename(t, dir+"2", dir)
		a.record(&proxy.CallInfo{Name: "b"})
		time.Sleep(2 * time.Second)
		a.Close()
		if text, _ := auditFiles(t, dir); fmt.Sprint(auditNames(text)) != "[a b]" {
			t.Errorf("the file has %q", text)
		}
	})
}

func BenchmarkAudit(b *testing.B) {
	for _, size := range []int{100, 1000, 100_000} {
		b.Run(fmt.Sprintf("%dB", size), func(b *testing.B) {
			a, err := startAudit(config.Audit{File: os.DevNull}, nil, authtest.Log(b))
			if err != nil {
				b.Fatal(err)
			}
			defer a.Close()
			call := proxy.CallInfo{
				Principal: "key:ci", Kind: "key", Address: netip.MustParseAddr("10.1.2.3"), Client: "claude-code", Era: "modern", Upstream: "shell", Method: "tools/call",
				Name: "shell__run", Own: "run", Verdict: "allow", Policy: "developers", Rule: "rules[2]", Arguments: bytes.Repeat([]byte("x"), size),
				Took: time.Millisecond, Sent: 120, Received: 30, Outcome: "ok",
			}
			b.ReportAllocs()
			for b.Loop() {
				a.record(&call)
			}
		})
	}
}

// TestRefusalsFillNoDisk: a source has one line a minute, which counts what it stands for, and
// sources that are too many have one together.
func TestRefusalsFillNoDisk(t *testing.T) {
	var r refusalLog
	now := time.Now()
	said := func(address string) string {
		more, ok := r.line(netip.MustParseAddr(address), "", now)
		return fmt.Sprint(ok, " ", more)
	}
	for _, want := range []string{"true 0", "false 0", "false 0"} {
		if got := said("192.0.2.1"); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	if got := said("2001:db8::1") + said("2001:db8::2") + said("2001:db8:0:1::1"); got != "true 0false 0true 0" {
		t.Errorf("of one network and another: %s", got)
	}
	now = now.Add(time.Minute)
	if got := said("192.0.2.1"); got != "true 2" {
		t.Errorf("a minute later: %s, want what was left out", got)
	}
	lines := 0
	for i := range 1 << 16 {
		if _, ok := r.line(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), "", now); ok {
			lines++
		}
	}
	if lines > refusalSources+1 || len(r.sources) > refusalSources+1 {
		t.Errorf("a flood from everywhere has %d lines, and %d sources are kept", lines, len(r.sources))
	}
	now = now.Add(time.Minute)
	if got := said("198.51.100.1"); got != "true 0" || len(r.sources) > 2 {
		t.Errorf("after the flood: %s, with %d sources kept", got, len(r.sources))
	}
	if more, ok := r.line(netip.Addr{}, "", now); !ok || more < 1<<16-200 {
		t.Errorf("those together: %v, %d", ok, more)
	}
}

// TestKnownKeyHasItsOwnLine: strangers behind the address of a revoked key do not hide it, and its
// holder gets one line a minute.
func TestKnownKeyHasItsOwnLine(t *testing.T) {
	var r refusalLog
	now, from := time.Now(), netip.MustParseAddr("192.0.2.1")
	said := func(key string) string {
		more, ok := r.line(from, key, now)
		return fmt.Sprint(ok, " ", more)
	}
	for i, step := range []struct{ key, want string }{
		{"", "true 0"}, {"", "false 0"}, {"aaaaaaaa", "true 1"}, {"aaaaaaaa", "false 0"}, {"bbbbbbbb", "true 1"},
		{"", "false 0"}, {"bbbbbbbb", "false 0"},
	} {
		if got := said(step.key); got != step.want {
			t.Errorf("request %d with the key %q: %s, want %s", i, step.key, got, step.want)
		}
	}
	now = now.Add(time.Minute)
	for i, step := range []struct{ key, want string }{{"", "true 2"}, {"aaaaaaaa", "true 0"}, {"aaaaaaaa", "false 0"}} {
		if got := said(step.key); got != step.want {
			t.Errorf("a minute later, request %d with the key %q: %s, want %s", i, step.key, got, step.want)
		}
	}
	for i := range 2 * refusalKeys {
		r.line(from, fmt.Sprintf("%08x", i), now)
	}
	if len(r.keys) > refusalKeys {
		t.Errorf("%d keys are remembered", len(r.keys))
	}
}

// TestRecordsTellKeysOfOneNameApart: the first use of each key has a line, and a rejected one has its line
// beside those of strangers, in the log, too.
func TestRecordsTellKeysOfOneNameApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		d := &disk{}
		trail := &Trail{Log: authtest.Log(t, &log)}
		a, err := trail.Next(config.Audit{File: config.AuditStderr}, d, authtest.Log(t))
		if err != nil {
			t.Fatal(err)
		}
		trail.Use(a)
		from := netip.MustParseAddr("192.0.2.1")
		for _, id := range []string{"aaaaaaaa", "bbbbbbbb", "aaaaaaaa"} {
			p := &auth.Principal{Kind: auth.KindKey, ID: "key:ann", KeyID: id, Address: from}
			trail.Authenticated(p, "r", httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/mcp", nil))
		}
		trail.Refused(auth.Refusal{Address: from, Status: http.StatusUnauthorized, Method: "tools/call"})
		trail.Refused(auth.Refusal{Address: from, Status: http.StatusUnauthorized, Principal: "key:ann", KeyID: "cccccccc", Reason: "revoked"})
		trail.Use(nil)
		var got []string
		for line := range strings.Lines(d.text) {
			var l struct {
				Event, Principal, Detail, Method string
				KeyID                            string `json:"key_id"`
			}
			if err := json.Unmarshal([]byte(line), &l); err != nil {
				t.Fatal(err)
			}
			got = append(got, strings.TrimRight(l.Event+" "+l.Method+l.Principal+" "+l.KeyID+" "+l.Detail, " "))
		}
		want := []string{"key_used key:ann aaaaaaaa", "key_used key:ann bbbbbbbb", "request_refused tools/call",
			"request_refused key:ann cccccccc revoked"}
		if !slices.Equal(got, want) {
			t.Errorf("the audit has %q, want %q", got, want)
		}
		if n := strings.Count(log.String(), "key_id="); n != 1 ||
			!strings.Contains(log.String(), "principal=key:ann key_id=cccccccc reason=revoked") {
			t.Errorf("the log is\n%s", &log)
		}
	})
}

func mustWrite(t testing.TB, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func mustRename(t testing.TB, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}

// TestDroppedAuditReleasesItsFile: another process can write the file of an audit that is not used. The audit in
// force goes on, also if it is the one that is dropped.
func TestDroppedAuditReleasesItsFile(t *testing.T) {
	one, two := filepath.Join(t.TempDir(), "one"), filepath.Join(t.TempDir(), "two")
	trail := &Trail{Log: authtest.Log(t)}
	next := func(c config.Audit) *Audit {
		t.Helper()
		a, err := trail.Next(c, io.Discard, authtest.Log(t))
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	trail.Use(next(config.Audit{File: one}))
	trail.Drop(next(config.Audit{File: two}))
	other, err := os.Open(two)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if err := files.TryLock(other); err != nil {
		t.Errorf("the file of a dropped audit: %v", err)
	}
	trail.Drop(nil)
	trail.Drop(next(config.Audit{File: one}))                  // which is in force
	trail.Drop(next(config.Audit{File: one, Arguments: true})) // which has the file of the one in force
	trail.Drop(next(config.Audit{File: config.AuditStderr}))
	trail.Call(&proxy.CallInfo{Name: "a__b", Outcome: "ok"})
	trail.Use(nil)
	if text, err := os.ReadFile(one); err != nil || !slices.Equal(auditNames(string(text)), []string{"a__b"}) {
		t.Errorf("the audit in force has %q (%v), want the call", text, err)
	}
}
