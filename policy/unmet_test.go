package policy_test

import (
	"testing"

	"junction/policy"
)

// TestExplainNamesUnmetHints: of a tool that a subject does not see, the rules that would allow it but for its
// hints say which hint, or which trust, is missing. A rule that does not match by its globs is no reason.
func TestExplainNamesUnmetHints(t *testing.T) {
	const file = `
- name: readers
  match: { key: cora }
  rules:
    - deny: { tools: "*", annotations: { destructiveHint: false, readOnlyHint: false } }
    - allow: { upstreams: "*", annotations: { readOnlyHint: true, trusted: [files, "m*"] } }
    - ask: { tools: files__x, annotations: { idempotentHint: true, openWorldHint: false } }
    - allow: { tools: files__y, annotations: { openWorldHint: true, trusted: "*" } }
`
	const wants, note = "annotations: { readOnlyHint: true }", policy.NoRule
	for name, test := range map[string]struct {
		item policy.Item
		want []policy.Reason
	}{
		"not trusted": {hinted(t, "web", reads), []policy.Reason{{Layer: "own", Policy: "readers", Rule: "rules[1]",
			Verdict: policy.Allow, Annotations: wants, Unmet: "the hints of web are not trusted (trusted: files, m*)",
			Untrusted: true}}},
		"trust would not help": {hinted(t, "web", silent), []policy.Reason{{Layer: "own", Policy: "readers",
			Rule: "rules[1]", Verdict: policy.Allow, Annotations: wants, Unmet: "readOnlyHint of the tool is false"}}},
		"two rules": {hinted(t, "files", deletes), []policy.Reason{
			{Layer: "own", Policy: "readers", Rule: "rules[1]", Verdict: policy.Allow, Annotations: wants,
				Unmet: "readOnlyHint of the tool is false"},
			{Layer: "own", Policy: "readers", Rule: "rules[2]", Verdict: policy.Ask,
				Annotations: "annotations: { idempotentHint: true, openWorldHint: false }",
				Unmet:       "openWorldHint of the tool is true"}}},
		"a prompt": {policy.Item{Kind: policy.Prompt, Upstream: "web", Names: []string{"web__x"}},
			[]policy.Reason{{Layer: "own", Policy: "readers", Note: note}}},
	} {
		for _, both := range []bool{false, true} {
			p, want := mustCompile(t, file), test.want
			if both {
				p = policy.Both(p, mustCompile(t, file))
			}
			var got []policy.Reason
			for _, r := range p.For(policy.Subject{Key: "cora"}).Explain(test.item) {
				if r.Policy != "" {
					got = append(got, r)
				}
			}
			if both {
				for _, r := range test.want {
					r.Also = true
					want = append(want[:len(want):len(want)], r)
				}
			}
			if len(got) != len(want) {
				t.Errorf("%s, both %t:\n%s\nwant\n%s", name, both, lines(got), lines(want))
				continue
			}
			for i := range got {
				if got[i] != want[i] {
					t.Errorf("%s, both %t: %+v, want %+v", name, both, got[i], want[i])
				}
			}
		}
	}
	seen := hinted(t, "files", reads)
	for _, r := range mustCompile(t, file).For(policy.Subject{Key: "cora"}).Explain(seen) {
		if r.Unmet != "" {
			t.Errorf("a visible tool lacks %+v", r)
		}
	}
}
