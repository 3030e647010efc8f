package serve

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"junction/auth"
	"junction/auth/authtest"
	"junction/auth/seal"
	"junction/cmd/junction/base/config"
	"junction/cmd/junction/base/listeners"
	"junction/cmd/junction/base/record"
	"junction/cmd/junction/ops/diagnose"
	"junction/proxy"
	"junction/upstream/jsonrpc"
	"junction/upstream/upstreamtest"
)

// transcript is a text that one goroutine writes and others wait for.
type transcript struct {
	mu      sync.Mutex
	text    bytes.Buffer  // guarded by mu
	changed chan struct{} // closed and replaced at each write; guarded by mu
}

func newTranscript() *transcript { return &transcript{changed: make(chan struct{})} }

func (r *transcript) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.changed)
	r.changed = make(chan struct{})
	return r.text.Write(b)
}

func (r *transcript) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.String()
}

// mustSay waits until the text has n times what.
func (r *transcript) mustSay(t testing.TB, what string, n int) {
	t.Helper()
	late := time.After(2 * time.Minute)
	for {
		r.mu.Lock()
		text, changed := r.text.String(), r.changed
		r.mu.Unlock()
		if strings.Count(text, what) >= n {
			return
		}
		select {
		case <-changed:
		case <-late:
			t.Fatalf("want %d times %q in:\n%s", n, what, text)
		}
	}
}

// running is a program that serves in this process.
type running struct {
	*program
	stdout, stderr *transcript
	stop           func() error // ends it, and returns what serve returned
	late           func()       // called between serve and close; nil for nothing
	state          string       // its folder for state
}

// own lets the commands of the test find the program, and its secret, as those of its user do.
func (r *running) own(t testing.TB) { t.Setenv("XDG_STATE_HOME", r.state) }

// owned is the header that shows the owner.
func (r *running) owned() http.Header {
	return http.Header{diagnose.OwnerHeader: {string(r.pages.place.owner)}}
}

// mustServe serves with the file, to which it adds addresses that are free, and that the log is to
// say everything.
func mustServe(t testing.TB, text string) *running {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config.yaml")
	mustWrite(t, file, addresses+text)
	return mustServeWith(t, options{file: file})
}

const addresses = "listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\nlog: { level: debug }\n"

func mustServeWith(t testing.TB, o options) *running {
	t.Helper()
	r := &running{stdout: newTranscript(), stderr: newTranscript()}
	r.state = t.TempDir()
	const what = "what the program writes"
	if o.stderr != nil {
		o.stderr = io.MultiWriter(r.stderr, o.stderr)
	} else {
		o.stderr = r.stderr
	}
	o.stdout, o.stderr = authtest.Searched(t, what, r.stdout), authtest.Searched(t, what, o.stderr)
	o.getenv = environment(map[string]string{"XDG_STATE_HOME": r.state})
	var err error
	if r.program, err = open(o); err != nil {
		t.Fatalf("open: %v\n%s", err, r.stderr)
	}
	authtest.Secret("the secret of the owner", string(r.pages.place.owner))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		err := r.serve(ctx)
		if r.late != nil {
			r.late()
		}
		r.close() // it writes into the folder of the state, which ends with the test
		done <- err
	}()
	r.stop = sync.OnceValue(func() error {
		cancel()
		return <-done
	})
	t.Cleanup(func() {
		if err := r.stop(); err != nil {
			t.Errorf("serve: %v", err)
		}
		if t.Failed() {
			t.Logf("log:\n%s", r.stderr)
		}
	})
	r.stderr.mustSay(t, "msg=serving", 1)
	return r
}

