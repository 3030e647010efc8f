package search

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"junction/upstream/raw"
)

func mustTool(tb testing.TB, name, definition string) Tool {
	tb.Helper()
	o, err := raw.Parse([]byte(definition))
	if err != nil {
		tb.Fatalf("%.100s: %v", definition, err)
	}
	return Tool{Name: name, Definition: o}
}

func TestWords(t *testing.T) {
	for _, test := range []struct{ text, want string }{
		{"create_issue", "creat issu"},
		{"createIssue", "creat createissu issu"},
		{"list-HTTPServers.now", "list http httpserver server now"},
		{"GitHub's API", "git github hub api"},
		{"Deleting the policies, stopped boxes", "delet policy stop box"},
		{"Größe ÄNDERN é", "größe ändern é"},
		{"文件 検索する", "文 件 検 索 す る"},
		{"s3 oauth2 v1.2", "s3 oauth2 v1 2"},
		{"\u202e\x00\xff _ --", ""},
		{strings.Repeat("ü", 40), strings.Repeat("ü", 12)},
		{"status address is", "status address"},
	} {
		if got := strings.Join(slices.Collect(Words(test.text)), " "); got != test.want {
			t.Errorf("the words of %q are %q, want %q", test.text, got, test.want)
		}
	}
}

// TestNamesComeFirst searches for names. A tool of that name comes first although others have the
// words more often, then the tools whose names begin so.
func TestNamesComeFirst(t *testing.T) {
	p := part([]Tool{
		mustTool(t, "a__search", `{"description":"issue issue issue create issue issue"}`),
		mustTool(t, "a__create_issue_comment", `{"description":"x"}`),
		mustTool(t, "a__create_issue", `{"description":"x"}`),
		mustTool(t, "a__createIssues", `{"description":"issues issues"}`),
	})
	names := func(query string) (names []string) {
		best, _ := Search([]Part{p}, query, 10)
		for _, h := range best {
			exposed, _ := p.Names(h.Place)
			names = append(names, exposed)
		}
		return names
	}
	for query, first := range map[string][]string{
		"create_issue":            {"a__create_issue", "a__createIssues", "a__create_issue_comment", "a__search"},
		"A Create-Issue":          {"a__create_issue", "a__createIssues", "a__create_issue_comment", "a__search"},
		"please use a__search":    {"a__search"},
		"call `createIssues` now": {"a__createIssues"},
		"create iss":              {"a__create"},
	} {
		if got := names(query); !strings.HasPrefix(strings.Join(got, " "), strings.Join(first, " ")) {
			t.Errorf("%q finds %q, want first %q", query, got, first)
		}
	}
}

// TestWholeNamesAreFound: the words of a tool's own name count where its exposed name is cut off, as much
// as those of the exposed name.
func TestWholeNamesAreFound(t *testing.T) {
	cut := mustTool(t, "github__orgs_set-permissions-for-all-_abcdefg", `{}`)
	cut.Own = "orgs_set-permissions-for-all-members-of-quarantined-repositories"
	other := mustTool(t, "u__other", `{"description":"quarantined"}`)
	p := part([]Tool{other, cut})
	if best, total := Search([]Part{p}, "quarantined", 5); total != 2 || best[0].Place != 1 {
		t.Errorf("found are %v of %d, want the tool with the word in its name first", best, total)
	}
	whole := mustTool(t, "u__list_boxes", `{}`)
	again := whole
	again.Own = "list_boxes"
	one, _ := Search([]Part{part([]Tool{whole, other})}, "boxes", 5)
	two, _ := Search([]Part{part([]Tool{again, other})}, "boxes", 5)
	if one[0].score != two[0].score {
		t.Errorf("a name that is not cut off counts %v with the own name, and %v without", two[0].score, one[0].score)
	}
}

