package jsonrpc_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"junction/upstream/jsonrpc"
	"junction/upstream/raw"
)

// show writes a message in one line, so that a test can say what it wants of it.
func show(m jsonrpc.Message) string {
	var b strings.Builder
	for _, part := range []struct {
		name string
		is   bool
	}{{"request", m.IsRequest()}, {"notification", m.IsNotification()}, {"response", m.IsResponse()}} {
		if part.is {
			b.WriteString(part.name)
		}
	}
	for _, part := range []struct{ name, text string }{
		{"id", string(m.ID)}, {"method", m.Method}, {"params", string(m.Params)}, {"result", string(m.Result)},
	} {
		if part.text != "" {
			b.WriteString(" " + part.name + "=" + part.text)
		}
	}
	if m.Error != nil {
		b.WriteString(" error=" + m.Error.Error() + " data=" + string(m.Error.Data))
	}
	return b.String()
}

func TestParse(t *testing.T) {
	for _, test := range []struct{ text, want string }{
		// Requests.
		{`{"jsonrpc":"2.0","id":1,"method":"ping"}`, `request id=1 method=ping`},
		{`{"jsonrpc":"2.0","id":"1","method":"ping"}`, `request id="1" method=ping`},
		{" {\n\"method\" : \"tools/call\" , \"params\" : { \"name\":\"x\" } ,\t\"id\" : \"a b\" , \"jsonrpc\" : \"2.0\" }\r\n",
			`request id="a b" method=tools/call params={ "name":"x" }`},
		{`{"jsonrpc":"2.0","id":9007199254740993,"method":"x","params":[1.0,1e400]}`, `request id=9007199254740993 method=x params=[1.0,1e400]`},
		{`{"jsonrpc":"2.0","id":123456789012345678901234567890,"method":"x"}`, `request id=123456789012345678901234567890 method=x`},
		{`{"jsonrpc":"2.0","id":-0,"method":"x","params":{}}`, `request id=-0 method=x params={}`},
		{`{"jsonrpc":"2.0","id":1.0,"method":"x"}`, `request id=1.0 method=x`},
		{`{"jsonrpc":"2.0","id":"\u0031\n","method":"x"}`, `request id="\u0031\n" method=x`},
		{`{"jsonrpc":"2.0","id":"","method":"x"}`, `request id="" method=x`},
		{`{"jsonrpc":"2.0","id":"\ud800","method":"x"}`, `request id="\ud800" method=x`}, // it goes back as it came
		{`{"jsonrpc":"2.0","id":0,"method":"\u0070ing"}`, `request id=0 method=ping`},
		{`{"jsonrpc":"2.0","\u0069d":7,"m\u0065thod":"ping"}`, `request id=7 method=ping`},
		{`{"jsonrpc":"2.0","id":1,"method":"x","extra":{"id":2},"extra":0,"EXTRA":1}`, `request id=1 method=x`},
		{`{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":1,"a":2,"A":3,"id":4,"method":"y"}}`, `request id=1 method=x params={"a":1,"a":2,"A":3,"id":4,"method":"y"}`},
		// Notifications.
		{`{"jsonrpc":"2.0","method":"notifications/initialized"}`, `notification method=notifications/initialized`},
		{`{"jsonrpc":"2.0","method":"x","params":{}}`, `notification method=x params={}`},
		// Responses.
		{`{"jsonrpc":"2.0","id":1,"result":{}}`, `response id=1 result={}`},
		{`{"jsonrpc":"2.0","id":1,"result":null}`, `response id=1 result=null`},
		{`{"result":[ 1.0 ],"id":"x","jsonrpc":"2.0"}`, `response id="x" result=[ 1.0 ]`},
		{`{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"no such\nmethod"}}`, "response id=1 error=no such\nmethod (code -32601) data="},
		{`{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"","data":null}}`, `response id=1 error= (code -32602) data=null`},
		{`{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"x","data":{"n":1.0}}}`, `response error=x (code -32700) data={"n":1.0}`},
		{`{"jsonrpc":"2.0","error":{"code":9007199254740993}}`, `response error= (code 9007199254740993) data=`},
		{`{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":{"text":"odd"}}}`, `response id=1 error= (code 1) data=`},
		{`{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"` + "caf\xe9" + `","Message":"x"}}`, `response id=1 error= (code 1) data=`},
	} {
		m, err := jsonrpc.Parse([]byte(test.text), 10)
		if got := show(m); err != nil || got != test.want {
			t.Errorf("Parse(%q) = %s, %v; want %s", test.text, got, err, test.want)
		}
	}
}

