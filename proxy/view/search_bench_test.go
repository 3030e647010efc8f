package view

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"os"
	"testing"
	"time"

	"junction/policy"
	"junction/proxy/search"
	"junction/upstream"
	"junction/upstream/client"
	"junction/upstream/raw"
)

// BenchmarkSearchAnswer10000 answers search_tools from 10,000 tools of ten upstreams, of which a policy
// denies some. The tools are those of the corpus of package search, some of them twice.
func BenchmarkSearchAnswer10000(b *testing.B) {
	var definitions []json.RawMessage
	for len(definitions) < 10_000 {
		f, err := os.Open("../search/testdata/tools.jsonl.gz")
		if err != nil {
			b.Fatal(err)
		}
		z, err := gzip.NewReader(f)
		if err != nil {
			b.Fatal(err)
		}
		lines := bufio.NewScanner(z)
		for lines.Buffer(nil, 1<<20); lines.Scan() && len(definitions) < 10_000; {
			var line struct{ Tool json.RawMessage }
			if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
				b.Fatal(err)
			}
			definitions = append(definitions, line.Tool)
		}
		f.Close()
	}
	var stocks []*Stock
	for i := range 10 {
		c := &upstream.Catalog{Listed: time.Now()}
		for k, text := range definitions[i*1000 : (i+1)*1000] {
			o, err := raw.Parse(text)
			if err != nil {
				b.Fatal(err)
			}
			own, _ := o.String("name")
			c.Tools = append(c.Tools, upstream.Tool{Item: upstream.Item{Name: fmt.Sprintf("%s_%d", own, k), Definition: o}})
		}
		stocks = append(stocks, NewStock(&canned{name: fmt.Sprintf("up%d", i), catalog: c}, c, StockSettings{Names: Names{}.WithDefaults()}))
	}
	v := Compile("", stocks, false, nil)
	p := compiledPolicy(b, policy.Config{{Name: "p", Rules: []policy.Rule{deny(tools("*delete*")), allow(all())}}})
	seen := NewSubjectView(v, p.For(policy.Subject{}), nil, nil).Sight()
	k := v.Kind(upstream.PartTools, client.EraModern, client.Profile{})
	queries := []string{"create an issue", "list the alerts of a repository", "which users are in this group?",
		"update the settings of a synthetic browser test", "rotate the secret of a webhook endpoint"}
	seen.Search(k, "x", 1) // makes the index
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if len(seen.SearchAnswer(k, search.Query{Text: queries[i%len(queries)], Limit: search.DefaultLimit}, asIs)) < 100 {
			b.Fatal("nothing is found")
		}
	}
}

func asIs(definition []byte) ([]byte, bool) { return definition, true }
