//go:build unix

package stdio

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"junction/auth/authtest"
	"junction/upstream/jsonrpc"
	"junction/upstream/transport"
)

// opened is a transport to a child of the test.
type opened struct {
	*stdio
	t    testing.TB
	said chan *jsonrpc.Message // the server's requests and notifications; 100-buffered, more are dropped
	// the reading goroutine stands still after a notification called leaving, until this is closed
	hold chan struct{}
	log  *authtest.Text
	fifo *os.File // every process of the transport holds the other end
}

// mustOpen starts this binary in a role. It comes back when the child has begun to run, or, if it
// Ended before that, when that is certain. The transport is closed with the test, and then nothing
// of it may be left.
func mustOpen(t testing.TB, role string, change ...func(*Options)) *opened {
	t.Helper()
	path := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	w := &opened{t: t, said: make(chan *jsonrpc.Message, 100), hold: make(chan struct{}), log: new(authtest.Text)}
	var err error
	if w.fifo, err = os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0); err != nil {
		t.Fatal(err)
	}
	o := Options{
		Command: []string{os.Args[0]},
		// or each race-tested child lingers for a second
		Env:     Environment{Own: map[string]string{roleEnv: role, fifoEnv: path, "GORACE": "atexit_sleep_ms=0"}},
		Log:     authtest.Log(t, w.log),
		Confine: confinedTest(filepath.Dir(path)),
	}
	for _, c := range change {
		c(&o)
	}
	opened, err := Open(o, func(m *jsonrpc.Message) {
		select {
		case w.said <- m:
		default:
		}
		if m.Method == "leaving" {
			<-w.hold
		}
	})
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	w.stdio = opened.(*stdio)
	t.Cleanup(func() {
		w.Close()
		w.mustBeGone()
		w.fifo.Close()
	})
	if m := w.hear(); m == nil || m.Method != "begun" {
		t.Fatalf("the first message is %v, want begun", m)
	}
	return w
}

// fifoEnv names a fifo that every role holds open, so that the test sees the end of the last of
// them.
const fifoEnv = "JUNCTION_FIFO"

func holdFifo() *os.File {
	f, err := os.OpenFile(os.Getenv(fifoEnv), os.O_WRONLY, 0)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(9)
	}
	return f
}

// hear returns the server's next request or notification; nil after the transport's end.
func (w *opened) hear() *jsonrpc.Message {
	select {
	case m := <-w.said:
		return m
	case <-w.Gone():
		return nil
	}
}

// mustBeGone checks that no process of the transport is left, and no goroutine of any transport to a
// child. It waits for those of parallel tests.
func (w *opened) mustBeGone() {
	w.t.Helper()
	w.fifo.SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := io.ReadAll(w.fifo); err != nil {
		w.t.Errorf("a process is left after Close: %v", err)
	}
	deadline := time.Now().Add(time.Minute)
	again := time.NewTicker(5 * time.Millisecond) // a goroutine that has said that it ends may still be on its last steps
	defer again.Stop()
	for ; ; <-again.C {
		all := make([]byte, 1<<20)
		all = all[:runtime.Stack(all, true)]
		if !bytes.Contains(all, []byte("stdio.(*stdio).")) && !bytes.Contains(all, []byte("stdio.(*process).")) {
			return
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("goroutines are left after Close:\n%s", all)
		}
	}
}

// start makes a call on a goroutine of its own.
func (w *opened) start(ctx context.Context, id, method, params string) <-chan answer {
	c := make(chan answer, 1)
	go func() {
		m, err := w.Call(ctx, newRequest(id, method, params), nil)
		c <- answer{m: m, err: err}
	}()
	return c
}

// hang makes a call that is not answered. It comes back when the call has reached the server.
func (w *opened) hang(ctx context.Context, id string) <-chan answer {
	w.t.Helper()
	c := w.start(ctx, id, "hang", "{}")
	for m := w.hear(); m == nil || m.Method != "hangs"; m = w.hear() {
		if m == nil {
			w.t.Fatalf("the server ended before call %s reached it", id)
		}
	}
	return c
}

