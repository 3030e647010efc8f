package harness

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"junction/upstream/client"
	"junction/upstream/jsonrpc"
	"junction/upstream/raw"
	"junction/upstream/upstreamtest"
)

// Text returns the string at the path of a JSON object.
func Text(t *testing.T, o []byte, path ...string) string {
	t.Helper()
	v, err := raw.Get(o, path...)
	if err != nil {
		t.Fatalf("%s of %s: %v", strings.Join(path, "."), o, err)
	}
	s, err := raw.String(v)
	if err != nil {
		t.Fatalf("%s of %s: %v", strings.Join(path, "."), o, err)
	}
	return s
}

// Member returns the JSON at the path, or "" when there is none.
func Member(o []byte, path ...string) string {
	v, err := raw.Get(o, path...)
	if err != nil {
		return ""
	}
	return string(v)
}

// WantOwnError fails unless the error is one of Junction's own about the upstream, of that kind.
func WantOwnError(t *testing.T, m jsonrpc.Message, name string, kind client.Kind) {
	t.Helper()
	if m.Error == nil {
		t.Fatalf("result %s, want an error of ours, %s", m.Result, kind)
	}
	if got, want := string(m.Error.Data), fmt.Sprintf(`{"junction":{"upstream":"%s","kind":"%s"}}`, name,
		kind); got != want || m.Error.Code != -32603 {
		t.Fatalf("error %d %s data %s, want -32603 and %s", m.Error.Code, m.Error.Message, got, want)
	}
}

// SameJSON reports whether two texts are the same JSON value. Members may come in any order.
func SameJSON(t *testing.T, a, b []byte) bool {
	t.Helper()
	var values [2]any
	for i, text := range [][]byte{a, b} {
		if err := json.Unmarshal(text, &values[i]); err != nil {
			t.Fatalf("%v in:\n%s", err, text)
		}
	}
	return reflect.DeepEqual(values[0], values[1])
}

// ObjectText is a text that is a JSON object where nothing means an empty one.
func ObjectText(text []byte) []byte {
	if len(text) == 0 {
		return []byte("{}")
	}
	return text
}

// WantJSON compares two values.
func WantJSON(t *testing.T, what string, got []byte, want string) {
	t.Helper()
	if len(got) == 0 || !SameJSON(t, got, []byte(want)) {
		t.Errorf("%s = %s\nwant %s", what, got, want)
	}
}

// WantCode wants an error of this code.
func WantCode(t *testing.T, m jsonrpc.Message, code int64) {
	t.Helper()
	if m.Error == nil || m.Error.Code != code {
		t.Errorf("got %s, want an error %d", m.Append(nil), code)
	}
}

// WantEcho wants the result of the tool echo for the arguments {}.
func WantEcho(t *testing.T, a Answered) {
	t.Helper()
	if v, err := raw.Get(a.Message.Result, "content"); a.Status != 200 || err != nil ||
		string(v) != `[{"type":"text","text":"{}"}]` {
		t.Errorf("got %s, want the echo of {}", a)
	}
}

// WantUncalled wants no request of the method to have reached the server. Of others the proxy sends
// some by itself, whenever it likes.
func WantUncalled(t *testing.T, j *upstreamtest.Journal, method string) {
	t.Helper()
	for _, r := range j.Received() {
		if r.Message.Method == method {
			t.Errorf("the upstream received %s", r.Body)
		}
	}
}

// WantLateAnswer fails unless the error tells a modern client that its requestState is no longer of
// use. The parked call of a legacy upstream is lost, and may have been executed; the call of a modern
// one can be made again without the state.
func WantLateAnswer(t *testing.T, up client.Era, m jsonrpc.Message) {
	t.Helper()
	if up == client.EraModern {
		WantCode(t, m, -32602)
		return
	}
	if m.Error == nil || m.Error.Code != -32603 || Member(m.Error.Data, "junction", "kind") != `"lost"` ||
		!strings.Contains(m.Error.Message, "may have been executed") {
		t.Fatalf("result %s, error %+v, want the error that the call is lost, and may have been executed", m.Result,
			m.Error)
	}
}
