package redact

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"junction/policy"
)

var ticketRule = []policy.Redaction{{Name: "ticket", Re: regexp.MustCompile(`TCK-[0-9]+`)}}

// TestOnlyTheHopKeepsItsHandles: a value that Junction replaces itself stays where Junction expects
// it, and is redacted at every other place.
func TestOnlyTheHopKeepsItsHandles(t *testing.T) {
	for _, row := range []struct {
		kept     Kept
		in, want string
	}{
		{RequestState, `{"requestState":"TCK-1","taskId":"TCK-1"}`, `{"requestState":"TCK-1","taskId":"[redacted: ticket]"}`},
		{RequestState, `{"result":{"requestState":"TCK-1"}}`, `{"result":{"requestState":"[redacted: ticket]"}}`},
		{RequestState, `{"requestState":{"x":"TCK-1"}}`, `{"requestState":{"x":"[redacted: ticket]"}}`},
		{TaskID, `{"taskId":"TCK-1","result":{"taskId":"TCK-1"}}`, `{"taskId":"TCK-1","result":{"taskId":"[redacted: ticket]"}}`},
		{ProgressToken, `{"progressToken":"TCK-1","_meta":{"progressToken":"TCK-1"}}`, `{"progressToken":"TCK-1","_meta":{"progressToken":"[redacted: ticket]"}}`},
		{MetaToken, `{"progressToken":"TCK-1","_meta":{"progressToken":"TCK-1","x":{"progressToken":"TCK-1"}}}`, `{"progressToken":"[redacted: ticket]","_meta":{"progressToken":"TCK-1","x":{"progressToken":"[redacted: ticket]"}}}`},
		{Nothing, `{"requestState":"TCK-1","nextCursor":"TCK-1","elicitationId":"TCK-1","requestId":"TCK-1"}`,
			`{"requestState":"[redacted: ticket]","nextCursor":"[redacted: ticket]","elicitationId":"[redacted: ticket]","requestId":"[redacted: ticket]"}`},
	} {
		if got, _, err := New(ticketRule, false).Text([]byte(row.in), row.kept); err != nil || string(got) != row.want {
			t.Errorf("%s becomes %s, %v; want %s", row.in, got, err, row.want)
		}
	}
}

// TestFormsThatCannotBeAnsweredAreNotSent: the answer to a form has its names and choices. If one of
// them is redacted, no answer would fit, so the form is an error and not a riddle.
func TestFormsThatCannotBeAnsweredAreNotSent(t *testing.T) {
	for schema, ok := range map[string]bool{
		`{"properties":{"TCK-1":{"type":"string"}}}`:                     false,
		`{"properties":{"a":{"type":"string"}},"required":["TCK-1"]}`:    false,
		`{"properties":{"a":{"enum":["TCK-1","b"]}}}`:                    false,
		`{"properties":{"a":{"oneOf":[{"const":"TCK-1","title":"x"}]}}}`: false,
		`{"properties":{"a":{"items":{"anyOf":[{"const":"TCK-1"}]}}}}`:   false,
		`{"properties":{"a":{"default":"TCK-1"}}}`:                       false,
		`{"properties":{"a":{"pattern":"TCK-1"}}}`:                       false,
		`{"TCK-1":1}`:             false,
		`{"other":{"x":"TCK-1"}}`: false,
		`{"properties":{"a":{"title":"TCK-1","description":"TCK-1","enumNames":["TCK-1"]}}}`:      true,
		`{"properties":{"a":{"oneOf":[{"const":"b","title":"TCK-1"}]}},"description":"of TCK-1"}`: true,
	} {
		for _, in := range []string{`{"message":"x","requestedSchema":%s}`,
			`{"inputRequests":{"q":{"method":"elicitation/create","params":{"requestedSchema":%s}}}}`} {
			in = fmt.Sprintf(in, schema)
			got, n, err := New(ticketRule, false).Text([]byte(in), Nothing)
			if (err == nil) != ok || strings.Contains(string(got), "TCK") || ok && n == 0 {
				t.Errorf("%s becomes %s (%d), %v", in, got, n, err)
			}
		}
	}
	in := `{"inputRequests":{"TCK-1":{"method":"roots/list"}},"requestState":"x"}`
	if got, _, err := New(ticketRule, false).Text([]byte(in), RequestState); err == nil {
		t.Errorf("a request whose name is redacted becomes %s", got)
	}
}

// TestItemsThatCannotBeNamed: an item whose name or URI is redacted is of no use in a list.
func TestItemsThatCannotBeNamed(t *testing.T) {
	r := New(ticketRule, true)
	for _, row := range []struct{ in, handle, want string }{
		{`{"name":"a","description":"TCK-1"}`, "name", `{"name":"a","description":"[redacted: ticket]"}`},
		{`{"name":"a"}`, "name", `{"name":"a"}`},
		{`{"name":"TCK-1"}`, "name", ""},
		{`{"name":"TCK-1","uri":"x:1"}`, "uri", `{"name":"[redacted: ticket]","uri":"x:1"}`},
		{`{"name":"a","uri":"x:\u0054CK-1"}`, "uri", ""},
		{`{"name":"a","uriTemplate":"x:TCK-1/{x}"}`, "uriTemplate", ""},
	} {
		got, ok := r.Item([]byte(row.in), row.handle)
		if ok != (row.want != "") || ok && string(got) != row.want {
			t.Errorf("%s becomes %s, %v", row.in, got, ok)
		}
	}
	if got := r.URI("mcp://up/x:TCK-1"); got != "mcp://up/x:redacted-ticket" {
		t.Errorf("a URI becomes %s", got)
	}
}
