package serve

import (
	"bytes"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"junction/auth"
	"junction/auth/authtest"
	"junction/cmd/watch"
	"junction/upstream/upstreamtest"
)

const (
	reloaded = `msg="configuration reloaded"`
	refused  = `msg="configuration not reloaded; the last good one stays in force"`
)

// mustWatch changes nothing but a comment of the file, and waits until that was seen: a change that
// comes right after the start is found without being watched for.
func (r *running) mustWatch(t testing.TB, text string) {
	t.Helper()
	mustWrite(t, r.file, text+"# changed\n")
	r.stderr.mustSay(t, reloaded, 1)
}

// TestReloadOfAChangedFile changes the file in the ways of editors, of kubelets and of people. None
// of it is told to the program.
func TestReloadOfAChangedFile(t *testing.T) {
	_, url := upstreamtest.Start(t, upstreamtest.Script{})
	with := func(names ...string) string {
		text := addresses + "upstreams:\n"
		for _, name := range names {
			text += "  " + name + ": { url: " + url + " }\n"
		}
		return text
	}
	tests := map[string]func(t *testing.T, file string){
		"written in place": func(t *testing.T, file string) { mustWrite(t, file, with("a", "b")) },
		"written in two steps": func(t *testing.T, file string) {
			text := with("a", "b")
			mustWrite(t, file, text[:len(text)/2])
			mustWrite(t, file, text)
		},
		"renamed over": func(t *testing.T, file string) {
			mustWrite(t, file+"~", with("a", "b"))
			mustRename(t, file+"~", file)
		},
		"removed and made again": func(t *testing.T, file string) {
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
			mustWrite(t, file, with("a", "b"))
		},
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			r := mustServe(t, strings.TrimPrefix(with("a"), addresses))
			r.mustWatch(t, with("a"))
			before := r.upstreams.set.All()[0]
			change(t, r.file)
			r.stderr.mustSay(t, reloaded+" upstreams=2", 1)
			if all := r.upstreams.set.All(); len(all) != 2 || all[0] != before {
				t.Errorf("after the change there are %d upstreams, want 2, the first of them the one that there was", len(all))
			}
		})
	}
}