// TestParseRefuses: each malformed message is refused with the error that decides about its status
// and code, and its id is there for the answer if it can be read. So is the method, which tells
// whether it is a malformed response.
func TestParseRefuses(t *testing.T) {
	syntax := &raw.SyntaxError{}
	for _, test := range []struct {
		text   string
		err    error
		id     jsonrpc.ID
		method string // what could be read of it
	}{
		// Not JSON.
		{``, syntax, "", ""},
		{`  `, syntax, "", ""},
		{`{"jsonrpc":"2.0","id":1,"method":"ping"`, syntax, "", ""},
		{`{"jsonrpc":"2.0","id":1,"method":"ping"}}`, syntax, "", ""},
		{`{"jsonrpc":"2.0","id":1,"method":"ping"}{"jsonrpc":"2.0","method":"x"}`, syntax, "", ""},
		{`{"jsonrpc":"2.0","id":01,"method":"ping"}`, syntax, "", ""},
		{`{'jsonrpc':'2.0'}`, syntax, "", ""},
		{`<html>`, syntax, "", ""},
		{`[{"jsonrpc":"2.0","id":1,"method":"ping"}`, syntax, "", ""},
		// Nested too deeply.
		{`{"jsonrpc":"2.0","id":1,"method":"x","params":` + strings.Repeat("[", 10) + strings.Repeat("]", 10) + `}`, raw.ErrDepth, "", ""},
		{strings.Repeat("[", 100000), raw.ErrDepth, "", ""},
		// No object.
		{`[]`, jsonrpc.ErrInvalid, "", ""},
		{`[{"jsonrpc":"2.0","id":1,"method":"ping"}]`, jsonrpc.ErrInvalid, "", ""},
		{`null`, jsonrpc.ErrInvalid, "", ""},
		{`"x"`, jsonrpc.ErrInvalid, "", ""},
		{`1`, jsonrpc.ErrInvalid, "", ""},
		// The version.
		{`{}`, jsonrpc.ErrInvalid, "", ""},
		{`{"id":1,"method":"ping"}`, jsonrpc.ErrInvalid, "1", "ping"},
		{`{"jsonrpc":2.0,"id":1,"method":"ping"}`, jsonrpc.ErrInvalid, "1", "ping"},
		{`{"jsonrpc":"1.0","id":"a","method":"ping"}`, jsonrpc.ErrInvalid, `"a"`, "ping"},
		{`{"jsonrpc":null,"id":1,"method":"ping"}`, jsonrpc.ErrInvalid, "1", "ping"},
		{`{"jsonrpc":"2.0","jsonrpc":"2.0","id":1,"method":"ping"}`, raw.ErrAmbiguous, "1", "ping"},
		{`{"JSONRPC":"2.0","id":1,"method":"ping"}`, raw.ErrAmbiguous, "1", "ping"},
		// The id.
		{`{"jsonrpc":"2.0","id":null,"method":"ping"}`, jsonrpc.ErrInvalid, "", "ping"},
		{`{"jsonrpc":"2.0","id":true,"method":"ping"}`, jsonrpc.ErrInvalid, "", ""},
		{`{"jsonrpc":"2.0","id":{"a":1},"method":"ping"}`, jsonrpc.ErrInvalid, "", ""},
		{`{"jsonrpc":"2.0","id":[1],"method":"ping"}`, jsonrpc.ErrInvalid, "", ""},
		{`{"jsonrpc":"2.0","id":1,"id":1,"method":"ping"}`, raw.ErrAmbiguous, "", ""},
		{`{"jsonrpc":"2.0","id":1,"ID":2,"method":"ping"}`, raw.ErrAmbiguous, "", ""},
		{`{"jsonrpc":"2.0","Id":1,"method":"ping"}`, raw.ErrAmbiguous, "", ""},
		{`{"jsonrpc":"2.0","id":1,"\u0069d":2,"method":"ping"}`, raw.ErrAmbiguous, "", ""},
		// The method.
		{`{"jsonrpc":"2.0","id":1}`, jsonrpc.ErrInvalid, "1", ""},
		{`{"jsonrpc":"2.0"}`, jsonrpc.ErrInvalid, "", ""},
		{`{"jsonrpc":"2.0","id":1,"params":{}}`, jsonrpc.ErrInvalid, "1", ""},
		{`{"jsonrpc":"2.0","id":1,"method":""}`, jsonrpc.ErrInvalid, "1", ""},
		{`{"jsonrpc":"2.0","id":1,"method":null}`, jsonrpc.ErrInvalid, "1", ""},
		{`{"jsonrpc":"2.0","id":1,"method":["ping"]}`, jsonrpc.ErrInvalid, "1", ""},
		{`{"jsonrpc":"2.0","id":1,"method":null,"result":{}}`, jsonrpc.ErrInvalid, "1", ""},
		{`{"jsonrpc":"2.0","id":1,"method":"\ud800"}`, raw.ErrAmbiguous, "1", ""},
		{`{"jsonrpc":"2.0","id":1,"method":"` + "\xff" + `"}`, raw.ErrAmbiguous, "1", ""},
		{`{"jsonrpc":"2.0","id":1,"method":"tools/list","method":"tools/call"}`, raw.ErrAmbiguous, "1", ""},
		{`{"jsonrpc":"2.0","id":1,"method":"tools/list","Method":"tools/call"}`, raw.ErrAmbiguous, "1", ""},
		{`{"jsonrpc":"2.0","id":1,"method":"tools/list","method\u0000":"tools/call"}`, raw.ErrAmbiguous, "1", ""},
		// The params.
		{`{"jsonrpc":"2.0","id":1,"method":"x","params":"y"}`, jsonrpc.ErrInvalid, "1", "x"},
		{`{"jsonrpc":"2.0","id":1,"method":"x","params":{},"params":{}}`, raw.ErrAmbiguous, "1", "x"},
		{`{"jsonrpc":"2.0","id":1,"method":"x","paramſ":{}}`, raw.ErrAmbiguous, "1", "x"},
		// Two kinds at once.
		{`{"jsonrpc":"2.0","id":1,"method":"x","result":{}}`, jsonrpc.ErrInvalid, "1", "x"},
		{`{"jsonrpc":"2.0","id":1,"method":"x","error":{"code":1,"message":""}}`, jsonrpc.ErrInvalid, "1", "x"},
		{`{"jsonrpc":"2.0","id":1,"result":{},"error":{"code":1,"message":""}}`, jsonrpc.ErrInvalid, "1", ""},
		{`{"jsonrpc":"2.0","id":1,"result":{},"Error":{"code":1,"message":""}}`, raw.ErrAmbiguous, "1", ""},
		{`{"jsonrpc":"2.0","id":1,"result":{},"reſult":{}}`, raw.ErrAmbiguous, "1", ""},
		// A response to nothing.
		{`{"jsonrpc":"2.0","result":{}}`, jsonrpc.ErrInvalid, "", ""},
		{`{"jsonrpc":"2.0","id":null,"result":{}}`, jsonrpc.ErrInvalid, "", ""},
		// The error.
		{`{"jsonrpc":"2.0","id":1,"error":"x"}`, jsonrpc.ErrInvalid, "1", ""},
		{`{"jsonrpc":"2.0","id":1,"error":{}}`, jsonrpc.ErrInvalid, "1", ""},
		{`{"jsonrpc":"2.0","id":1,"error":{"code":"x","message":"x"}}`, jsonrpc.ErrInvalid, "1", ""},
		{`{"jsonrpc":"2.0","id":1,"error":{"code":1.5,"message":"x"}}`, jsonrpc.ErrInvalid, "1", ""},
		{`{"jsonrpc":"2.0","id":1,"error":{"code":99999999999999999999,"message":"x"}}`, jsonrpc.ErrInvalid, "1", ""},
		{`{"jsonrpc":"2.0","id":1,"error":{"code":1,"code":2,"message":"x"}}`, raw.ErrAmbiguous, "1", ""},
		{`{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"x","data":1,"Data":2}}`, raw.ErrAmbiguous, "1", ""},
	} {
		m, err := jsonrpc.Parse([]byte(test.text), 10)
		if test.err == syntax {
			if _, ok := errors.AsType[*raw.SyntaxError](err); !ok {
				t.Errorf("Parse(%.200q) = %v, want a syntax error", test.text, err)
			}
		} else if !errors.Is(err, test.err) {
			t.Errorf("Parse(%.200q) = %v, want %v", test.text, err, test.err)
		}
		if want := (jsonrpc.Message{ID: test.id, Method: test.method}); show(m) != show(want) {
			t.Errorf("Parse(%.200q) = %s, want %s", test.text, show(m), show(want))
		}
	}
}