func (w *opened) mustCall(id, method, params string) string {
	w.t.Helper()
	m, err := w.Call(w.t.Context(), newRequest(id, method, params), nil)
	if err != nil {
		w.t.Fatalf("Call(%s): %v", method, err)
	}
	return string(m.Result)
}

// say has the server write a text to its standard output.
func (w *opened) say(text string) {
	w.t.Helper()
	if err := w.Send(w.t.Context(), newRequest("", "say", fmt.Sprintf("[%q]", hex.EncodeToString([]byte(text))))); err != nil {
		w.t.Fatalf("Send: %v", err)
	}
}

func newRequest(id, method, params string) *transport.Request {
	return &transport.Request{Message: jsonrpc.Message{ID: jsonrpc.ID(id), Method: method, Params: []byte(params)}}
}

func TestStdioCall(t *testing.T) {
	w := mustOpen(t, "server")
	for _, id := range []string{`1`, `"1"`, `12345678901234567890`, `"\u0061 b"`} {
		want := `{"n":1.0,"big":123456789012345678901234567890,"id":` + id + `}`
		if got := w.mustCall(id, "echo", want); got != want {
			t.Errorf("Call with id %s = %s, want %s", id, got, want)
		}
	}
	if got, want := w.mustCall("7", "echo", "{\n\t\"a\":\r\n\"b\\n\"}"), "{ \t\"a\":  \"b\\n\"}"; got != want {
		t.Errorf("params of three lines came as %q, want %q", got, want)
	}
	m, err := w.Call(t.Context(), newRequest("8", "nosuch", "{}"), nil)
	if err != nil || m.Error == nil || m.Error.Code != -32601 {
		t.Errorf("Call(nosuch) = %+v, %v, want an error response with code -32601", m, err)
	}
}

func TestStdioConcurrentCalls(t *testing.T) {
	w := mustOpen(t, "server")
	var all sync.WaitGroup
	for g := range 20 {
		all.Go(func() {
			for n := range 50 {
				id := fmt.Sprint(g*1000 + n)
				want := `{"id":` + id + `,"fill":"` + strings.Repeat("x", (g*n*97)%100_000) + `"}`
				m, err := w.Call(t.Context(), newRequest(id, "echo", want), nil)
				if err != nil || string(m.Result) != want {
					t.Errorf("call %s was answered with another text or %v", id, err)
					return
				}
			}
		})
	}
	all.Wait()
}

// TestStdioBuffersAreExchanged: a large result is in the caller's buffer from then on, and stays as
// it is until the caller gives that away with another call.
func TestStdioBuffersAreExchanged(t *testing.T) {
	for _, callers := range []int{1, 4} {
		t.Run(fmt.Sprint(callers), func(t *testing.T) { exchangeBuffers(t, callers) })
	}
}

// exchangeBuffers has callers who keep their last three results. With one, lines come one at a
// time, and so each fills most of its buffer; a line that shares one with the next may be copied
// instead, as any line is that would waste half of its buffer.
func exchangeBuffers(t *testing.T, callers int) {
	w := mustOpen(t, "server")
	var all sync.WaitGroup
	for g := range callers {
		all.Go(func() {
			var kept [3][]byte // the buffers of a caller, used in turn
			var results, want [3]string
			for n := range 30 {
				id, k := fmt.Sprint(g*1000+n), n%len(kept)
				req := newRequest(id, "echo", `{"fill":"`+strings.Repeat(string(rune('a'+n)), []int{300_000, 250_000, 10, 290_000}[n%4]+g)+`"}`)
				req.Buffer = &kept[k]
				m, err := w.Call(t.Context(), req, nil)
				if err != nil {
					t.Errorf("Call: %v", err)
					return
				}
				results[k], want[k] = unsafe.String(&m.Result[0], len(m.Result)), string(req.Params)
				if callers == 1 && len(m.Result) > 2*lineBuffer && !within(m.Result, kept[k]) {
					t.Errorf("a result of %d bytes is not in the buffer of %d", len(m.Result), cap(kept[k]))
				}
				for i := range results {
					if results[i] != want[i] {
						t.Errorf("after call %s the result of %d bytes is another", id, len(want[i]))
						return
					}
				}
			}
		})
	}
	all.Wait()
}

