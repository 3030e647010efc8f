package definition

import (
	"fmt"
	"strings"
	"testing"
)

// checksOf returns the outcome of all checks that are bounded.
func checksOf(t *testing.T, text string, work *Work) string {
	t.Helper()
	o, err := Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	mended, changes, loose := MendSchemas(o, work)
	schema, _ := mended.Get("inputSchema")
	params, err := Headers(schema, work)
	older, all := Older(mended, changes, true, work)
	return fmt.Sprintf("%s %q %q %v %v %q %q", mended.Text(), changes, loose, params, err, older, all)
}

// TestBoundedChecksHaveTheSameOutcome: with just enough steps, each check has the outcome that it has without a
// bound. With one step fewer, it says that it is over.
func TestBoundedChecksHaveTheSameOutcome(t *testing.T) {
	deep := strings.Repeat(`{"anyOf":[{"items":`, 10) + `{"type":["string","text"]}` + strings.Repeat(`}]}`, 10)
	for _, schema := range []string{
		`{"type":"object"}`,
		`{"type":"object","properties":{"a":{"pattern":"["},"b":{"pattern":"(?i)["},"c":{"pattern":"[^]("},"d":{"pattern":"\\pL(x"}}}`,
		`{"type":"object","patternProperties":{"(":{},"^a$":{"required":["a","a",1]}},"dependencies":{"a":["b"],"c":7}}`,
		`{"type":"object","properties":{"a":` + deep + `,"b":{"$ref":"#/properties/a"},"c":{"$ref":"#/properties/none"}}}`,
		`{"type":"object","$defs":{"a":{"$ref":"#/$defs/a/b"}},"properties":{"a":{"enum":[]},"b":{"type":"string","x-mcp-header":"B"}}}`,
		`{"type":"object","allOf":[{"x-mcp-header":"A"}],"properties":{"a":true,"b":{"x-mcp-header":"b","type":"number"}}}`,
	} {
		text := `{"name":"a","inputSchema":` + schema + `,"outputSchema":` + schema + `}`
		want, work := checksOf(t, text, nil), NewWork(1<<30)
		if got := checksOf(t, text, work); got != want || work.Over() || work.Done() < len(schema) {
			t.Errorf("%s: in %d steps (over: %t) the outcome is\n%s\nwant\n%s", schema, work.Done(), work.Over(), got, want)
		}
		exact := NewWork(work.Done())
		if got := checksOf(t, text, exact); got != want || exact.Over() {
			t.Errorf("%s: %d steps do not suffice: %s", schema, work.Done(), got)
		}
		if less := NewWork(work.Done() - 1); checksOf(t, text, less) == "" || !less.Over() {
			t.Errorf("%s: %d steps suffice, although it takes %d", schema, work.Done()-1, work.Done())
		}
	}
}

// TestStepsGrowWithThePatterns: the steps of a check are at least what its patterns cost.
func TestStepsGrowWithThePatterns(t *testing.T) {
	for _, pattern := range []string{`[a-z]`, `\\pL`, `[\\PL\\pN]`} {
		work := NewWork(1 << 30)
		checksOf(t, `{"inputSchema":{"type":"object","properties":{"a":{"pattern":"`+strings.Repeat(pattern, 100)+`"}}}}`, work)
		classes := 100 * (strings.Count(pattern, "p") + strings.Count(pattern, "P"))
		if work.Done() < classes*patternClass+100*patternByte || work.Over() {
			t.Errorf("100 times %s take %d steps", pattern, work.Done())
		}
	}
}