// mustReport reads /readyz.
func (r *running) mustReport(t testing.TB) (int, diagnose.Report) {
	t.Helper()
	resp, err := http.Get("http://" + r.listening.admin.Addr().String() + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var rep diagnose.Report
	if err := json.NewDecoder(resp.Body).Decode(&rep); err != nil {
		t.Fatalf("read /readyz: %v", err)
	}
	return resp.StatusCode, rep
}

func TestServe(t *testing.T) {
	s, url := upstreamtest.Start(t, upstreamtest.Script{})
	defer s.Close()
	r := mustServe(t, "upstreams: { a: { url: "+url+" } }\n")
	r.stdout.mustSay(t, "Junction serves "+r.listening.url(), 1)
	r.stdout.mustSay(t, "\nConfiguration   "+r.file+"\n", 1)
	r.stdout.mustSay(t, "  a         ready", 1)
	if got, want := r.stderr.String(), "msg=serving url="+r.listening.url()+" admin=http://"+r.listening.admin.Addr().String()+" config="+r.file+"\n"; !strings.Contains(got, want) {
		t.Errorf("the log is %q, want %q in it", got, want)
	}
	status, rep := r.mustReport(t)
	if status != http.StatusOK || rep.Status != "ready" || len(rep.Upstreams) != 1 || rep.Upstreams[0].State != "ready" || rep.Tools == 0 || rep.Tools != rep.Upstreams[0].Tools {
		t.Errorf("/readyz gave %d, %+v, want it ready", status, rep)
	}
	if err := r.stop(); err != nil {
		t.Errorf("serve = %v, want nil", err)
	}
	for _, l := range []net.Listener{r.listening.public, r.listening.admin} {
		if c, err := net.Dial("tcp", l.Addr().String()); err == nil {
			c.Close()
			t.Errorf("%s is still served", l.Addr())
		}
	}
}

// TestReadyzBeforeTheFirstTry: until every upstream was tried, requests should go elsewhere.
func TestReadyzBeforeTheFirstTry(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0") // takes connections and says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	r := mustServe(t, "upstreams: { silent: { url: http://"+silent.Addr().String()+"/mcp } }\n")
	if status, rep := r.mustReport(t); status != http.StatusServiceUnavailable || rep.Status != "starting" {
		t.Errorf("/readyz gave %d, %q, want 503, starting", status, rep.Status)
	}
	silent.Close()
	r.stderr.mustSay(t, "upstream retrying", 1)
	if status, rep := r.mustReport(t); status != http.StatusOK || rep.Status != "ready" || rep.Upstreams[0].Error == "" {
		t.Errorf("/readyz gave %d, %+v, want 200, ready, and why the upstream is not there", status, rep)
	}
}

// TestReadyzNamesWhoIsOverItsShare: a program opens more streams than its share. /readyz and
// the log name it.
func TestReadyzNamesWhoIsOverItsShare(t *testing.T) {
	_, url := upstreamtest.Start(t, upstreamtest.Script{})
	r := mustServe(t, "limits: { streams: 2 }\nupstreams: { a: { url: "+url+" } }\n")
	listen := func() *http.Response {
		const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"x","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}`
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.listening.url(),
			strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true},`+meta+`}}`))
		if err != nil {
			t.Fatal(err)
		}
		for name, value := range map[string]string{"User-Agent": "greedy/1.0", "Content-Type": "application/json", "Accept": "application/json, text/event-stream",
			"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": "subscriptions/listen"} {
			req.Header.Set(name, value)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { resp.Body.Close() })
		return resp
	}
	if got := listen().StatusCode; got != http.StatusOK {
		t.Errorf("the first stream = %d", got)
	}
	if _, rep := r.mustReport(t); len(rep.Overuse) != 0 {
		t.Errorf("over their share are %+v, want none yet", rep.Overuse)
	}
	if got := listen().StatusCode; got != http.StatusTooManyRequests {
		t.Errorf("the second of two streams = %d, want 429", got)
	}
	if _, rep := r.mustReport(t); len(rep.Overuse) != 1 || rep.Overuse[0].Principal != "local (greedy/1.0)" || rep.Overuse[0].Limit != "limits.streams" || rep.Overuse[0].Used != 1 ||
		rep.Overuse[0].Of != 2 {
		t.Errorf("over their share are %+v, want the program with one of two streams", rep.Overuse)
	}
	r.stderr.mustSay(t, `principal="local (greedy/1.0)" limit=limits.streams used=1 others=0 of=2`, 1)
}

// TestLogOfRejectedRequests: three requests with keys that do not exist have one line, without the
// key, although there is no audit.
func TestLogOfRejectedRequests(t *testing.T) {
	r := mustServe(t, "auth: { api_keys: [{ name: ann, hash: \"sha256:"+strings.Repeat("ab", 32)+
		"\" }] }\nupstreams: { demo: { command: [junction, demo], enabled: false } }\n")
	for range 3 {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.listening.url(), strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer jct_key_nobody_has_it")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusUnauthorized {
			t.Fatalf("got %s, want 401", resp.Status)
		}
	}
	r.stderr.mustSay(t, `msg="request rejected" address=127.0.0.1 path=/mcp status=401 error=invalid_token request_id=`, 1)
	if log := r.stderr.String(); strings.Count(log, "request rejected") != 1 || strings.Contains(log, "nobody_has_it") {
		t.Errorf("the log is\n%s", log)
	}
}

// TestGraceIsOver: a call that takes longer than we give it when we stop gets an answer that says
// so, and does not keep us.
func TestGraceIsOver(t *testing.T) {
	for _, era := range []string{"legacy", "modern"} {
		t.Run(era, func(t *testing.T) {
			s, url := upstreamtest.Start(t, upstreamtest.Script{})
			r := mustServe(t, "shutdown_grace: 50ms\nupstreams: { a: { url: "+url+" } }\n")
			r.stdout.mustSay(t, "ready", 1) // and its tools are listed
			post := func(header map[string]string, body string) (*http.Response, string, error) {
				req, err := http.NewRequest(http.MethodPost, r.listening.url(), strings.NewReader(body))
				if err != nil {
					return nil, "", err
				}
				req.Header.Set("Content-Type", "application/json")
				for name, value := range header {
					req.Header.Set(name, value)
				}
				resp, err := http.DefaultClient.Do(req)
				if err != nil {
					return nil, "", err
				}
				defer resp.Body.Close()
				text, err := io.ReadAll(resp.Body)
				return resp, string(text), err
			}
			header, meta := map[string]string{"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "a__slow"},
				`,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`
			if era == "legacy" {
				resp, _, err := post(nil, `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`)
				if err != nil {
					t.Fatal(err)
				}
				header, meta = map[string]string{"Mcp-Session-Id": resp.Header.Get("Mcp-Session-Id")}, ""
			}
			answered := make(chan string, 1)
			go func() {
				_, text, err := post(header, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a__slow","arguments":{"ms":3600000}`+meta+`}}`)
				answered <- fmt.Sprint(text, err)
			}()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if _, err := s.Await(ctx, upstreamtest.Method("tools/call")); err != nil {
				t.Fatal(err)
			}
			if err := r.stop(); err != nil {
				t.Error(err)
			}
			got := <-answered
			if !strings.Contains(got, `"id":1,"error":{`) || !strings.Contains(got, "upstream a: the proxy was shut down before the answer came; the call may have been executed") || !strings.HasSuffix(got, "<nil>") {
				t.Errorf("the call was answered %s, want an error of ours that says why", got)
			}
			r.stderr.mustSay(t, "calls are cut off", 1)
		})
	}
}