// within reports whether a is a part of b's memory.
func within(a, b []byte) bool {
	start, all := uintptr(unsafe.Pointer(&a[0])), uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	return all <= start && start+uintptr(len(a)) <= all+uintptr(cap(b))
}

func TestStdioResultsOfAllSizesStayAsTheyAre(t *testing.T) {
	w := mustOpen(t, "server")
	var want, got []string
	for i, size := range []int{1, 100, lineBuffer - 50, lineBuffer, lineBuffer + 1, 200_000, 20, 1 << 20, 3 << 20, 1 << 20, 10, 500_000, 40_000} {
		params := `["` + strings.Repeat(string(rune('a'+i)), size) + `"]`
		want = append(want, params)
		m, err := w.Call(t.Context(), newRequest(fmt.Sprint(i), "echo", params), nil)
		if err != nil {
			t.Fatalf("Call with %d bytes: %v", size, err)
		}
		defer func() {
			if string(m.Result) != params {
				t.Errorf("the result of %d bytes changed after later calls", size)
			}
		}()
		got = append(got, string(m.Result))
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("result %d has %d bytes, want %d", i, len(got[i]), len(want[i]))
		}
	}
}

func TestStdioServerSpeaksFirst(t *testing.T) {
	w := mustOpen(t, "server")
	w.say(`{"jsonrpc":"2.0","method":"notifications/x","params":{"a":1.0}}` + "\n\n\r\n" + `{"jsonrpc":"2.0","id":"q","method":"ask"}` + "\r\n")
	if m := w.hear(); !m.IsNotification() || m.Method != "notifications/x" || string(m.Params) != `{"a":1.0}` {
		t.Errorf("in got %+v, want the notification", m)
	}
	if m := w.hear(); !m.IsRequest() || m.Method != "ask" || m.ID != `"q"` {
		t.Errorf("in got %+v, want the request", m)
	}
	if err := w.Send(t.Context(), &transport.Request{Message: jsonrpc.Message{ID: `"q"`, Result: []byte(`{"ok":true}`)}}); err != nil {
		t.Fatal(err)
	}
	if m := w.hear(); m.Method != "answered" || string(m.Params) != `{"ok":true}` {
		t.Errorf("the server heard %s %s, want our answer", m.Method, m.Params)
	}
	if strings.Contains(w.log.String(), "non-JSON line") {
		t.Errorf("an empty line was logged: %s", w.log)
	}
}

