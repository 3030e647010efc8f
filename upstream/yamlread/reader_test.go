package yamlread

import (
	"reflect"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"
)

// sample is a decoder of a small kind of file.
type sample struct {
	Reader
	marked []string
}

type sampleFile struct {
	Name  string            `yaml:"name"`
	Words []string          `yaml:"words" example:"[a, b]"`
	More  map[string]string `yaml:"more"`
}

func readSample(text string) (sampleFile, *sample) {
	var f sampleFile
	s := &sample{}
	s.Reader = Reader{File: "f.yaml", Mark: func(path string) { s.marked = append(s.marked, path) },
		Unknown: func(path string, p Pair, _ reflect.Type) { s.At(p.Line, Join(path, p.Key), "unknown") },
		Conceal: func(path, text string) (string, string) { return path, strings.ReplaceAll(text, "hidden", "…") },
		Key:     func(_ string, _ int, key string) bool { return key != "secret" },
		Value: func(path string, n *yaml.Node, v reflect.Value) bool {
			if n = s.Enter(n); n == nil {
				return false
			}
			if v.Kind() != reflect.String {
				return s.Walk(path, n, v)
			}
			if n.Kind != yaml.ScalarNode {
				s.Bad(path, "must be text, not %s", Kind(n))
			}
			v.SetString(n.Value)
			return n.Kind == yaml.ScalarNode
		}}
	if n, _ := s.Parse([]byte(text)); n != nil {
		s.Value("", n, reflect.ValueOf(&f).Elem())
		s.TooLarge()
	}
	return f, s
}

// TestReader: each mistake has its line and its path, and what is well-formed is read.
func TestReader(t *testing.T) {
	for _, test := range []struct{ text, want string }{
		{"name: a\nwords: [b, c]\nmore: { d: e }\n", ""},
		{"# nothing\n", ""},
		{"name: a\nmore: { a: b }\nname: b\n", "f.yaml:3: name: is given a second time, first on line 1; keep one"},
		{"other: 1\nwords:\n", "f.yaml:1: other: unknown"},
		{"words: b\n", "f.yaml:1: words: must be a list, such as [a, b], not text"},
		{"more: [hidden]\n", "f.yaml:1: more: must be a mapping (name: value), not a list"},
		{"name: [hidden]\nsecret: b\n", "f.yaml:1: name: must be text, not a list"},
		{"more: &m { <<: *m, a: b }\n", ""}, // a mapping that merges itself
		{"more: { <<: 1 }\n", "f.yaml:1: more: must be a mapping after <<, not a number"},
		{"name: a\n---\nname: b\n", "f.yaml:2: begins a second document; remove the --- and what follows, or merge it " +
			"into the first"},
		{"name: \xff\n", "f.yaml:1: is not UTF-8 text; save the file as UTF-8"},
		{"name: {{a}} b\n", "{{…}}"},
		{"? [a]\n: b\n", "f.yaml:1: has a key that is a list; write plain text before the colon"},
	} {
		_, s := readSample(test.text)
		if got := s.Problems.Error(); got != test.want && (test.want != "{{…}}" || !strings.Contains(got, test.want)) {
			t.Errorf("%q: %s\nwant %s", test.text, got, test.want)
		}
	}
	f, s := readSample("name: a\nwords: [b, c]\nmore: { <<: { d: x, f: g }, d: e }\n")
	if want := (sampleFile{Name: "a", Words: []string{"b", "c"}, More: map[string]string{"d": "e", "f": "g"}}); !reflect.DeepEqual(f, want) ||
		s.Lines["words[1]"] != 2 || s.Lines["more.f"] != 3 {
		t.Errorf("read %+v, lines %v", f, s.Lines)
	}
	if _, s := readSample("more:\n  a: [b]\n"); len(s.marked) != 1 || s.marked[0] != "more.a" {
		t.Errorf("marked are %q", s.marked)
	}
}

// TestReaderIsBounded: aliases make a small file large, by values and by texts.
func TestReaderIsBounded(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	for want, text := range map[string]string{
		"f.yaml:1: has more than 100000 values when its aliases are followed; use fewer aliases": "words: [" + strings.Repeat("c, ", MaxValues) + "d]\n",
		"f.yaml:1: has more than 16 MiB of keys and texts when its aliases are followed; use fewer aliases": "name: &n " + long +
			"\nwords: [" + strings.Repeat("*n, ", 20) + "c]\n",
	} {
		if _, s := readSample(text); s.Problems.Error() != want {
			t.Errorf("%.200s, want %s", s.Problems.Error(), want)
		}
	}
}