// TestUnseenToolsDoNotCount compares searches of random tools, of which some are hidden, with
// searches of the others alone: ranks, scores and totals are the same, also for the name of a tool.
func TestUnseenToolsDoNotCount(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 7))
	words := strings.Fields("create delete list issue branch comment user file page query secret team role log metric")
	for range 300 {
		var all, visible []Tool
		var seen []byte
		for i := range 40 {
			text := make([]string, 1+random.IntN(8))
			for k := range text {
				text[k] = words[random.IntN(len(words))]
			}
			tool := mustTool(t, fmt.Sprintf("u__%s_%d", text[0], i), `{"description":"`+strings.Join(text, " ")+`"}`)
			if all = append(all, tool); i%8 == 0 {
				seen = append(seen, 0)
			}
			if random.IntN(2) == 0 {
				seen[i/8] |= 1 << (i % 8)
				visible = append(visible, tool)
			}
		}
		some, only := part(all), part(visible)
		some.Seen = seen
		query := words[random.IntN(len(words))] + " " + words[random.IntN(len(words))]
		if random.IntN(3) == 0 {
			query = all[random.IntN(len(all))].Name
		}
		got, n := Search([]Part{some}, query, 10)
		want, m := Search([]Part{only}, query, 10)
		if n != m || len(got) != len(want) {
			t.Fatalf("%q matches %d tools, and %d without the hidden ones", query, n, m)
		}
		for i := range got {
			if a, b := all[got[i].Place].Name, visible[want[i].Place].Name; a != b || got[i].score != want[i].score {
				t.Errorf("hit %d of %q is %s (%v), without hidden tools %s (%v)", i, query, a, got[i].score, b, want[i].score)
			}
		}
	}
}

// TestUnseenWordsTakeNoPlace searches for the beginning of a word. Many words of hidden tools begin
// so, too, and come first in the index.
func TestUnseenWordsTakeNoPlace(t *testing.T) {
	tools := []Tool{mustTool(t, "u__visible", `{"description":"repositories"}`)}
	for i := range 10 * maxExpansions {
		tools = append(tools, mustTool(t, fmt.Sprintf("u__hidden_%d", i), fmt.Sprintf(`{"description":"repo%dx"}`, i)))
	}
	some, only := part(tools), part(tools[:1])
	some.Seen = make([]byte, len(some.Seen))
	some.Seen[0] = 1
	for _, query := range []string{"repo", "repos", "rep"} {
		got, n := Search([]Part{some}, query, 10)
		want, m := Search([]Part{only}, query, 10)
		if n != 1 || m != 1 || got[0].score != want[0].score {
			t.Errorf("%q matches %d tools (%v), and %d without the hidden ones (%v)", query, n, got, m, want)
		}
	}
}

