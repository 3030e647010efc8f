package jsonrpc_test

import (
	"errors"
	"testing"

	"junction/upstream/jsonrpc"
)

// TestIDByValue: an id in another form is the number that it stands for; anything that could mean
// something else, or would be long, is none.
func TestIDByValue(t *testing.T) {
	for id, want := range map[jsonrpc.ID]jsonrpc.ID{
		`1`: "1", `"1"`: "1", `1.0`: "1", `1e0`: "1", `"1.0"`: "1", `10e-1`: "1", `0.1E+1`: "1", `1200e-2`: "12", `1e3`: "1000",
		`0`: "0", `-0`: "0", `0.0e99`: "0", `-1.0`: "-1", `18446744073709551615`: "18446744073709551615",
		`1e19`: "10000000000000000000",
		// no whole number
		`1.5`: "", `1e-1`: "", `"one"`: "", `""`: "", `"`: "", ``: "", `" 1"`: "", `"1 "`: "", `"01"`: "", `"+1"`: "", `"0x1"`: "", `"\u0031"`: "",
		`true`: "", `null`: "", `{"1":1}`: "", `[1]`: "",
		// longer than a number of Junction
		`1e20`: "", `1e999999999999`: "", `1e99999999999999999999`: "", `100000000000000000000`: "", `1.00000000000000000000`: "",
	} {
		if got := id.Value(); got != want {
			t.Errorf("ID(%s).Value() = %q; want %q", id, got, want)
		}
	}
}

// TestErrorCodeByValue: the code of an error may be written in another form. The text that clients get
// has the digits, and is otherwise unchanged.
func TestErrorCodeByValue(t *testing.T) {
	for code, want := range map[string]string{`-32603.0`: "-32603", `-3.2603e4`: "-32603", `"-32603"`: "-32603", `0.0`: "0"} {
		m, err := jsonrpc.Parse([]byte(`{"jsonrpc":"2.0","id":1,"error":{"message":"x", "code": `+code+`,"data":1.0}}`), 10)
		if err != nil {
			t.Errorf("code %s: %v", code, err)
			continue
		}
		if got := string(m.Error.Append(nil)); got != `{"message":"x", "code": `+want+`,"data":1.0}` {
			t.Errorf("code %s becomes %s", code, got)
		}
	}
	for _, code := range []string{`-32603.5`, `"x"`, `null`, `1e30`, `[]`, `9223372036854775808`} {
		_, err := jsonrpc.Parse([]byte(`{"jsonrpc":"2.0","id":1,"error":{"message":"x","code":`+code+`}}`), 10)
		if !errors.Is(err, jsonrpc.ErrInvalid) {
			t.Errorf("code %s: %v", code, err)
		}
	}
}

// TestByteOrderMark: a byte order mark before a message is no part of it; a second one is no JSON.
func TestByteOrderMark(t *testing.T) {
	const text = `{"jsonrpc":"2.0","id":1,"method":"ping"}`
	if m, err := jsonrpc.Parse([]byte("\ufeff"+text), 10); err != nil || m.Method != "ping" {
		t.Errorf("with a mark: %s, %v", show(m), err)
	}
	for _, bad := range []string{"\ufeff\ufeff" + text, " \ufeff" + text, "\xef\xbb" + text, "\xef" + text, "\ufeff"} {
		if m, err := jsonrpc.Parse([]byte(bad), 10); err == nil {
			t.Errorf("%q is %s", bad, show(m))
		}
	}
}

// TestBatchOfOne: a server may put a message into an array of its own. Several messages have no place
// where one is expected, and a client's array is not unpacked.
func TestBatchOfOne(t *testing.T) {
	const text = `{"jsonrpc":"2.0","id":1,"result":{}}`
	for _, batch := range []string{"[" + text + "]", " \r\n[ " + text + "\n]", "\ufeff[" + text + "]", text} {
		if m, err := jsonrpc.ParseSingle([]byte(batch), 10); err != nil || show(m) != "response id=1 result={}" || !m.Body.Present() {
			t.Errorf("%q is %s, %v", batch, show(m), err)
		}
	}
	for _, bad := range []string{"[]", "[" + text + "," + text + "]", "[[" + text + "]]", "[1]", "[" + text, `"["`, "["} {
		if m, err := jsonrpc.ParseSingle([]byte(bad), 10); err == nil {
			t.Errorf("%q is %s", bad, show(m))
		}
	}
	if _, err := jsonrpc.Parse([]byte("["+text+"]"), 10); !errors.Is(err, jsonrpc.ErrInvalid) {
		t.Errorf("Parse of a batch: %v", err)
	}
}

// TestNullMembers: of result and error, one may be null beside the other. A notification of a server may
// have an id that is null; for a client, that is a request without an id.
func TestNullMembers(t *testing.T) {
	for text, want := range map[string]string{
		`{"jsonrpc":"2.0","id":1,"result":{},"error":null}`:                       `response id=1 result={}`,
		`{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"x"},"result":null}`: `response id=1 error=x (code 1) data=`,
		`{"jsonrpc":"2.0","id":null,"method":"notifications/x"}`:                  `notification method=notifications/x`,
	} {
		if m, err := jsonrpc.ParseSingle([]byte(text), 10); err != nil || show(m) != want {
			t.Errorf("%s is %s, %v", text, show(m), err)
		}
	}
	if _, err := jsonrpc.Parse([]byte(`{"jsonrpc":"2.0","id":null,"method":"ping"}`), 10); !errors.Is(err, jsonrpc.ErrInvalid) {
		t.Errorf("a client's request without an id: %v", err)
	}
}
