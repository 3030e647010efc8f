package approval

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"junction/upstream/raw"
)

// message returns the text that the user reads.
func message(t *testing.T, c Call) (string, error) {
	t.Helper()
	params, err := Form(c)
	if err != nil {
		return "", err
	}
	o, err := raw.Parse(params)
	if err != nil {
		t.Fatal(err)
	}
	text, err := o.String("message")
	if err != nil {
		t.Fatal(err)
	}
	return text, nil
}

// TestFormShowsEverything: each member has its line, and a character that the user would not see, or
// that would move other text, is escaped.
func TestFormShowsEverything(t *testing.T) {
	for _, row := range []struct {
		call Call
		want string
	}{
		{Call{Server: "up", Kind: "tool", Name: "send", Arguments: []byte(`{ "b":[1.0, "\u0072m"],"a":"x\ny" }`)},
			"Server: up\nTool: send\nArguments:\n  a: \"x\\ny\"\n  b: [1.0,\"rm\"]"},
		{Call{Server: "up", Kind: "tool", Name: "send", Arguments: []byte(`{}`)}, "Tool: send\nArguments: {}"},
		{Call{Server: "up", Kind: "tool", Name: "send", Arguments: []byte(`null`)}, "Arguments: null"},
		{Call{Server: "up", Kind: "resource", Name: "file:///a?b=c"}, "Resource: file:///a?b=c"},
		{Call{Server: "up", Kind: "tool", Name: "a\nArguments: {}"}, `Tool: "a\nArguments: {}"`},
		{Call{Server: "up", Kind: "tool", Name: "a\u202eb"}, `Tool: "a\u202eb"`},
		{Call{Server: "up", Kind: "tool", Name: `a\u202eb`}, `Tool: "a\\u202eb"`},
		{Call{Server: "up", Kind: "tool", Name: "a", Arguments: []byte("{\"b\":\"\u202e\u200b\u0085\U000e0041\"}")},
			`  b: "\u202e\u200b\u0085\U000e0041"`},
		{Call{Server: "up", Kind: "tool", Name: "a", Arguments: []byte(`{"b":"\u202e\\u202e"}`)}, `  b: "\u202e\\u202e"`},
		{Call{Server: "up", Kind: "tool", Name: "a", Arguments: []byte(`{"x: 1\n  y":2,"":3,"a b":4}`)},
			"Arguments:\n  \"\": 3\n  \"a b\": 4\n  \"x: 1\\n  y\": 2"},
		{Call{Server: "up", Kind: "tool", Name: "a", Arguments: []byte(`{}`), Others: []byte(`{"o":1}`), Meta: []byte(`{"m":{"x":2}}`)},
			"Arguments: {}\nOther parameters:\n  o: 1\n_meta:\n  m: {\"x\":2}"},
	} {
		if got, err := message(t, row.call); err != nil || !strings.HasSuffix(got, row.want) {
			t.Errorf("%s %s is shown as %q, %v; want %q", row.call.Name, row.call.Arguments, got, err, row.want)
		}
	}
}

// TestFormHidesNothing: a call of which the form would hide a part gets no form.
func TestFormHidesNothing(t *testing.T) {
	many := "{"
	for i := range maxNames + 1 {
		many += fmt.Sprintf(`"a%d":1,`, i)
	}
	long := strings.Repeat("x", MaxShown)
	deep := strings.Repeat("[", maxDepth+1) + strings.Repeat("]", maxDepth+1)
	for text, want := range map[string]error{
		`{"note":"` + long + `","command":"rm -rf /"}`:         errLong,
		`{"` + long + `":1}`:                                   errLong,
		`{"a":"` + strings.Repeat("\u202e", MaxShown/4) + `"}`: errLong,
		`{"a":1` + strings.Repeat(" ", 8*MaxShown) + `}`:       errLong,
		strings.TrimSuffix(many, ",") + "}":                    errMany,
		`{"a":` + deep + `}`:                                   errDeep,
		`{"a":1,"a":2}`:                                        errUnclear,
		`{"a":1,"\u0061":2}`:                                   errUnclear,
		`{"a":{"b":1,"b":1}}`:                                  errUnclear,
		`{"a":"\ud800"}`:                                       errUnclear,
		"{\"a\":\"\xff\"}":                                     errUnclear,
		"{\"\xff\":1}":                                         errUnclear,
	} {
		for _, c := range []Call{{Arguments: []byte(text)}, {Others: []byte(text)}, {Meta: []byte(text)}} {
			c.Server, c.Kind, c.Name = "up", "tool", "send"
			if got, err := message(t, c); !errors.Is(err, want) {
				t.Errorf("%.60s is shown as %q, %v; want the error %v", text, got, err, want)
			}
		}
	}
	for _, name := range []string{long, "\xff"} {
		if got, err := message(t, Call{Server: "up", Kind: "tool", Name: name}); err == nil {
			t.Errorf("the tool %.20q is shown as %q", name, got)
		}
	}
	half := fmt.Sprintf(`{"a":"%s"}`, long[:MaxShown/2])
	if _, err := message(t, Call{Server: "up", Kind: "tool", Name: "a", Arguments: []byte(half), Meta: []byte(half)}); err != errLong {
		t.Errorf("two parts that are too long together: %v", err)
	}
}
