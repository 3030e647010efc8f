package upstream

import (
	"fmt"
	"strings"
	"testing"

	"junction/upstream/client"
)

// BenchmarkDefinitions reads a page of 10,000 tools as real servers define them.
func BenchmarkDefinitions(b *testing.B) {
	var properties []string
	for i := range 8 {
		properties = append(properties, fmt.Sprintf(`"argument%d":{"type":"string","description":"%s"}`, i, strings.Repeat("what it is ", 6)))
	}
	schema := `{"type":"object","properties":{` + strings.Join(properties, ",") + `},"required":["argument0","argument1"],"additionalProperties":false}`
	var tools [][]byte
	for i := range 10_000 {
		tools = append(tools, fmt.Appendf(nil, `{"name":"tool%d","title":"Tool","description":"%s","inputSchema":%s,"outputSchema":%s,"annotations":{"readOnlyHint":true}}`,
			i, strings.Repeat("It does this. ", 10), schema, schema))
	}
	b.ReportAllocs()
	for b.Loop() {
		c := &Catalog{Era: client.EraLegacy}
		c.index[PartTools] = map[string]int{}
		for _, t := range tools {
			c.add(PartTools, t, 0)
		}
		if len(c.Tools) != len(tools) {
			b.Fatalf("%d tools are listed, want %d", len(c.Tools), len(tools))
		}
	}
}