// TestReadTimeout: a client that does not send its request is cut off in time; one that has sent it
// may wait for longer than that.
func TestReadTimeout(t *testing.T) {
	_, url := upstreamtest.Start(t, upstreamtest.Script{})
	r := mustServe(t, "limits: { read_timeout: 1s }\nupstreams: { a: { url: "+url+" } }\n")
	r.stdout.mustSay(t, "ready", 1) // and its tools are listed
	conn, err := net.Dial("tcp", r.listening.public.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(2 * time.Minute))
	fmt.Fprintf(conn, "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{")
	if said, err := io.ReadAll(conn); err != nil || !strings.HasPrefix(string(said), "HTTP/1.1 408 ") {
		t.Errorf("half a body was answered %q (%v), want 408", said, err)
	}
	got := runProgram(t, "", "call", "--url", r.listening.url(), "a__slow", "--json", `{"ms": 3000}`)
	if got.code != 0 || got.stdout != "here it is\n" {
		t.Errorf("a call that takes three times the limit gave %d, %q, %q, want its answer", got.code, got.stdout, got.stderr)
	}
}

func TestTakenAddress(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	_, err = listeners.Listen(taken.Addr().String(), "admin")
	want := taken.Addr().String() + " is taken by another program, perhaps another junction; stop that, or set admin to another port (port 0 takes a free one)"
	if err == nil || err.Error() != want || !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("Listen = %v, want %s", err, want)
	}
	// What was opened before is closed again.
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().String()
	free.Close()
	file := filepath.Join(t.TempDir(), "config.yaml")
	mustWrite(t, file, fmt.Sprintf("listen: %s\nadmin: %s\nupstreams: { demo: { command: [junction, demo] } }\n", address, taken.Addr()))
	p, err := open(options{file: file, stdout: io.Discard, stderr: authtest.Searched(t, "what the program writes"), getenv: environment(map[string]string{"XDG_STATE_HOME": t.TempDir()})})
	if p != nil || !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("open = %v, %v, want nothing and that the address is in use", p, err)
	}
	again, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatalf("the address of listen is not free again: %v", err)
	}
	again.Close()
}

