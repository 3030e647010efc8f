package clients

import (
	"slices"
	"testing"
)

// TestTellApart: what several entries of one program have alone is shown, and no secret is.
func TestTellApart(t *testing.T) {
	entry := func(g Given) *Entry {
		t.Helper()
		e, err := g.Entry(Home{}, "/config.yaml")
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	files := func(args ...string) Given {
		return Given{Command: append([]string{"npx", "-y", "server-filesystem"}, args...)}
	}
	region := files("/srv/a")
	region.Env = map[string]string{"REGION": "eu", "API_KEY": "canary-of-ann-0123456789"}
	other := files("/srv/a")
	other.Env = map[string]string{"API_KEY": "canary-of-ben-0123456789"}
	for name, test := range map[string]struct {
		list []Given
		want []string
	}{
		"one alone":  {[]Given{files("/srv/a")}, []string{""}},
		"the same":   {[]Given{files("/srv/a"), files("/srv/a")}, []string{"", ""}},
		"folders":    {[]Given{files("--ro", "/srv/a"), files("--ro", "/srv/b b")}, []string{"/srv/a", "'/srv/b b'"}},
		"one has it": {[]Given{files("/srv/a"), files("/srv/a", "--write")}, []string{"", "--write"}},
		"variables":  {[]Given{region, other}, []string{"REGION=…", ""}},
		"queries": {[]Given{{URL: "https://a.example.com/mcp?project=one"}, {URL: "https://a.example.com/mcp?project=two"}},
			[]string{"?project=one", "?project=two"}},
		"folders to run in": {[]Given{{Command: []string{"mcp"}, Dir: "/a"}, {Command: []string{"mcp"}, Dir: "/b"}},
			[]string{"in /a", "in /b"}},
	} {
		var list []*Entry
		for _, g := range test.list {
			list = append(list, entry(g))
		}
		if got := TellApart(list); !slices.Equal(got, test.want) {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}