func TestParseBody(t *testing.T) {
	for _, test := range []struct{ text, want string }{
		{`{"jsonrpc":"2.0","id":1,"method":"x","params": {"a":1} }`, `{"a":1}`},
		{`{"jsonrpc":"2.0","id":1,"method":"x","par\u0061ms":{"a":1}}`, `{"a":1}`},
		{`{"jsonrpc":"2.0","id":1,"result":{"a":1}}`, `{"a":1}`},
		{`{"jsonrpc":"2.0","id":1,"result":{"a":1},"params":{"b":1}}`, `{"a":1}`},
		{`{"jsonrpc":"2.0","id":1,"result":{}}`, `{}`},
		{`{"jsonrpc":"2.0","id":1,"result":[{"a":1}]}`, ``},
		{`{"jsonrpc":"2.0","id":1,"result":null}`, ``},
		{`{"jsonrpc":"2.0","id":1,"method":"x","params":[{}]}`, ``},
		{`{"jsonrpc":"2.0","id":1,"method":"x"}`, ``},
		{`{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"a"}}`, ``},
	} {
		m, err := jsonrpc.Parse([]byte(test.text), 10)
		if err != nil || string(m.Body.Text()) != test.want || m.Body.Present() != (test.want != "") {
			t.Errorf("the body of %s is %q, present %v, %v; want %q", test.text, m.Body.Text(), m.Body.Present(), err, test.want)
		}
	}
	m, _ := jsonrpc.Parse([]byte(`{"jsonrpc":"2.0","id":1,"result":{"_meta":{"a":1},"content":[{"type":"text"},2]}}`), 10)
	if allocs := testing.AllocsPerRun(10, func() {
		m.Body.Object("_meta")
		m.Body.Elements("content")
	}); allocs > 0 {
		t.Errorf("to find _meta and content takes %v allocations: they were read again", allocs)
	}
}

