package foreign

import (
	"fmt"
	"slices"
	"testing"

	"junction/integration/harness"
	"junction/integration/harness/npm"
)

// TestConformanceTwice runs the scored scenarios of 2025-11-25 against a command without a line in
// the file. The first tool that asks fails, and teaches Junction that legacy clients need a second
// process. Everything later passes, also in a second run.
func TestConformanceTwice(t *testing.T) {
	harness.Long(t)
	harness.WithoutShort(t)
	defer harness.Computes(t)()
	npm.MustFolder(t)
	p := harness.MustProgram(t, fmt.Sprintf("upstreams:\n  default: {command: [%q]}\n", mustBuildReference(t)))
	if u := p.MustReady(t, harness.Patience).Upstreams[0]; u.Era != "modern" {
		t.Fatalf("upstream %+v, want the modern era", u)
	}
	scored := scenarios(t, harness.LegacyVersion, "server")
	if len(scored) != 30 {
		t.Fatalf("%d scenarios, want 30", len(scored))
	}
	for run, want := range [][]string{{"tools-call-sampling"}, nil} {
		c := mustConform(t, "server", "--url", p.URL+"/default", "--requirements", harness.LegacyVersion)
		var failed []string
		for _, scenario := range scored {
			verdicts := c.found[scenario]
			if len(verdicts) == 0 || slices.ContainsFunc(verdicts, func(v verdict) bool { return v.Status == "FAILURE" }) {
				failed = append(failed, scenario)
			}
		}
		if !slices.Equal(failed, want) && len(p.Others) == 0 {
			t.Errorf("in run %d %q failed, want %q:\n%.4000s", run+1, failed, want, c.summary())
		}
	}
}