func TestStdioStrangeLines(t *testing.T) {
	big := strings.Repeat("x", 5000)
	for _, row := range []struct{ name, Line, err, log string }{
		{"garbage", "Server listening…\n", "", `line="Server listening…"`},
		{"bytes", "\xff\x00\x1b[31m\n", "", `"�\x00\x1b[31m"`},
		{"long garbage", strings.Repeat("g", 300) + "\n", "", "line=" + strings.Repeat("g", 200) + " "},
		{"an array", "[]\n", "", "no object"},
		{"a late response", `{"jsonrpc":"2.0","id":99,"result":{}}` + "\n", "", "without a waiting request"},
		{"an error without id", `{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"?"}}` + "\n", "", "without a waiting request"},
		{"no version", `{"id":5,"result":{}}` + "\n", "invalid answer: not a JSON-RPC message: jsonrpc", ""},
		{"not a number", `{"jsonrpc":"2.0","result":{"x":[NaN]},"id":5}` + "\n", "invalid answer: not JSON at byte", ""},
		{"too deep", `{"jsonrpc":"2.0","result":{"x":[[[[[[[[[[1]]]]]]]]]]},"id":5}` + "\n", "invalid answer: nested too deeply", ""},
		{"no result", `{"jsonrpc":"2.0","id":5}` + "\n", "invalid answer: not a JSON-RPC message: neither", ""},
		{"too long, id first", `{"jsonrpc":"2.0","id":5,"result":{"x":"` + big + `"}}` + "\n", "invalid answer: the answer is larger than limits.message of 4 KiB; raise limits.message, or request less", ""},
		{"too long, id last", `{"result":{"a":{"id":6},"x":"\"}` + big + `"},"jsonrpc":"2.0","id":5}` + "\n", "larger than limits.message of 4 KiB", ""},
		{"too long, no id", `{"jsonrpc":"2.0","method":"x","params":{"id":5,"x":"` + big + `"}}` + "\n", "", "size=5055"},
		{"too long, a request", `{"jsonrpc":"2.0","id":5,"method":"x","params":{"x":"` + big + `"}}` + "\n", "", "larger than limits.message"},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := mustOpen(t, "server", func(o *Options) { o.MessageLimit, o.Depth = 4096, 8 })
			call := w.hang(t.Context(), "5")
			w.say(row.Line)
			if row.err == "" {
				w.mustCall("2", "echo", "{}") // the line has been read
				if got := w.log.String(); !strings.Contains(got, row.log) || row.log == "" {
					t.Errorf("the log is %s\nwant something with %s", got, row.log)
				}
				w.say(`{"jsonrpc":"2.0","id":5,"result":{}}` + "\n")
				if a := <-call; a.err != nil {
					t.Errorf("the call fails after the line: %v", a.err)
				}
			} else if a := <-call; a.err == nil || !strings.Contains(a.err.Error(), row.err) {
				t.Errorf("the call ends with %v, want %s", a.err, row.err)
			}
			w.mustCall("3", "echo", "{}")
		})
	}
}

// TestStdioOddAnswers: an answer that is written in an unusual way reaches the call that it is for.
func TestStdioOddAnswers(t *testing.T) {
	w := mustOpen(t, "server")
	for i, line := range []string{
		`{"jsonrpc":"2.0","id":"5","result":{}}`,
		`{"jsonrpc":"2.0","id":5.0,"result":{}}`,
		`{"jsonrpc":"2.0","id":50e-1,"result":{}}`,
		"\ufeff" + `{"jsonrpc":"2.0","id":5,"result":{}}`,
		`[{"jsonrpc":"2.0","id":5,"result":{}}]`,
		"\ufeff" + ` [ {"jsonrpc":"2.0","id":"5.0","error":null,"result":{}} ]`,
	} {
		call := w.hang(t.Context(), "5")
		other := w.hang(t.Context(), "55")
		w.say(line + "\n")
		if a := <-call; a.err != nil || string(a.m.Result) != "{}" {
			t.Errorf("%s gives %v, %v", line, a.m, a.err)
		}
		w.say(`{"jsonrpc":"2.0","id":"55","result":{}}` + "\n")
		if a := <-other; a.err != nil {
			t.Errorf("the other call: %v", a.err)
		}
		w.mustCall(fmt.Sprint(100+i), "echo", "{}")
	}
}

// TestStdioIDByTextFirst: the text of an id decides before its value.
func TestStdioIDByTextFirst(t *testing.T) {
	w := mustOpen(t, "server")
	text, number := w.hang(t.Context(), `"5"`), w.hang(t.Context(), "5")
	w.say(`{"jsonrpc":"2.0","id":"5","result":{"for":"text"}}` + "\n")
	if a := <-text; a.err != nil || string(a.m.Result) != `{"for":"text"}` {
		t.Errorf("the call with that text got %v, %v", a.m, a.err)
	}
	w.say(`{"jsonrpc":"2.0","id":5,"result":{"for":"number"}}` + "\n")
	if a := <-number; a.err != nil || string(a.m.Result) != `{"for":"number"}` {
		t.Errorf("the call with that number got %v, %v", a.m, a.err)
	}
}

func TestStdioFloodOfGarbage(t *testing.T) {
	w := mustOpen(t, "server")
	w.mustCall("1", "flood", "{}") // half a megabyte of lines on stdout, and as much on stderr, before the answer
	if n := strings.Count(w.log.String(), "non-JSON line"); n != 5 {
		t.Errorf("a flood of garbage is logged %d times, want 5", n)
	}
	w.mustCall("2", "echo", "{}")
}