func TestParseDepth(t *testing.T) {
	for depth, want := range []error{raw.ErrDepth, raw.ErrDepth, raw.ErrDepth, nil, nil} {
		if _, err := jsonrpc.Parse([]byte(`{"jsonrpc":"2.0","method":"x","params":{"a":[1]}}`), depth); err != want {
			t.Errorf("Parse of three levels with limit %d = %v, want %v", depth, err, want)
		}
	}
}

// TestAppend parses what was appended, and appends what was parsed.
func TestAppend(t *testing.T) {
	for _, text := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"ping"}`,
		`{"jsonrpc":"2.0","id":"\u0031","method":"a\"b","params":{"x": 1.0,"x":2}}`,
		`{"jsonrpc":"2.0","method":"n","params":[]}`,
		`{"jsonrpc":"2.0","id":12345678901234567890,"result":{"a": [ ]}}`,
		`{"jsonrpc":"2.0","id":1,"error":{ "message":"x", "extra":1.0, "code":-1, "data":{"a":1,"a":2}, "code2":0 }}`,
		`{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"` + "caf\xe9" + `"}}`,
		`{"jsonrpc":"2.0","error":{"code":-32700,"message":"?"}}`,
	} {
		m, err := jsonrpc.Parse([]byte(text), 10)
		if err != nil {
			t.Fatalf("Parse(%q): %v", text, err)
		}
		if got := m.Append([]byte("x")); string(got) != "x"+text {
			t.Errorf("Append = %q, want %q", got, "x"+text)
		}
	}
}

func TestAppendRequest(t *testing.T) {
	for _, test := range []struct {
		id     jsonrpc.ID
		method string
		params []byte
		want   string
	}{
		{jsonrpc.NumberID(18446744073709551615), "a", nil, `{"jsonrpc":"2.0","id":18446744073709551615,"method":"a"}`},
		{`"x"`, "a\n\xff", []byte(`{ }`), `{"jsonrpc":"2.0","id":"x","method":"a\n` + "\ufffd" + `","params":{ }}`},
		{"", "n", []byte{}, `{"jsonrpc":"2.0","method":"n"}`},
	} {
		if got := jsonrpc.AppendRequest(nil, test.id, test.method, test.params); string(got) != test.want || !json.Valid(got) {
			t.Errorf("AppendRequest(%q, %q, %q) = %s, want %s", test.id, test.method, test.params, got, test.want)
		}
	}
}

func TestAppendError(t *testing.T) {
	for _, test := range []struct {
		id   jsonrpc.ID
		e    *jsonrpc.Error
		want string
	}{
		{"1", &jsonrpc.Error{Code: -32601, Message: "no \"x\"\n"}, `{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"no \"x\"\n"}}`},
		{"", &jsonrpc.Error{Code: -32700, Data: []byte(`{"a":1.0}`)}, `{"jsonrpc":"2.0","error":{"code":-32700,"message":"","data":{"a":1.0}}}`},
	} {
		got := jsonrpc.AppendError(nil, test.id, test.e)
		if string(got) != test.want {
			t.Errorf("AppendError(%q, %v) = %s, want %s", test.id, test.e, got, test.want)
		}
		m, err := jsonrpc.Parse(got, 10)
		if err != nil || m.ID != test.id || m.Error.Code != test.e.Code || m.Error.Message != test.e.Message || !bytes.Equal(m.Error.Data, test.e.Data) {
			t.Errorf("Parse(%s) = %s, %v", got, show(m), err)
		}
	}
}

func TestResponseHead(t *testing.T) {
	got := append(jsonrpc.ResponseHead([]byte("x"), `"1"`), `{}}`...)
	if want := `x{"jsonrpc":"2.0","id":"1","result":{}}`; string(got) != want {
		t.Errorf("ResponseHead and result = %s, want %s", got, want)
	}
}

// FuzzParse holds Parse against a second opinion that decodes with encoding/json, and checks that a
// message survives Append.
func FuzzParse(f *testing.F) {
	for _, text := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":[1.0,"\ud800"]}}`, `{"jsonrpc":"2.0","method":"n"}`, `{"jsonrpc":"2.0","id":"a","result":{}}`,
		`{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"x","data":[]}}`, `{"jsonrpc":"2.0","id":1,"error":{"code":1,"Code":2}}`,
		`{"jsonrpc":"2.0","id":1,"ID":2,"method":"ping"}`, `{"jsonrpc":"2.0","id":{},"method":"\u0000"}`, `[{"jsonrpc":"2.0"}]`, `{`, `null`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		before := bytes.Clone(text)
		m, err := jsonrpc.Parse(text, 1000)
		if !bytes.Equal(before, text) {
			t.Fatalf("Parse changed %q to %q", before, text)
		}
		if !json.Valid(text) {
			if _, ok := errors.AsType[*raw.SyntaxError](err); !ok && err != raw.ErrDepth {
				t.Fatalf("Parse(%q) = %v, and it is not JSON", text, err)
			}
			return
		}
		if err != nil {
			if !errors.Is(err, jsonrpc.ErrInvalid) && !errors.Is(err, raw.ErrAmbiguous) && err != raw.ErrDepth {
				t.Fatalf("Parse(%q) = %v, which is no error that it promises", text, err)
			}
			if show(m) != show(jsonrpc.Message{ID: m.ID, Method: m.Method}) {
				t.Fatalf("Parse(%q) = %s, %v", text, show(m), err)
			}
			return
		}
		// encoding/json is more careless in every respect, so it must read the same here.
		var want struct {
			JSONRPC string
			ID      json.RawMessage
			Method  string
			Params  json.RawMessage
			Result  json.RawMessage
			Error   *struct {
				Code int64
				Data json.RawMessage
			}
		}
		var message struct{ Error struct{ Message any } }
		if err := json.Unmarshal(text, &want); err != nil {
			t.Fatalf("Parse(%q) = %s, encoding/json says %v", text, show(m), err)
		}
		if string(want.ID) == "null" {
			want.ID = nil
		}
		switch {
		case want.JSONRPC != "2.0", m.ID != jsonrpc.ID(want.ID), m.Method != want.Method, !bytes.Equal(m.Params, want.Params), !bytes.Equal(m.Result, want.Result):
			t.Errorf("Parse(%q) = %s, encoding/json reads %+v", text, show(m), want)
		case (m.Error == nil) != (want.Error == nil):
			t.Errorf("Parse(%q) = %s, encoding/json reads %+v", text, show(m), want)
		case m.Error != nil && (m.Error.Code != want.Error.Code || !bytes.Equal(m.Error.Data, want.Error.Data)):
			t.Errorf("Parse(%q) = %s, encoding/json reads %+v", text, show(m), *want.Error)
		case m.Error != nil && m.Error.Message != "" && (json.Unmarshal(text, &message) != nil || message.Error.Message != m.Error.Message):
			t.Errorf("Parse(%q) = %s, encoding/json reads the message %v", text, show(m), message)
		}
		if m.IsRequest() == m.IsNotification() && !m.IsResponse() || m.IsRequest() && m.IsResponse() {
			t.Errorf("Parse(%q) = %s, which is of no one kind", text, show(m))
		}
		written := m.Append(nil)
		again, err := jsonrpc.Parse(written, 1000)
		if err != nil || show(again) != show(m) {
			t.Errorf("Parse(%q) = %s, appended %q, again %s, %v", text, show(m), written, show(again), err)
		}
		if line := raw.AppendLine(nil, written); bytes.ContainsAny(line, "\r\n") || !json.Valid(line) {
			t.Errorf("%q as one line is %q", written, line)
		}
	})
}

