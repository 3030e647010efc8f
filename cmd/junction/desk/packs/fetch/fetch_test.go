package fetch

import (
	"net/url"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]string{
		"acme/tools":                          "https://github.com/acme/tools ",
		"acme/tools@v1.2.0":                   "https://github.com/acme/tools v1.2.0",
		"acme/to.ols@feature/x":               "https://github.com/acme/to.ols feature/x",
		"https://git.example.com/a/b.git@x+1": "https://git.example.com/a/b.git x+1",
		"https://git.example.com:8443/b":      "https://git.example.com:8443/b ",

		"tools": "no repository", "acme/tools/more": "no repository", "../tools": "no repository",
		"-acme/tools": "no repository", "acme/-x": "no repository", "acme/..": "no repository", "acme/tools ": "no repository",
		"git@github.com:acme/tools": "no repository", "file:///etc": "https only", "http://a.example/b": "https only",
		"ext::sh -c x": "no repository", "https://u:p@a.example/b": "a user or a password", "https://u@a.example/b": "a user or",
		"https://a.example": "no repository", "https://a.example/b?x": "no repository", "https://a.example/\nb": "no URL",
		"acme/tools@": "names no branch", "acme/tools@-x": "no branch", "acme/tools@a:b": "no branch",
		"acme/tools@+a": "no branch", "acme/tools@a..b": "no branch", "acme/tools@a b": "no branch",
		"acme/tools@a^{/x}": "no branch", "acme/tools@@{-1}": "no branch", "acme/tools@x.lock": "no branch",
		"acme/tools@" + strings.Repeat("a", 300): "no branch",
	} {
		s, err := Parse(text)
		got := s.URL + " " + s.Ref
		if err != nil {
			got = err.Error()
		}
		if got != want && (err == nil || !strings.Contains(got, want)) {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}

// TestPaths: names that leave the folder, that mean something to git, a system or a terminal, or that
// are the same on some systems, are refused.
func TestPaths(t *testing.T) {
	for _, bad := range [][]string{
		{"../x"}, {"/x"}, {"a/../b"}, {"a//b"}, {"."}, {".git/config"}, {"a/.GIT/hooks/x"}, {".git. /x"}, {"git~1/x"},
		{`a\b`}, {"c:x"}, {"a\nb"}, {"a\x1b[2J"}, {"a\u202eb"}, {".g\u200cit/x"}, {"A", "a"}, {"a/B", "a/b"}, {"a\xff"},
	} {
		var list []entry
		for _, path := range bad {
			list = append(list, entry{path: path})
		}
		if checkPaths(list) == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
	if err := checkPaths([]entry{{path: "a/b.yaml"}, {path: ".gitignore"}, {path: "ä/…"}, {path: ".github/x"}}); err != nil {
		t.Error(err)
	}
}

// FuzzSource: a source that is accepted is an https URL and a ref that git takes for nothing else.
func FuzzSource(f *testing.F) {
	for _, text := range []string{"acme/tools@v1", "https://a.example/b@c", "https://a.example/b@-c", "a/b@c:d"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := Parse(text)
		if err != nil {
			return
		}
		u, err := url.Parse(s.URL)
		if err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil || strings.ContainsAny(s.URL, " \n") {
			t.Errorf("%q has the URL %q", text, s.URL)
		}
		if strings.HasPrefix(s.Ref, "-") || strings.ContainsAny(s.Ref, ":^~?*[\\ \n@{") {
			t.Errorf("%q has the ref %q", text, s.Ref)
		}
		if again, err := Parse(s.String()); err != nil || again != s {
			t.Errorf("%q becomes %q, and that %+v, %v", text, s, again, err)
		}
		if strings.ContainsAny(s.Name(), "/.@") {
			t.Errorf("%q has the name %q", text, s.Name())
		}
	})
}