// TestLargeQuery: each word of a query that may be a name is compared with all names, so that a query
// has a limit, and words beyond it do not count.
func TestLargeQuery(t *testing.T) {
	p := part([]Tool{mustTool(t, "u__fetch", `{}`), mustTool(t, "u__last", `{}`)})
	first := func(words int) string {
		best, _ := Search([]Part{p}, strings.Repeat("no_name ", words)+"u__last", 1)
		if len(best) == 0 || best[0].rank != nameExact {
			return ""
		}
		name, _ := p.Names(best[0].Place)
		return name
	}
	if got := first(maxQuery - 1); got != "u__last" {
		t.Errorf("the last word that counts finds %q", got)
	}
	if got := first(maxQuery); got != "" {
		t.Errorf("a word beyond the limit finds %q", got)
	}
	parse := func(n int) error {
		_, err := ParseQuery(mustTool(t, "", `{"query":"`+strings.Repeat("x", n)+`"}`).Definition)
		return err
	}
	if err := parse(maxQueryText); err != nil {
		t.Error(err)
	}
	const want = "the query of search_tools has 2001 bytes, more than 2000; send only the words that describe the task"
	if err := parse(maxQueryText + 1); err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// TestHostileDefinitions indexes definitions that want to be large, to break the index, or to be
// found by everything. Each stays small, and other tools are found.
func TestHostileDefinitions(t *testing.T) {
	var unlike strings.Builder
	for i := range 200_000 {
		fmt.Fprintf(&unlike, "w%dx ", i)
	}
	properties := make([]string, 5000)
	for i := range properties {
		properties[i] = fmt.Sprintf(`"p%d":{"description":"detail%d"}`, i, i)
	}
	tools := []Tool{
		mustTool(t, "u__large", `{"description":"`+unlike.String()+`"}`),
		mustTool(t, "u__spam", `{"description":"`+strings.Repeat("weather ", 100_000)+`"}`),
		mustTool(t, "u__properties", `{"inputSchema":{"properties":{`+strings.Join(properties, ",")+`}}}`),
		mustTool(t, "u__one_word", `{"description":"`+strings.Repeat("x", 1<<20)+`"}`),
		mustTool(t, "u__types", `{"title":7,"description":["a"],"inputSchema":true,"annotations":"x"}`),
		mustTool(t, "u__twice", `{"description":"a","description":"b","inputSchema":{"properties":{"q":1,"q":{"title":2}}}}`),
		mustTool(t, "u__\xff\x00", `{"description":"\ud800 \u0000 \u202e"}`),
		mustTool(t, "u__weather_forecast", `{"description":"The weather of tomorrow"}`),
	}
	p := part(tools)
	if n := p.Index.Bytes(); n > len(tools)*6000 {
		t.Errorf("the index has %d bytes", n)
	}
	best, total := Search([]Part{p}, "weather of tomorrow", 5)
	if total != 2 || tools[best[0].Place].Name != "u__weather_forecast" {
		t.Errorf("found are %v of %d", best, total)
	}
	for _, query := range []string{"types", "twice", "p4 detail", "", "\xff", strings.Repeat("weather ", 1<<17)} {
		Search([]Part{p}, query, 5)
	}
	Search(nil, "weather", 5)
}

// TestBoundsOfTexts: neither the end of a very long description nor that of a very long query counts.
func TestBoundsOfTexts(t *testing.T) {
	p := part([]Tool{mustTool(t, "u__a", `{"description":"`+strings.Repeat("the ", 4<<10)+`zebra"}`),
		mustTool(t, "u__b", `{"description":"gnu"}`)})
	for query, want := range map[string]int{"zebra": 0, "gnu": 1, strings.Repeat("x ", 19) + "gnu": 1,
		strings.Repeat("x ", 20) + "gnu": 0} {
		if _, total := Search([]Part{p}, query, 5); total != want {
			t.Errorf("%q finds %d tools, want %d", query, total, want)
		}
	}
}

func FuzzWords(f *testing.F) {
	f.Add("createIssue_in-HTTPServer 文件 \xff\u00e9")
	f.Fuzz(func(t *testing.T, text string) {
		for word := range Words(text) {
			if word == "" || len(word) > 2*maxWord || utf8.ValidString(text) && !utf8.ValidString(word) {
				t.Errorf("%q has the word %q", text, word)
			}
		}
		tool := Tool{Name: "u__" + text}
		p := part([]Tool{tool})
		if _, total := Search([]Part{p}, text, 1); total != 1 && plain(text) != "" {
			t.Errorf("a tool of the name %q is not found by it", text)
		}
	})
}

// many returns 10,000 tools of the corpus, some of them twice.
func many(b *testing.B) *corpus {
	c := mustCorpus(b)
	n, parts := 0, len(c.parts)
	for i := range parts {
		n += len(c.tools[i])
	}
	for i := range parts {
		tools := c.tools[i][:min(len(c.tools[i]), 10_000-n)]
		if n += len(tools); len(tools) > 0 {
			c.parts, c.tools = append(c.parts, part(tools)), append(c.tools, tools)
		}
	}
	if n != 10_000 {
		b.Fatalf("there are %d tools", n)
	}
	return c
}

// BenchmarkSearch10000 searches 10,000 tools for the questions of the corpus in turns.
func BenchmarkSearch10000(b *testing.B) {
	c := many(b)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		Search(c.parts, c.questions[i%len(c.questions)].text, DefaultLimit)
	}
}

// BenchmarkBuild10000 builds the indexes of 10,000 tools, and measures the memory that they keep.
func BenchmarkBuild10000(b *testing.B) {
	c := many(b)
	c.parts = nil
	heap := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before, indexes := heap(), make([]*Index, len(c.tools))
	for b.Loop() {
		for i, tools := range c.tools {
			indexes[i] = Build(len(tools), func(k int) (Tool, bool) { return tools[k], true })
		}
	}
	counted := 0
	for _, x := range indexes {
		counted += x.Bytes()
	}
	b.ReportMetric(float64(heap()-before)/10_000, "heap-B/tool")
	b.ReportMetric(float64(counted)/10_000, "B/tool")
	runtime.KeepAlive(indexes)
	runtime.KeepAlive(c)
}

// Bytes returns the memory of the index, in bytes.
func (x *Index) Bytes() int {
	return 150 + 2*cap(x.lengths) + len(x.terms) + 4*cap(x.begin) + 4*cap(x.at) + cap(x.postings)
}