// TestNoSecretInTheLogOfACall: what an upstream says in an error may repeat what it was given.
func TestNoSecretInTheLogOfACall(t *testing.T) {
	var log bytes.Buffer
	logger := record.NewLog(&log, config.Log{Format: config.LogText})
	hooks := (&serving{common: &common{log: logger}, recording: &recording{}, signIns: &signIns{}}).hooks()
	hooks.CallDone(&proxy.CallInfo{Name: "a__b", Outcome: "error", Err: fmt.Errorf("call: %w", &jsonrpc.Error{Code: -32001, Message: "bad token canary"})})
	record.FlushLog(logger)
	if got := log.String(); strings.Contains(got, "canary") || !strings.Contains(got, "code=-32001") || !strings.Contains(got, "name=a__b") {
		t.Errorf("the log is %q, want the code and not the words", got)
	}
	log.Reset()
	hooks.CallDone(&proxy.CallInfo{Outcome: "unavailable", Err: errors.New("no connection")})
	record.FlushLog(logger)
	if got, want := log.String(), `error="no connection"`; !strings.Contains(got, want) {
		t.Errorf("the log is %q, want %s", got, want)
	}
	log.Reset()
	hooks.CallDone(&proxy.CallInfo{Outcome: proxy.Invalid, Err: errors.New("unknown tool")})
	record.FlushLog(logger)
	if got := log.String(); got != "" {
		t.Errorf("lines that any client can cause are logged at info: %q", got)
	}
	hooks.CallDone(&proxy.CallInfo{Name: "a__b", Outcome: proxy.Denied, Err: errors.New("unknown tool")})
	record.FlushLog(logger)
	if got := log.String(); !strings.Contains(got, " level=INFO msg=call ") || !strings.Contains(got, "outcome=denied") {
		t.Errorf("the log of a denied call is %q", got)
	}
	for outcome, want := range map[proxy.Outcome]string{proxy.Timeout: "WARN", proxy.Lost: "WARN", proxy.OK: "INFO",
		proxy.Cancelled: "INFO", proxy.ToolError: "INFO", proxy.Unavailable: "INFO"} {
		log.Reset()
		hooks.CallDone(&proxy.CallInfo{Name: "a__b", Outcome: outcome, Err: errors.New("no answer")})
		record.FlushLog(logger)
		if got := log.String(); !strings.Contains(got, " level="+want+" msg=call ") {
			t.Errorf("the log of a call with the outcome %s is %q, want the level %s", outcome, got, want)
		}
	}
}