// TestHalfAFileIsNotLoaded: a file that is written in place, slowly, is not loaded before its end,
// where its deny rules are. Each half would be a valid configuration.
func TestHalfAFileIsNotLoaded(t *testing.T) {
	_, url := upstreamtest.Start(t, upstreamtest.Script{})
	open := addresses + "upstreams: { a: { url: " + url + " } }\npolicies:\n  - name: all\n    rules:\n      - allow: { upstreams: a }\n"
	deny := "      - deny: { tools: a__echo }\n      - deny: { tools: \"*\" }\n"
	for name, at := range map[string]int{"at the end of a line": strings.Index(deny, "\n") + 1, "within a line": 0,
		"in the last line": len(deny) - 1} {
		t.Run(name, func(t *testing.T) {
			r := mustServe(t, "upstreams: { a: { url: "+url+" } }\n")
			r.mustWatch(t, addresses+"upstreams: { a: { url: "+url+" } }\n")
			text := open + deny
			f, err := os.OpenFile(r.file, os.O_WRONLY|os.O_TRUNC, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			half := len(open) + at
			if at == 0 {
				half = len(open) - 1
			}
			mustWriteTo(t, f, text[:half])
			pause := 6 * watch.Settle
			if text[half-1] != '\n' {
				pause = watch.InPlace + 6*watch.Settle // longer than a whole file waits
			}
			<-time.After(pause)
			if got := r.stderr.String(); strings.Count(got, reloaded) != 1 || strings.Contains(got, refused) {
				t.Errorf("the log reports a half of a file:\n%s", got)
			}
			mustWriteTo(t, f, text[half:])
			r.stderr.mustSay(t, reloaded, 2)
			if got := r.stderr.String(); strings.Count(got, reloaded) != 2 {
				t.Errorf("the file is loaded more than once:\n%s", got)
			}
		})
	}
}

// TestReloadOfAFileWithoutAnEnd: a file without the end of its last line counts after two seconds. A
// SIGHUP waits until the file is not written any more.
func TestReloadOfAFileWithoutAnEnd(t *testing.T) {
	_, url := upstreamtest.Start(t, upstreamtest.Script{})
	r := mustServe(t, "upstreams: { a: { url: "+url+" } }\n")
	r.mustWatch(t, addresses+"upstreams: { a: { url: "+url+" } }\n")
	mustWrite(t, r.file, addresses+"upstreams: { a: { url: "+url+" }, b: { url: "+url+" } }")
	if left := settlesIn(r.file); left <= 0 || left > watch.InPlace {
		t.Errorf("a SIGHUP waits %v for a file that was just written, want up to %v", left, watch.InPlace)
	}
	r.stderr.mustSay(t, reloaded+" upstreams=2", 1)
	if err := os.Chtimes(r.file, time.Time{}, time.Now().Add(-watch.InPlace)); err != nil {
		t.Fatal(err)
	}
	if left := settlesIn(r.file); left != 0 {
		t.Errorf("a SIGHUP waits %v for a file that was not written just now", left)
	}
}

// TestSIGHUPWaitsForAFile: a SIGHUP between two writes to a file does not load its half, which lacks the
// deny rule.
func TestSIGHUPWaitsForAFile(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows has no SIGHUP")
	}
	_, url := upstreamtest.Start(t, upstreamtest.Script{})
	open := addresses + "upstreams: { a: { url: " + url + " } }"
	r := mustServe(t, strings.TrimPrefix(open, addresses)+"\n")
	r.mustWatch(t, open+"\n")
	f, err := os.OpenFile(r.file, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	mustWriteTo(t, f, open)
	self, err := os.FindProcess(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if err := self.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	for _, pause := range []time.Duration{3 * watch.Settle, 11 * watch.Settle} { // beyond InPlace after the SIGHUP
		<-time.After(pause)
		if got := r.stderr.String(); strings.Count(got, reloaded) != 1 {
			t.Fatalf("the half of the file is loaded:\n%s", got)
		}
		// as if it were written again later
		if err := os.Chtimes(r.file, time.Time{}, time.Now().Add(4*watch.Settle)); err != nil {
			t.Fatal(err)
		}
	}
	mustWriteTo(t, f, "\npolicies: [{ name: all, rules: [{ allow: { upstreams: a } }, { deny: { tools: a__echo } }] }]\n")
	r.stderr.mustSay(t, reloaded, 2)
}

// TestFileThatChangesDuringItsReload: a text that is no longer that of the file when it has been read is
// not put in force.
func TestFileThatChangesDuringItsReload(t *testing.T) {
	_, url := upstreamtest.Start(t, upstreamtest.Script{})
	file := filepath.Join(t.TempDir(), "config.yaml")
	one := addresses + "upstreams:\n  a: { url: " + url + ", headers: { X: \"${READ}\" } }\n"
	mustWrite(t, file, one)
	log := newTranscript()
	next := one
	state := environment(map[string]string{"XDG_STATE_HOME": t.TempDir()})
	getenv := func(name string) (string, bool) {
		if name == "READ" { // the file is being read
			mustWrite(t, file, next)
			return "x", true
		}
		return state(name)
	}
	p, err := open(options{file: file, stdout: newTranscript(), stderr: authtest.Searched(t, "what the program writes", log), getenv: getenv})
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	two := one + "  b: { url: " + url + " }\n"
	mustWrite(t, file, two)
	next = two + "  c: { url: " + url + " }\n"
	if done := p.reload(true); done || len(p.upstreams.set.All()) != 1 || strings.Contains(log.String(), reloaded) {
		t.Errorf("while the file changes, reload = %t, with %d upstreams:\n%s", done, len(p.upstreams.set.All()), log)
	}
	if done := p.reload(false); !done || len(p.upstreams.set.All()) != 3 {
		t.Errorf("after that, reload = %t, with %d upstreams:\n%s", done, len(p.upstreams.set.All()), log)
	}
}

func mustWriteTo(t testing.TB, f *os.File, text string) {
	t.Helper()
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
}

// TestReloadThroughLinks is a ConfigMap of Kubernetes: the file is a link through a folder that is
// a link, and only that one changes.
func TestReloadThroughLinks(t *testing.T) {
	_, url := upstreamtest.Start(t, upstreamtest.Script{})
	dir := t.TempDir()
	for version, text := range map[string]string{"v1": "{ a: { url: " + url + " } }", "v2": "{ a: { url: " + url + " }, b: { url: " + url + " } }"} {
		if err := os.Mkdir(filepath.Join(dir, version), 0o700); err != nil {
			t.Fatal(err)
		}
		mustWrite(t, filepath.Join(dir, version, "config.yaml"), addresses+"upstreams: "+text+"\n")
	}
	file := filepath.Join(dir, "config.yaml")
	for link, target := range map[string]string{filepath.Join(dir, "..data"): "v1", file: filepath.Join("..data", "config.yaml")} {
		if err := os.Symlink(target, link); err != nil {
			t.Skipf("no links here: %v", err)
		}
	}
	r := mustServeWith(t, options{file: file})
	for i, version := range []string{"v2", "v1", "v2"} { // the first of them may come before the folder is watched
		if err := os.Symlink(version, filepath.Join(dir, "..data_tmp")); err != nil {
			t.Fatal(err)
		}
		mustRename(t, filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data"))
		r.stderr.mustSay(t, reloaded, i+1)
	}
	r.stderr.mustSay(t, reloaded+" upstreams=2", 2)
}

// TestReloadBesideABusyFile: a log in the same folder that never rests must not put the reload off
// for ever.
func TestReloadBesideABusyFile(t *testing.T) {
	_, url := upstreamtest.Start(t, upstreamtest.Script{})
	r := mustServe(t, "upstreams: { a: { url: "+url+" } }\n")
	r.mustWatch(t, addresses+"upstreams: { a: { url: "+url+" } }\n")
	busy, err := os.Create(filepath.Join(filepath.Dir(r.file), "busy.log"))
	if err != nil {
		t.Fatal(err)
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		defer busy.Close()
		tick := time.NewTicker(watch.Settle / 10)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				busy.WriteString("another line\n")
			case <-stop:
				return
			}
		}
	}()
	defer func() {
		close(stop)
		<-stopped
	}()
	mustWrite(t, r.file, addresses+"upstreams: { b: { url: "+url+" } }\n")
	r.stderr.mustSay(t, reloaded, 2)
}

// TestReloadRefused: whatever is wrong with the file, what runs goes on; and a file as it was
// before brings no noise.
func TestReloadRefused(t *testing.T) {
	_, url := upstreamtest.Start(t, upstreamtest.Script{})
	good := "upstreams: { a: { url: " + url + " } }\n"
	r := mustServe(t, good)
	before, inForce := r.upstreams.set.All()[0], r.inForce.reach.Load()
	for i, row := range []struct{ text, why string }{
		{"upstreams: { a: { url: " + url + ", enabeld: true } }\n", "1 mistake, in line 4: upstreams.a.enabeld: unknown key; did you mean enabled?"},
		{"a: [\n", "mistake"},
		{"", "mistake"},
	} {
		text := row.text
		mustWrite(t, r.file, addresses+text)
		r.stderr.mustSay(t, refused, i+1)
		if got := r.pages.asSeen().Report(t.Context()).Reload; !strings.Contains(got, row.why) {
			t.Errorf("/readyz says %q of the file %q, want %q", got, text, row.why)
		}
		if all := r.upstreams.set.All(); len(all) != 1 || all[0] != before {
			t.Errorf("the upstreams have changed with the file %q", text)
		}
	}
	if r.inForce.reach.Load() != inForce {
		t.Errorf("the configuration in force has changed")
	}
	mustWrite(t, r.file, addresses+good+"# good again\n")
	r.stderr.mustSay(t, reloaded, 1)
	if got := r.pages.asSeen().Report(t.Context()).Reload; got != "" {
		t.Errorf("after a good file /readyz says %q", got)
	}
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	if got := r.stderr.String(); !strings.Contains(got, `msg="configuration: unknown key; did you mean enabled?"`) || !strings.Contains(got, "key=upstreams.a.enabeld") {
		t.Errorf("the log does not say what is wrong and where:\n%s", got)
	}
	if got := r.stderr.String(); strings.Count(got, reloaded) != 1 {
		t.Errorf("a bad file was taken over:\n%s", got)
	}
}

// hangup sends SIGHUP to this process at the first line that says that the program serves, and goes on
// when the signal has come.
type hangup struct {
	once sync.Once
	came <-chan os.Signal
}

func (h *hangup) Write(line []byte) (int, error) {
	if bytes.Contains(line, []byte("msg=serving")) {
		h.once.Do(func() {
			if self, err := os.FindProcess(os.Getpid()); err == nil && self.Signal(syscall.SIGHUP) == nil {
				<-h.came
			}
		})
	}
	return len(line), nil
}

// TestSIGHUPAtTheStart: a SIGHUP that is sent as soon as the program says that it serves is a reload.
// Without a receiver it would end the process.
func TestSIGHUPAtTheStart(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows has no SIGHUP")
	}
	came := make(chan os.Signal, 1)
	signal.Notify(came, syscall.SIGHUP)
	defer signal.Stop(came)
	_, url := upstreamtest.Start(t, upstreamtest.Script{})
	file := filepath.Join(t.TempDir(), "config.yaml")
	mustWrite(t, file, addresses+"upstreams: { a: { url: "+url+" } }\n")
	if err := os.Chtimes(file, time.Time{}, time.Now().Add(-watch.InPlace)); err != nil {
		t.Fatal(err)
	}
	r := mustServeWith(t, options{file: file, stderr: &hangup{came: came}})
	r.stderr.mustSay(t, reloaded, 1)
}