func TestForeignIDsAreStringsOrIntegers(t *testing.T) {
	for id, ok := range map[string]bool{
		`"1"`: true, `""`: true, `"1.5"`: true, `0`: true, `-0`: true, `-7`: true, `9007199254740993`: true, `1.0`: true, `-1.00`: true, `1e2`: true, `1.50E+1`: true, `100e-2`: true,
		`0.0`: true, `0e-5`: true, `1e400`: true, `1e99999999999999999999`: true, `0e-99999999999999999999`: true,
		`1.5`: false, `0.1`: false, `-2.25`: false, `15e-1`: false, `1.55e1`: false, `100e-3`: false, `1e-99999999999999999999`: false,
		`null`: false, `true`: false, `{}`: false, `[]`: false, `[1]`: false,
	} {
		m, err := jsonrpc.Parse([]byte(`{"jsonrpc":"2.0","id":`+id+`,"method":"ping"}`), 10)
		if (err == nil) != ok || ok && string(m.ID) != id || !ok && (!errors.Is(err, jsonrpc.ErrInvalid) || m.ID != "") {
			t.Errorf("the id %s: %q, %v; valid = %v", id, m.ID, err, ok)
		}
	}
}

func TestForeignNullParamsAreAbsent(t *testing.T) {
	for text, want := range map[string]string{
		`{"jsonrpc":"2.0","id":1,"method":"x","params":null}`:                `request id=1 method=x`,
		`{"jsonrpc":"2.0","method":"notifications/x", "params" : null }`:     `notification method=notifications/x`,
		`{"jsonrpc":"2.0","id":1,"method":"x","params":{"_meta":null}}`:      `request id=1 method=x params={"_meta":null}`,
		`{"params":null,"jsonrpc":"2.0","id":2,"result":{"a":1},"other":{}}`: `response id=2 result={"a":1}`,
	} {
		m, err := jsonrpc.Parse([]byte(text), 10)
		if err != nil || show(m) != want {
			t.Errorf("%s = %s, %v; want %s", text, show(m), err, want)
		}
		if again, err := jsonrpc.Parse(m.Append(nil), 10); err != nil || show(again) != want {
			t.Errorf("%s is sent on as %s", text, m.Append(nil))
		}
	}
}
