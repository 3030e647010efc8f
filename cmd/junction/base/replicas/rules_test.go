package replicas

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"junction/policy"
	"junction/proxy/members"
)

// textOf returns policies that deny one tool; none for "".
func textOf(t *testing.T, denied string) []byte {
	t.Helper()
	c := policy.Carried{}
	if denied != "" {
		c.Policies = policy.Config{{Name: "one", Rules: []policy.Rule{{Deny: &policy.Selector{Tools: policy.List{denied}}},
			{Allow: &policy.Selector{Upstreams: policy.List{"*"}}}}}}
	}
	text, err := policy.Carry([]policy.Carried{c})
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestPoliciesComeWithARequest: a member judges a forwarded request by the policies of the member that has forwarded
// it, if they differ from its own: the first request, too, with a body that is sent once, and after it has dropped
// them. A request whose policies it cannot read is not executed.
func TestPoliciesComeWithARequest(t *testing.T) {
	t.Parallel()
	w := mustWorld(t)
	judged, asked := "", 0
	owner, other := w.options(), w.options()
	owner.Rules, other.Rules = new(Rules), new(Rules)
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		judged = "by none"
		if p := members.Rules(r.Context()); p != nil {
			judged = ""
			for _, name := range []string{"a", "b"} {
				item := policy.Item{Kind: policy.Tool, Upstream: "up", Names: []string{name}}
				if !p.For(policy.Subject{Kind: "key"}).Bind(item).Visible() {
					judged += "without " + name
				}
			}
		}
	})
	a, b := w.mustStart(owner, handler), w.mustStart(other, nil)
	w.until("they know each other", func() bool { return b.Alive(a.Self()) && a.Alive(b.Self()) })
	forward := func(body string, kept bool) error {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://localhost/mcp", strings.NewReader(body))
		r.Header.Set(headerRules, "made up by a client")
		if kept {
			return b.Forward(httptest.NewRecorder(), r, []byte(body), a.Self())
		}
		return b.Forward(httptest.NewRecorder(), r, nil, a.Self())
	}
	for i, step := range []struct {
		owner, other string // denied
		kept         bool
		want         string
	}{{"", "", true, "by none"}, {"", "a", true, "without a"}, {"", "b", false, "without b"}, {"b", "b", true, "by none"},
		{"a", "b", false, "without b"}, {"a", "", true, ""}} {
		owner.Rules.Set(textOf(t, step.owner))
		other.Rules.Set(textOf(t, step.other))
		if err := forward(fmt.Sprint(i), step.kept); err != nil || judged != step.want || asked != i+1 {
			t.Errorf("step %d: %v, judged %q, want %q; %d requests", i, err, judged, step.want, asked)
		}
	}
	other.Rules.Set(textOf(t, "b"))
	if err := forward("1", true); err != nil {
		t.Fatal(err)
	}
	for _, kept := range []bool{false, true} { // the owner has dropped them
		owner.Rules.others = nil
		err := forward("1", kept)
		if again := forward("1", false); again != nil || judged != "without b" {
			t.Errorf("after the owner has dropped the policies: %v, judged %q", again, judged)
		}
		if kept && err != nil || !kept && !errors.Is(err, members.ErrUnreachable) {
			t.Errorf("the owner has dropped the policies: %v", err)
		}
	}
	done := asked
	owner.Rules.others = nil
	other.Rules.Set([]byte(`[{"Policies":[{"Name":"later","Deny":{}}]}]`))
	if err := forward("1", true); !errors.Is(err, members.ErrUnreachable) || asked != done {
		t.Errorf("policies that cannot be read: %v, %d requests", err, asked-done)
	}
}
