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

// TestServerRequestsForTheClient converts the params of server requests, or rejects the request.
func TestServerRequestsForTheClient(t *testing.T) {
	all := client.Profile{Form: true, URL: true, Sampling: true, SamplingTools: true, Roots: true}
	for _, row := range []struct {
		name    string
		client  client.Era
		version string
		profile client.Profile
		method  string
		params  string
		want    string // of the params, or the code and the text of the error
		lacks   string
	}{
		{"a form names the server", client.EraModern, "", all, "elicitation/create",
			`{"message":"Name?","requestedSchema":{}}`, `{"message":"[up] Name?","requestedSchema":{}}`, ""},
		{"a page has no id in the modern era", client.EraModern, "", all, "elicitation/create",
			`{"mode":"url","message":"m","url":"u","elicitationId":"e"}`, `{"mode":"url","message":"[up] m","url":"u"}`, ""},
		{"a page keeps its id", client.EraLegacy, "2025-11-25", all, "elicitation/create",
			`{"mode":"url","message":"m","url":"u","elicitationId":"e"}`,
			`{"mode":"url","message":"[up] m","url":"u","elicitationId":"e"}`, ""},
		{"a form has no mode before 2025-11-25", client.EraLegacy, "2025-06-18", all, "elicitation/create",
			`{"mode":"form","message":"m","requestedSchema":{"type":"object","properties":{}}}`,
			`{"message":"[up] m","requestedSchema":{"type":"object","properties":{}}}`, ""},
		{"a form without the capability", client.EraModern, "", client.Profile{URL: true}, "elicitation/create",
			`{"message":"m"}`, "-32602 the client has not declared elicitation in mode form", `{"elicitation":{"form":{}}}`},
		{"an unknown mode", client.EraModern, "", all, "elicitation/create", `{"mode":"dance"}`,
			"-32602 Invalid params: no elicitation has the mode \"dance\"", ""},
		{"sampling has no context of others", client.EraModern, "", all, "sampling/createMessage",
			`{"messages":[],"includeContext":"allServers","_meta":{"a":1}}`, `{"messages":[]}`, ""},
		{"sampling without the capability", client.EraModern, "", client.Profile{}, "sampling/createMessage",
			`{"messages":[]}`, "-32602 the client has not declared sampling", `{"sampling":{}}`},
		{"tools in sampling without the capability", client.EraModern, "", client.Profile{Sampling: true},
			"sampling/createMessage", `{"messages":[],"tools":[]}`, "-32602 the client has not declared sampling.tools",
			`{"sampling":{"tools":{}}}`},
		{"roots without the capability", client.EraModern, "", client.Profile{}, "roots/list", `{}`,
			"-32601 the client has not declared roots", `{"roots":{}}`},
		{"another method", client.EraModern, "", all, "tools/list", `{}`, "-32601 Method not found: tools/list", ""},
		{"a member twice", client.EraModern, "", all, "sampling/createMessage",
			`{"messages":[],"includeContext":"none","IncludeContext":"allServers"}`, "-32602 Invalid params", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			_, x := between(t, row.client, client.EraLegacy, row.version, row.profile)
			got, err := x.serverRequest("up", row.method, []byte(row.params), false)
			text := string(got)
			if e, ok := err.(*jsonrpc.Error); ok {
				text = fmt.Sprint(e.Code, " ", e.Message)
			} else if err != nil {
				t.Fatal(err)
			}
			if !strings.HasPrefix(text, row.want) {
				t.Errorf("%s becomes %s, want %s", row.params, text, row.want)
			}
			lacks := ""
			if l := x.lacks.Load(); l != nil {
				lacks = *l
			}
			if lacks != row.lacks {
				t.Errorf("the client lacks %q, want %q", lacks, row.lacks)
			}
		})
	}
}

// TestInputRequiredForAModernClient relays questions of a modern server: each names the server, and its
// state is sealed.
func TestInputRequiredForAModernClient(t *testing.T) {
	s, x := between(t, client.EraModern, client.EraModern, "", client.Profile{Form: true})
	asks := `{"resultType":"input_required","inputRequests":{"q":{"method":"elicitation/create","params":{"message":"m"}}},` +
		`"requestState":"secret of the server"}`
	got, err := s.answerResult(x, client.Result{Object: object(t, asks), Type: client.TypeInputRequired})
	if err != nil {
		t.Fatal(err)
	}
	message, _ := raw.Get([]byte(got.text()), "inputRequests", "q", "params", "message")
	if string(message) != `"[up] m"` || strings.Contains(got.text(), "secret of the server") {
		t.Errorf("the client gets %s, want the server named, and its state sealed", got.text())
	}
}

// TestInvalidInputRequired: results that ask for nothing, or have no valid form, are the server's fault.
func TestInvalidInputRequired(t *testing.T) {
	for _, text := range []string{
		`{}`, `{"inputRequests":{}}`, `{"inputRequests":[]}`, `{"requestState":7}`, `{"requestState":"a","RequestState":"b"}`,
		`{"inputRequests":{"q":{}}}`, `{"inputRequests":{"q":{"method":"tools/call","params":{}}}}`,
		`{"inputRequests":{"q":{"method":"sampling/createMessage","params":{}}}}`, // which the client cannot
	} {
		s, x := between(t, client.EraModern, client.EraModern, "", client.Profile{Form: true})
		got, err := s.answerResult(x, client.Result{Object: object(t, text), Type: client.TypeInputRequired})
		if own, ok := errors.AsType[*upstream.Error](err); !ok || own.Kind != client.KindInvalid {
			t.Errorf("%s becomes %s, %v; want an invalid answer", text, got.text(), err)
		}
	}
}

// TestRoundsEnd: a modern server that asks again and again is given up.
func TestRoundsEnd(t *testing.T) {
	_, x := between(t, client.EraLegacy, client.EraModern, "2025-11-25", client.Profile{})
	n, c := rounds{count: maxRounds}, &upstream.Call{}
	r := client.Result{Object: object(t, `{"requestState":"s"}`), Type: client.TypeInputRequired}
	if err := n.next(t.Context(), x, c, r); err == nil || !strings.Contains(err.Error(), "more than 10 times") {
		t.Errorf("after %d rounds: %v", maxRounds, err)
	}
	if c.Params.Present() {
		t.Errorf("the next call has the params %s", c.Params.Text())
	}
}