// TestNoKeyInAnyLine has a client put its key into all that it chooses.
func TestNoKeyInAnyLine(t *testing.T) {
	var log, lines bytes.Buffer
	p := &serving{recording: &recording{}, signIns: &signIns{}, common: &common{log: record.NewLog(&log, config.Log{Format: config.LogText, Level: slog.LevelDebug})}}
	a, err := p.recording.audit.Next(config.Audit{File: config.AuditStderr}, &lines, p.log)
	if err != nil {
		t.Fatal(err)
	}
	p.recording.audit.Use(a)
	key := auth.NewKey()
	for _, outcome := range []proxy.Outcome{proxy.OK, proxy.Invalid} {
		p.hooks().CallDone(&proxy.CallInfo{Client: key, Request: `"` + key + `"`, Method: key, Name: key, Own: "x:" + key, Outcome: outcome, Err: errors.New("unknown tool: " + key)})
	}
	record.FlushLog(p.log)
	calls := log.String()
	a.Close()
	for name, text := range map[string]string{"log": calls, "audit": lines.String()} {
		if strings.Count(text, "\n") != 2 || strings.Contains(text, key[:20]) || !strings.Contains(text, "jct_key_…") {
			t.Errorf("the %s is %q", name, text)
		}
	}
}

func TestKeyFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a", "b", "key")
	made, err := loadKeys(file)
	if err != nil || len(made) != 1 || len(made[0]) != seal.SecretSize {
		t.Fatalf("loadKeys = %d keys, %v", len(made), err)
	}
	first := made[0]
	if info, err := os.Stat(file); err != nil || runtime.GOOS != "windows" && info.Mode() != 0o600 {
		t.Errorf("the file has the mode %v (%v), want 0600", info.Mode(), err)
	}
	if left, err := os.ReadDir(filepath.Dir(file)); err != nil || len(left) != 1 {
		t.Errorf("the folder has %v (%v), want the key alone", left, err)
	}
	text := base64.StdEncoding.EncodeToString
	next := seal.NewSecret()
	good, many := text(first)+"\n", ""
	for range maxKeys + 1 {
		many += text(seal.NewSecret()) + "\n"
	}
	for name, c := range map[string]struct{ text, says string }{
		"empty": {"", "has no key"}, "blank": {" \n\n", "has no key"},
		"words": {"this is no key\n", "has no key"}, "short": {text(first[1:]), "has no key"},
		"long":            {text(append(bytes.Clone(first), 0)), "has no key"},
		"of a bad second": {good + "\n" + text(next[1:]) + "\n", "line 3"},
		"of one twice":    {good + text(next) + "\n" + good, "line 3"}, "of too many": {many, "more than 4"},
	} {
		bad := filepath.Join(t.TempDir(), name)
		mustWrite(t, bad, c.text)
		_, err := loadKeys(bad)
		if b, is := errors.AsType[badKeys](err); !is || !strings.Contains(string(b), bad+": ") ||
			!strings.Contains(string(b), c.says) {
			t.Errorf("loadKeys of one that is %s: %v, want the file's name and %q", name, err, c.says)
		}
		if after, err := os.ReadFile(bad); err != nil || string(after) != c.text {
			t.Errorf("a file that is no key was replaced by %q (%v)", after, err)
		}
	}
	// A person may add a newline or have it removed by an editor.
	for content, want := range map[string][][]byte{
		good:                                 {first},
		"\n " + text(first) + "\r\n\n":       {first},
		text(next) + "\r\n\n " + text(first): {next, first},
		good + text(next) + "\n":             {first, next},
	} {
		mustWrite(t, file, content)
		if got, err := loadKeys(file); err != nil || !slices.EqualFunc(got, want, bytes.Equal) {
			t.Errorf("loadKeys of %q = %d keys, %v; want %d, in order", content, len(got), err, len(want))
		}
	}
}

