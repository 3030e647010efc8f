package search

import (
	"bufio"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"junction/upstream/raw"
)

// corpus is the tools and questions of testdata.
type corpus struct {
	parts     []Part
	tools     [][]Tool
	ids       [][]string // upstream and name of each tool
	size      int        // of all definitions, in bytes
	questions []question
	unseen    []question // that the ranking was not made with
}

type question struct {
	text     string
	expected []string
}

func mustCorpus(tb testing.TB) *corpus {
	tb.Helper()
	f, err := os.Open("testdata/tools.jsonl.gz")
	if err != nil {
		tb.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		tb.Fatal(err)
	}
	c := &corpus{}
	number := map[string]int{}
	lines := bufio.NewScanner(z)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var line struct {
			Upstream string
			Tool     json.RawMessage
		}
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			tb.Fatal(err)
		}
		o, err := raw.Parse(line.Tool)
		if err != nil {
			tb.Fatal(err)
		}
		own, _ := o.String("name")
		i, known := number[line.Upstream]
		if !known {
			i = len(c.tools)
			number[line.Upstream] = i
			c.tools, c.ids = append(c.tools, nil), append(c.ids, nil)
		}
		c.tools[i] = append(c.tools[i], Tool{exposed(line.Upstream + "__" + own), own, o})
		c.ids[i] = append(c.ids[i], line.Upstream+" "+own)
		c.size += len(line.Tool)
	}
	if lines.Err() != nil {
		tb.Fatal(lines.Err())
	}
	for i := range c.tools {
		c.parts = append(c.parts, part(c.tools[i]))
	}
	c.questions = mustQuestions(tb, "testdata/questions.txt")
	c.unseen = mustQuestions(tb, "testdata/unseen.txt")
	return c
}

// exposed returns the name that clients see by default: at most 48 characters, of which the last ones
// are a hash if the name is cut off.
func exposed(full string) string {
	if len(full) <= 48 {
		return full
	}
	return fmt.Sprintf("%s_%07x", full[:40], sha256.Sum256([]byte(full)))[:48]
}

func mustQuestions(tb testing.TB, file string) (list []question) {
	tb.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		tb.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		q, expected, _ := strings.Cut(strings.TrimSpace(line), "|")
		list = append(list, question{q, strings.Split(expected, ", ")})
	}
	return list
}

// part makes a part of tools that are all visible.
func part(tools []Tool) Part {
	seen := make([]byte, (len(tools)+7)/8)
	for i := range tools {
		seen[i/8] |= 1 << (i % 8)
	}
	return Part{Seen: seen, Index: Build(len(tools), func(i int) (Tool, bool) { return tools[i], true }),
		Names: func(i int) (exposed, own string) {
			if own = tools[i].Own; own == "" {
				_, own, _ = strings.Cut(tools[i].Name, "__")
			}
			return tools[i].Name, own
		}}
}

// recall counts the questions whose expected tool is the first one, or one of the answer, and the bytes
// of the answers.
func (c *corpus) recall(t *testing.T, questions []question) (first, five, answers int) {
	t.Helper()
	for _, q := range questions {
		for _, id := range q.expected {
			if !slices.ContainsFunc(c.ids, func(ids []string) bool { return slices.Contains(ids, id) }) {
				t.Errorf("the question %q expects %q, which is not in the corpus", q.text, id)
			}
		}
		best, _ := Search(c.parts, q.text, DefaultLimit)
		at := slices.IndexFunc(best, func(h Hit) bool { return slices.Contains(q.expected, c.ids[h.Part][h.Place]) })
		if at == 0 {
			first++
		}
		if at >= 0 {
			five++
		}
		var a Answer
		for _, h := range best {
			a.Add(Read, c.tools[h.Part][h.Place].Definition.Text())
		}
		answers += len(a.Text(0, nil))
	}
	return first, five, answers
}

// TestCorpus computes the figures that testdata/README.md publishes, and fails if one is worse.
func TestCorpus(t *testing.T) {
	c := mustCorpus(t)
	readme, err := os.ReadFile("testdata/README.md")
	if err != nil {
		t.Fatal(err)
	}
	published := func(figure string) float64 {
		m := regexp.MustCompile(`(?m)^\| ` + figure + ` \| ([0-9.,]+) \|$`).FindSubmatch(readme)
		if m == nil {
			t.Fatalf("the README publishes no %s", figure)
		}
		v, err := strconv.ParseFloat(strings.ReplaceAll(string(m[1]), ",", ""), 64)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	newFirst, newFive, _ := c.recall(t, c.unseen)
	first, five, answers := c.recall(t, c.questions)
	tools, listed := 0, 0
	for _, p := range c.tools {
		tools += len(p)
	}
	for _, d := range Definitions() {
		listed += len(d)
	}
	n := float64(len(c.questions))
	at1, at5, all, one := float64(first)/n, float64(five)/n, float64(c.size)/4, (float64(listed)+float64(answers)/n)/4
	m := float64(len(c.unseen))
	new1, new5 := float64(newFirst)/m, float64(newFive)/m
	t.Logf("%v unseen questions: recall@1 %.3f, recall@5 %.3f", m, new1, new5)
	if new1 < published("recall@1, unseen") || new5 < published("recall@5, unseen") {
		t.Errorf("recall@1 is %.3f and recall@5 is %.3f for the unseen questions, less than published", new1, new5)
	}
	t.Logf("%d tools, %v questions: recall@1 %.3f, recall@5 %.3f; %.0f tokens of all tools, %.0f of a search", tools, n, at1, at5,
		all, one)
	if tools < 5000 || n < 200 {
		t.Errorf("the corpus has %d tools and %v questions", tools, n)
	}
	if at1 < published("recall@1") || at5 < published("recall@5") {
		t.Errorf("recall@1 is %.3f and recall@5 is %.3f, less than published", at1, at5)
	}
	if all < published("tokens of all definitions") || one > published("tokens of the listed tools and one search") {
		t.Errorf("all definitions have %.0f tokens, and a search %.0f: not as published", all, one)
	}
}