func TestStdioStderr(t *testing.T) {
	w := mustOpen(t, "server")
	w.mustCall("1", "complain", "{}")
	w.Close()
	for _, want := range []string{`msg=stderr line="first line"`, `line="bad � bytes"`, `line=` + strings.Repeat("l", stderrLine) + "\n", `line="last, without end"`} {
		if got := w.log.String(); !strings.Contains(got, want) {
			t.Errorf("the log is %.300s\nwant %s in it", got, want)
		}
	}
}

func TestStdioContextEnds(t *testing.T) {
	w := mustOpen(t, "server")
	ctx, cancel := context.WithCancelCause(t.Context())
	call := w.hang(ctx, "5")
	cause := errors.New("the client hung up")
	cancel(cause)
	if a := <-call; a.err != cause {
		t.Errorf("Call = %v, want the cause", a.err)
	}
	if n := len(w.calls); n != 0 {
		t.Errorf("%d calls are still waited for", n)
	}
	w.say(`{"jsonrpc":"2.0","id":5,"result":{}}` + "\n") // too late
	if got := w.mustCall("2", "echo", `{"a":2}`); got != `{"a":2}` {
		t.Errorf("the call after the late response = %s", got)
	}
	if _, err := w.Call(ctx, newRequest("6", "echo", "{}"), nil); !errors.Is(err, transport.ErrNotSent) || !errors.Is(err, cause) {
		t.Errorf("Call with an ended ctx = %v, want not sent, and the cause", err)
	}
}

func TestStdioDeath(t *testing.T) {
	for _, row := range []struct {
		method, want string
		ends         bool // all of it, so that its last words can be waited for
	}{
		{"die", "exited with status 3: the disk is full", true},
		{"crash", "ended by signal: killed", true},
		{"half", "exited with status 0", true},
		{"mute", "closed its standard output", false},
		{"leave", "exited with status 4", false}, // while a descendant holds its stdout and floods it
	} {
		t.Run(row.method, func(t *testing.T) {
			w := mustOpen(t, "server", func(o *Options) {
				if o.StopGrace = 100 * time.Millisecond; row.ends {
					o.LastWords = time.Minute
				}
			})
			waiting := []<-chan answer{w.hang(t.Context(), "5"), w.hang(t.Context(), "6")}
			waiting = append(waiting, w.start(t.Context(), "7", row.method, "{}"))
			for _, c := range waiting {
				if a := <-c; a.err == nil || a.err.Error() != row.want {
					t.Errorf("a call in flight ends with %v, want %s", a.err, row.want)
				}
			}
			if err := w.Wait(); err == nil || err.Error() != row.want {
				t.Errorf("Wait = %v, want %s", err, row.want)
			}
			_, err := w.Call(t.Context(), newRequest("8", "echo", "{}"), nil)
			if !errors.Is(err, transport.ErrNotSent) || !strings.Contains(err.Error(), row.want) {
				t.Errorf("Call after the end = %v, want not sent, and %s", err, row.want)
			}
			if err := w.Send(t.Context(), newRequest("", "echo", "{}")); !errors.Is(err, transport.ErrNotSent) {
				t.Errorf("Send after the end = %v, want not sent", err)
			}
		})
	}
}

// What a server wrote before it ended counts, even if we get to read it only after the end.
func TestStdioAnswersBeforeDeathCount(t *testing.T) {
	w := mustOpen(t, "server", func(o *Options) { o.LastWords = time.Minute })
	call := w.start(t.Context(), "1", "goodbye", `{"a":1}`)
	if m := w.hear(); m == nil || m.Method != "leaving" {
		t.Fatalf("the server says %v, want leaving", m)
	}
	<-w.process.exited
	select {
	case <-w.Gone():
		t.Error("the wire ends while there is more to read")
	case <-time.After(lastWords / 4):
	}
	close(w.hold)
	if a := <-call; a.err != nil || string(a.m.Result) != `{"a":1}` {
		t.Errorf("the answer before the exit = %v, %v", a.m, a.err)
	}
}

