package stateful

import (
	"bytes"
	"context"
	"errors"
	"io"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"junction/upstream"
	"junction/upstream/client"
	"junction/upstream/jsonrpc"
	"junction/upstream/raw"
)

// TestCallArrivesAsItIs: a call arrives with the bytes of its params. One that is cut short, or has a byte
// too many, is refused.
func TestCallArrivesAsItIs(t *testing.T) {
	params, err := raw.Parse([]byte("{ \"name\" :\"a\\u00e4\",\n\t\"arguments\": {\"n\":1.50, \"big\":12345678901234567890} }"))
	if err != nil {
		t.Fatal(err)
	}
	given := &upstream.Call{Call: client.Call{Method: "tools/call", Name: "x", Member: []string{"ref", "uri"}, Params: params,
		Header: []client.HeaderField{{Name: "Mcp-Param-A", Value: "ä"}}, LogLevel: "info", Profile: client.Everything(),
		Principal: "ann", Session: "s"}, Era: client.EraModern, Window: "folder /a", Continues: true, Account: "ann"}
	text, err := Of("id", "up", given).Text()
	if err != nil {
		t.Fatal(err)
	}
	c, err := ParseCall(text)
	if err != nil || c.ID != "id" || c.Upstream != "up" {
		t.Fatalf("ParseCall = %+v, %v", c, err)
	}
	got, err := c.Request("ann", "ann", 256, nil)
	if err != nil {
		t.Fatal(err)
	}
	if string(got.Params.Text()) != string(params.Text()) {
		t.Errorf("the params arrive as %s", got.Params.Text())
	}
	got.Params, given.Params = raw.Object{}, raw.Object{}
	if !reflect.DeepEqual(got, given) {
		t.Errorf("the call arrives as\n%+v, want\n%+v", got, given)
	}
	for n := range text {
		if _, err := ParseCall(text[:n]); err == nil {
			t.Errorf("the first %d of %d bytes are read", n, len(text))
		}
	}
	if _, err := ParseCall(append(text, 0)); err == nil {
		t.Error("a byte too many is read")
	}
}

// TestErrorsArriveAsTheyAre: each kind of error of a call arrives at the other member, that of a server with
// its bytes.
func TestErrorsArriveAsTheyAre(t *testing.T) {
	m, err := jsonrpc.Parse([]byte(`{"jsonrpc":"2.0","id":1,"error":{"code":-7,"message":"no","data":{"a":1.50},"more":[1]}}`), 9)
	if err != nil {
		t.Fatal(err)
	}
	for _, given := range []error{m.Error,
		&upstream.SignInError{Upstream: "up", URL: "https://j.example.com/connect", Again: true, Reason: "it ended"},
		&upstream.Error{Upstream: "up", Kind: client.KindTimeout, Err: errors.New("silent for 1s")}} {
		got := read(t, func(o *Owner) { o.Finish(client.Result{}, given, error.Error) })
		if got.Error() != given.Error() || reflect.TypeOf(got) != reflect.TypeOf(given) {
			t.Errorf("%v arrives as %v", given, got)
		}
		if peer, ok := got.(*jsonrpc.Error); ok && !bytes.Equal(jsonrpc.AppendError(nil, "1", peer), jsonrpc.AppendError(nil, "1", m.Error)) {
			t.Errorf("%v arrives as %s", given, jsonrpc.AppendError(nil, "1", peer))
		}
	}
	if got := read(t, func(o *Owner) { o.Notify("notifications/progress", []byte(`{}`)) }); !errors.Is(got, ErrLost) {
		t.Errorf("an answer without a result is %v, want %v", got, ErrLost)
	}
	large := &upstream.Error{Upstream: "up", Kind: client.KindInvalid, Err: errors.New(string(make([]byte, 100<<10)))}
	if got := read(t, func(o *Owner) { o.Finish(client.Result{}, large, error.Error) }); !errors.Is(got, errFull) {
		t.Errorf("an answer beyond the memory of the caller is %v, want %v", got, errFull)
	}
}

// TestErrorsOfAnotherMemberAreRedactedWhole: the owner shortens the words of a server, and does not know what
// the caller must not read. The member of the caller shows no part of a match.
func TestErrorsOfAnotherMemberAreRedactedWhole(t *testing.T) {
	for _, row := range []struct{ words, want string }{
		{"no TCK-12345678", "upstream up: the words of the server are not shown, because the policy redacts them"},
		{"harmless, but too long", "upstream up: harmles…"},
	} {
		given := &upstream.Error{Upstream: "up", Kind: client.KindInvalid, Err: shortError(row.words)}
		got, ok := errors.AsType[*upstream.Error](read(t, func(o *Owner) { o.Finish(client.Result{}, given, error.Error) }))
		if !ok || got.Public() != given.Public() {
			t.Fatalf("%v arrives as %v", given, got)
		}
		clean := func(text string) string { return strings.ReplaceAll(text, "TCK-12345678", "[x]") }
		if text := got.Clean(clean); text != row.want {
			t.Errorf("the caller reads %q, want %q", text, row.want)
		}
	}
}

// shortError shows seven characters.
type shortError string

func (e shortError) Error() string                          { return string(e[:7]) + "…" }
func (e shortError) Clean(clean func(string) string) string { return clean(string(e))[:7] + "…" }

var errFull = errors.New("no memory")

// peer is a client without memory for large answers.
type peer struct{}