// TestKeyFileAtOnce: replicas that start together on an empty folder get one key.
func TestKeyFileAtOnce(t *testing.T) {
	file := filepath.Join(t.TempDir(), "key")
	keys := make([][]byte, 16)
	start := make(chan struct{})
	var all sync.WaitGroup
	for i := range keys {
		all.Go(func() {
			<-start
			secrets, err := loadKeys(file)
			if err != nil {
				t.Errorf("loadKeys: %v", err)
				return
			}
			keys[i] = secrets[0]
		})
	}
	close(start)
	all.Wait()
	for _, key := range keys {
		if !bytes.Equal(key, keys[0]) {
			t.Fatalf("two keys were given out: %x and %x", key, keys[0])
		}
	}
}

// TestAuditOfAProgram: a call leaves a line behind, a reload takes another file or none, and one
// that cannot be written changes nothing.
func TestAuditOfAProgram(t *testing.T) {
	_, url := upstreamtest.Start(t, upstreamtest.Script{})
	dir := t.TempDir()
	with := func(audit string) string { return addresses + audit + "upstreams: { a: { url: " + url + " } }\n" }
	one, two := filepath.Join(dir, "one"), filepath.Join(dir, "two")
	r := mustServe(t, with("audit: { file: " + one + " }\n")[len(addresses):])
	r.stderr.mustSay(t, "state=ready", 1)
	r.mustReport(t) // which takes over what the upstream has listed
	call := func(text string) {
		t.Helper()
		if got := runProgram(t, "", "call", "a__echo", "text="+text, "--url", r.listening.url()); got.code != 0 {
			t.Fatalf("call: %d, %s", got.code, got.stderr)
		}
	}
	call("canary")
	reload := func(audit, says string) {
		t.Helper()
		n := strings.Count(r.stderr.String(), says)
		mustWrite(t, r.file, with(audit))
		r.stderr.mustSay(t, says, n+1)
	}
	reload("audit: { file: "+two+", arguments: true }\n", reloaded)
	call("second")
	reload("audit: { file: "+dir+" }\n", "it is no regular file")
	call("third")
	reload("", reloaded)
	call("fourth")
	resp, err := http.Post(r.listening.url(), "application/json", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]int{one: 1, two: 2} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Count(string(text), `"method":"tools/call","name":"a__echo"`); got != want || bytes.Contains(text, []byte("canary")) {
			t.Errorf("%s has %d calls, want %d and no argument unasked:\n%s", filepath.Base(file), got, want, text)
		}
	}
}

// TestLogOfCallsIsWhole: each call that was answered is in the log once the program has ended.
func TestLogOfCallsIsWhole(t *testing.T) {
	_, url := upstreamtest.Start(t, upstreamtest.Script{})
	r := mustServe(t, "upstreams: { a: { url: "+url+" } }\n")
	r.stdout.mustSay(t, "ready", 1)
	r.late = func() { record.CallLog(r.log).Log(time.Now(), slog.LevelInfo, "call", nil) } // of a handler that was cut off
	const n = 20
	for i := range n {
		if got := runProgram(t, "", "call", "a__echo", fmt.Sprint("text=", i), "--url", r.listening.url()); got.code != 0 {
			t.Fatalf("call: %d, %s", got.code, got.stderr)
		}
	}
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	if got := strings.Count(r.stderr.String(), "msg=call"); got != n+1 {
		t.Errorf("the log has %d of %d calls:\n%s", got, n+1, r.stderr)
	}
}