// A server that does not read blocks a caller no longer than the caller's context.
func TestStdioServerThatNeverReads(t *testing.T) {
	w := mustOpen(t, "deaf", func(o *Options) { o.StopGrace = 50 * time.Millisecond })
	ctx, cancel := context.WithCancelCause(t.Context())
	first := w.start(ctx, "1", "echo", `["`+strings.Repeat("x", 1<<20)+`"]`)
	for len(w.turn) == 0 { // until it writes
		runtime.Gosched()
	}
	var behind []<-chan answer
	for i := range 10 {
		behind = append(behind, w.start(ctx, fmt.Sprint(10+i), "echo", "{}"))
	}
	cancel(errGaveUp)
	if a := <-first; a.err != errGaveUp {
		t.Errorf("the call that filled the pipe = %v, want its cause", a.err)
	}
	for _, c := range behind {
		if a := <-c; !errors.Is(a.err, transport.ErrNotSent) || !errors.Is(a.err, errGaveUp) {
			t.Errorf("a call behind it = %v, want not sent, and the cause", a.err)
		}
	}
	waiting := w.start(t.Context(), "30", "echo", "{}")
	w.Close()
	if a := <-waiting; !errors.Is(a.err, transport.ErrNotSent) || !errors.Is(a.err, transport.ErrClosed) {
		t.Errorf("a waiting call at Close = %v, want not sent and closed", a.err)
	}
}

var errGaveUp = errors.New("gave up")

func TestStdioServerThatHangs(t *testing.T) {
	w := mustOpen(t, "deaf", func(o *Options) { o.WriteStall, o.StopGrace = 100*time.Millisecond, 50*time.Millisecond })
	_, err := w.Call(t.Context(), newRequest("1", "echo", `["`+strings.Repeat("x", 1<<20)+`"]`), nil)
	if want := "hung: it stopped reading its input in the middle of a message for 100ms"; err == nil || err.Error() != want {
		t.Errorf("Call = %v, want %s", err, want)
	}
	if errors.Is(err, transport.ErrNotSent) {
		t.Error("a message that is half written counts as not sent")
	}
	if got := w.Wait(); got != err {
		t.Errorf("Wait = %v, want %v", got, err)
	}
}

// A caller who gives up in the middle of a long line costs the others nothing once the server reads
// on.
func TestStdioServerThatIsBusy(t *testing.T) {
	w := mustOpen(t, "busy")
	ctx, cancel := context.WithCancelCause(t.Context())
	first := w.start(ctx, "1", "echo", `["`+strings.Repeat("x", 1<<20)+`"]`)
	for len(w.turn) == 0 { // until it writes
		runtime.Gosched()
	}
	second := w.start(t.Context(), "2", "echo", `{"a":2}`)
	cancel(errGaveUp)
	if a := <-first; a.err != errGaveUp {
		t.Errorf("the first call = %v, want its cause", a.err)
	}
	w.process.cmd.Process.Signal(syscall.SIGUSR1) // it begins to read
	if a := <-second; a.err != nil || string(a.m.Result) != `{"a":2}` {
		t.Errorf("the second call = %v, %v", a.m, a.err)
	}
}

func BenchmarkStdioCall(b *testing.B) {
	for _, size := range []int{100, 10_000, 1_000_000} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			w := mustOpen(b, "server", func(o *Options) { o.Log = nil })
			params := []byte(`{"x":"` + strings.Repeat("x", size-8) + `"}`)
			n := uint64(0)
			start := cpu(b)
			b.ReportAllocs()
			for b.Loop() {
				n++
				m, err := w.Call(b.Context(), &transport.Request{Message: jsonrpc.Message{ID: jsonrpc.NumberID(n), Method: "echo", Params: params}}, nil)
				if err != nil || len(m.Result) != len(params) {
					b.Fatalf("Call = %v, %v", m, err)
				}
			}
			b.ReportMetric(float64((cpu(b)-start).Nanoseconds())/1000/float64(n), "cpu-µs/op")
		})
	}
}

// cpu is what this process has used, without its children.
func cpu(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
