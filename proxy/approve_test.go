package proxy

import (
	"testing"

	"junction/policy"
	"junction/proxy/sealed"
	"junction/proxy/view"
	"junction/upstream"
	"junction/upstream/client"
)

// TestUndecidedCallsAreDenied has the pipeline reach approval without a decision of policy: in no era
// is the call made.
func TestUndecidedCallsAreDenied(t *testing.T) {
	s := mustCore(t)
	for _, era := range []client.Era{client.EraLegacy, client.EraModern} {
		for verdict, want := range map[policy.Verdict]string{policy.Deny: "Unknown tool: x", policy.Allow: ""} {
			x := &Exchange{Era: era, judged: judged{target: &view.Target{Part: upstream.PartTools}, decision: policy.Decision{Verdict: verdict}}}
			x.Info.Name, x.approved = "x", true
			got := ""
			if r, err := s.approve(t.Context(), x, sealed.State{Approved: true}); r != nil {
				t.Errorf("%s: approve answered %s", era, r.Body)
			} else if err != nil {
				got = err.Error()
			}
			if got != want {
				t.Errorf("%s: approve of a call with the verdict %s = %q, want %q", era, verdict, got, want)
			}
		}
	}
}