func (peer) Notify(string, []byte)                                      {}
func (peer) Ask(context.Context, *client.ServerRequest) ([]byte, error) { return nil, errUnanswered }
func (peer) Reserve(int64) error                                        { return errFull }

// read returns the error of a call whose owner does what write does.
func read(t *testing.T, write func(*Owner)) error {
	t.Helper()
	var out bytes.Buffer
	write(NewOwner(&out, func() {}, nil, nil))
	_, err := Read(t.Context(), func() {}, io.NopCloser(&out), "up", &upstream.Call{Call: client.Call{Peer: peer{}}}, nil, nil)
	if err == nil {
		t.Fatal("there is no error")
	}
	return err
}

// answering is a client that reports progress and then answers each question.
type answering struct{ peer }

func (answering) Ask(_ context.Context, q *client.ServerRequest) ([]byte, error) {
	q.Progress([]byte(`{"progress":1}`))
	return []byte(`{"action":"accept"}`), nil
}

// TestAnswerIsSentUntilTheOwnerHasIt: an answer that does not reach the owner is sent again, while lost
// progress is not. If the owner stays out of reach, the call ends and may have been executed.
func TestAnswerIsSentUntilTheOwnerHasIt(t *testing.T) {
	result, err := raw.Parse([]byte(`{}`))
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		failing int // the first messages to the owner
		want    error
	}{"the second time": {2, nil}, "never": {1 << 20, ErrLost}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				body, out := io.Pipe()
				owner := NewOwner(out, func() {}, nil, nil)
				ctx, end := context.WithCancel(t.Context())
				abort := func() {
					end()
					body.CloseWithError(context.Canceled)
				}
				var call sync.WaitGroup
				call.Go(func() {
					_, err := owner.Ask(ctx, &client.ServerRequest{Method: "elicitation/create",
						Progress: func([]byte) { t.Error("the progress is sent again") }})
					if (err == nil) != (test.want == nil) {
						t.Errorf("the question ends with %v", err)
					}
					owner.Finish(client.Result{Object: result}, err, error.Error)
				})
				sent, began := 0, time.Now()
				send := func(_ context.Context, number string, text []byte) error {
					if sent++; sent <= test.failing {
						return errFull
					}
					return owner.Answer(number, text)
				}
				_, err := Read(ctx, abort, body, "up", &upstream.Call{Call: client.Call{Peer: answering{}}}, send, nil)
				call.Wait()
				if took := time.Since(began); !errors.Is(err, test.want) || took > answerPatience+answerPause {
					t.Errorf("the call ends with %v after %v, want %v", err, took, test.want)
				}
			})
		})
	}
}

// extended is a client of an extension, which does not take notifications of a method.
type extended struct {
	peer
	refuses string
	got     *[]string
}

func (extended) Extensions() []string { return []string{"com.example/weather"} }

func (e extended) Extension(method string, params []byte) bool {
	if method == e.refuses {
		return false
	}
	text := "none"
	if params != nil {
		text = string(params)
	}
	*e.got = append(*e.got, method+" "+text)
	return true
}

// TestNotificationsOfExtensionsArrive: a notification of an extension that the client has declared arrives at
// the other member with its bytes, before the result. All others are dropped at the owner, also one that is
// too large for a frame without memory. One that the peer does not take is counted there.
func TestNotificationsOfExtensionsArrive(t *testing.T) {
	var got []string
	e := extended{refuses: "notifications/weather/secret", got: &got}
	text, err := Of("id", "up", &upstream.Call{Call: client.Call{Method: "x", Peer: e}, Era: client.EraModern}).Text()
	if err != nil {
		t.Fatal(err)
	}
	c, err := ParseCall(text)
	if err != nil {
		t.Fatal(err)
	}
	result, err := raw.Parse([]byte(`{}`))
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	owner := NewOwner(&out, func() {}, nil, c.Extensions)
	for _, n := range []struct {
		method, params string
		sent           bool
	}{{"notifications/weather", `{"a":1.0,` + "\n" + `"b":2}`, true}, {"notifications/weather/storm", "", true},
		{"notifications/weather/a\n{}\nb", `{}`, true}, {e.refuses, `{}`, true},
		{"notifications/climate", `{}`, false}, {"notifications/tasks", `{}`, false},
		{"notifications/weather", `{"a":"` + strings.Repeat("x", small) + `"}`, false}} {
		params := []byte(n.params)
		if n.params == "" {
			params = nil
		}
		if sent := owner.Extension(n.method, params); sent != n.sent {
			t.Errorf("%.60q is sent: %v", n.method+n.params, sent)
		}
	}
	owner.Finish(client.Result{Object: result}, nil, error.Error)
	if owner.Extension("notifications/weather", nil) {
		t.Error("a notification is sent after the result")
	}
	dropped := 0
	if _, err := Read(t.Context(), func() {}, io.NopCloser(&out), "up", &upstream.Call{Call: client.Call{Peer: e}}, nil, func() { dropped++ }); err != nil {
		t.Fatal(err)
	}
	want := []string{"notifications/weather {\"a\":1.0,\n\"b\":2}", "notifications/weather/storm none",
		"notifications/weather/a\n{}\nb {}"}
	if !reflect.DeepEqual(got, want) || dropped != 1 {
		t.Errorf("the client gets %q, and %d are dropped; want %q, and one", got, dropped, want)
	}
}
