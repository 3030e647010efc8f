package proxy

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"junction/upstream"
	"junction/upstream/client"
	"junction/upstream/jsonrpc"
	"junction/upstream/raw"
)

const openPage = `{"elicitations":[{"mode":"url","elicitationId":"e","url":"https://x.org/in","message":"Sign in"}]}`

// TestErrorsBetweenEras converts errors of an upstream.
func TestErrorsBetweenEras(t *testing.T) {
	browser := client.Profile{URL: true}
	for _, row := range []struct {
		name    string
		client  client.Era
		profile client.Profile
		method  string
		err     error
		want    string // of the result, or code, Reason and text of the error
	}{
		{"an error stays", client.EraModern, browser, "tools/call", &jsonrpc.Error{Code: 7, Message: "no"}, "7 0 no"},
		{"an error stays, legacy", client.EraLegacy, browser, "tools/call", &jsonrpc.Error{Code: 7, Message: "no"}, "7 0 no"},
		{"a missing capability has a status", client.EraModern, browser, "tools/call",
			&jsonrpc.Error{Code: -32021, Message: "m", Data: []byte(`{"x":1}`)}, "-32021 1 m"},
		{"a page becomes a question", client.EraModern, browser, "tools/call",
			&jsonrpc.Error{Code: -32042, Data: []byte(openPage)}, `"message":"[up] Sign in","url":"https://x.org/in"`},
		{"a page without the capability", client.EraModern, client.Profile{}, "tools/call",
			&jsonrpc.Error{Code: -32042, Message: "m", Data: []byte(openPage)}, "-32021 1 m"},
		{"a page without a URL", client.EraModern, browser, "tools/call", &jsonrpc.Error{Code: -32042},
			"it requires a page in a browser, and sent no URL"},
		{"a page for a completion", client.EraModern, browser, "completion/complete",
			&jsonrpc.Error{Code: -32042, Data: []byte(openPage)}, "it requires a page in a browser, and sent no URL"},
		{"a page, legacy", client.EraLegacy, browser, "tools/call",
			&jsonrpc.Error{Code: -32042, Message: "m", Data: []byte(openPage)}, "-32042 0 m"},
		{"a page, legacy without the capability", client.EraLegacy, client.Profile{}, "tools/call",
			&jsonrpc.Error{Code: -32042, Data: []byte(openPage)}, `Open it yourself:\nSign in https://x.org/in`},
		{"a page of a read, legacy without the capability", client.EraLegacy, client.Profile{}, "resources/read",
			&jsonrpc.Error{Code: -32042, Data: []byte(openPage)}, "this client does not support URL elicitation"},
		{"an error of the connection", client.EraModern, browser, "tools/call",
			&upstream.Error{Upstream: "up", Kind: client.KindTimeout, Err: errors.New("too late")}, "too late"},
	} {
		t.Run(row.name, func(t *testing.T) {
			s, x := between(t, row.client, client.EraLegacy, "2025-11-25", row.profile)
			x.Msg.Method = row.method
			got, err := s.answerError(x, row.err)
			text := got.text()
			switch e := err.(type) {
			case *jsonrpc.Error:
				text = fmt.Sprint(e.Code, 0, " ", e.Message)
			case *Refusal:
				text = fmt.Sprint(e.code, int(e.reason), " ", e.text)
			case error:
				text = e.Error()
			}
			if !strings.Contains(text, row.want) {
				t.Errorf("%v becomes %s, want %s", row.err, text, row.want)
			}
		})
	}
}

// TestLackOfACapabilityReplacesTheError: a legacy server that asked what the client cannot do fails as a
// modern server would have.
func TestLackOfACapabilityReplacesTheError(t *testing.T) {
	s, x := between(t, client.EraModern, client.EraLegacy, "", client.Profile{})
	x.lack(`{"sampling":{}}`)
	_, err := s.answerError(x, &jsonrpc.Error{Code: 7, Message: "I could not ask"})
	e, ok := err.(*Refusal)
	if !ok || e.reason != ReasonRequest || e.code != -32021 ||
		string(e.Data) != `{"requiredCapabilities":{"sampling":{}}}` {
		t.Errorf("the error is %+v (%v), want -32021 with the capability", e, err)
	}
}

// TestManyPagesAreBounded: the questions of one result have the keys url-a to url-z.
func TestManyPagesAreBounded(t *testing.T) {
	s, x := between(t, client.EraModern, client.EraLegacy, "", client.Profile{URL: true})
	one := `{"url":"https://x.org/","message":"m"}`
	data := `{"elicitations":[` + strings.Repeat(one+",", 99) + one + `]}`
	got, err := s.answerError(x, &jsonrpc.Error{Code: -32042, Data: []byte(data)})
	if err != nil {
		t.Fatal(err)
	}
	requests, err := raw.Get([]byte(got.text()), "inputRequests")
	if o, bad := raw.Parse(requests); err != nil || bad != nil || o.Len() != 26 {
		t.Errorf("100 pages become %d questions (%v, %v), want 26", o.Len(), err, bad)
	}
}