// TestReloadAsked: a SIGHUP reloads a file that has not changed. Otherwise the same text is no news, unless a file
// that it refers to has changed.
func TestReloadAsked(t *testing.T) {
	_, url := upstreamtest.Start(t, upstreamtest.Script{})
	dir := t.TempDir()
	mustWrite(t, filepath.Join(dir, "secret"), "canary-one\n")
	file := filepath.Join(dir, "config.yaml")
	mustWrite(t, file, addresses+"upstreams: { a: { url: "+url+", headers: { X-Key: \"${file:secret}\" } } }\n")
	log := newTranscript()
	p, err := open(options{file: file, stdout: newTranscript(), stderr: authtest.Searched(t, "what the program writes", log), getenv: environment(map[string]string{"XDG_STATE_HOME": t.TempDir()})})
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	first := p.upstreams.set.All()[0]
	p.reload(false)
	p.reload(true)
	if got := strings.Count(log.String(), reloaded); got != 1 || p.upstreams.set.All()[0] != first {
		t.Errorf("%d reloads, want 1, and the upstream that there was", got)
	}
	mustWrite(t, filepath.Join(dir, "secret"), "canary-two\n")
	p.reload(false)
	if p.upstreams.set.All()[0] == first {
		t.Errorf("the upstream still has the old header")
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	p.reload(false)
	if got := log.String(); strings.Contains(got, refused) {
		t.Errorf("a file that is being replaced is no news:\n%s", got)
	}
	p.reload(true)
	if got := log.String(); !strings.Contains(got, refused) {
		t.Errorf("who asks for a file that is not there is not told:\n%s", got)
	}
}

// TestReloadKeepsTheFlag: --listen stands above the file also after a reload.
func TestReloadKeepsTheFlag(t *testing.T) {
	_, url := upstreamtest.Start(t, upstreamtest.Script{})
	file := filepath.Join(t.TempDir(), "config.yaml")
	mustWrite(t, file, "admin: 127.0.0.1:0\nlisten: 127.0.0.1:1\nupstreams: { a: { url: "+url+" } }\n")
	r := mustServeWith(t, options{file: file, listen: "127.0.0.1:0"})
	mustWrite(t, file, "admin: 127.0.0.1:0\nlisten: 127.0.0.1:2\nupstreams: { b: { url: "+url+" } }\n")
	r.stderr.mustSay(t, reloaded, 1)
}

// TestReloadOfManyKeys: a reload writes one line for each key that it revokes, and no more than 50.
func TestReloadOfManyKeys(t *testing.T) {
	var log bytes.Buffer
	r := &recording{revoked: &revoked{}, common: &common{log: authtest.Log(t, &log)}}
	keys := make([]auth.Key, 60)
	for i := range keys {
		keys[i] = auth.Key{Name: "ann", Hash: auth.Hash{byte(i)}}
	}
	r.changedKeys("key_revoked", "revoked", keys[:50])
	if got := log.String(); strings.Count(got, "\n") != 50 || !strings.Contains(got, "principal=key:ann key_id=31000000\n") {
		t.Errorf("the log of 50 keys is\n%s", got)
	}
	log.Reset()
	r.changedKeys("key_revoked", "revoked", keys)
	if got := log.String(); strings.Count(got, "\n") != 51 || !strings.HasSuffix(got, "more=10\n") {
		t.Errorf("the log of 60 keys is\n%s", got)
	}
}

func mustRename(t testing.TB, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}

// TestReadyzKeepsReadyWithASlowUpstream: once every upstream was tried, one that a changed file adds
// does not make the program unready while it starts.
func TestReadyzKeepsReadyWithASlowUpstream(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0") // takes connections and says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	_, url := upstreamtest.Start(t, upstreamtest.Script{})
	good := "upstreams:\n  a: { url: " + url + " }\n"
	r := mustServe(t, good)
	r.stderr.mustSay(t, "upstream ready", 1)
	if status, rep := r.mustReport(t); status != http.StatusOK {
		t.Fatalf("/readyz gave %d, %q, want 200", status, rep.Status)
	}
	mustWrite(t, r.file, addresses+good+"  slow: { url: http://"+silent.Addr().String()+"/mcp }\n")
	r.stderr.mustSay(t, reloaded, 1)
	if status, rep := r.mustReport(t); status != http.StatusOK || rep.Status != "ready" || len(rep.Upstreams) != 2 ||
		rep.Upstreams[1].State != "starting" {
		t.Errorf("/readyz gave %d, %+v, want 200, ready, and slow as starting", status, rep)
	}
}
