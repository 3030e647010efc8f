package folder

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func uriOf(path string) string {
	path = filepath.ToSlash(path)
	if !strings.HasPrefix(path, "/") { // a drive of Windows
		path = "/" + path
	}
	return (&url.URL{Scheme: "file", Path: path}).String()
}

// TestRootsOfAClient takes the permitted folders, and leaves out what is no folder of this machine.
func TestRootsOfAClient(t *testing.T) {
	dir := mustFolder(t, t.TempDir())
	src := mustFolder(t, dir, "src")
	shop, blog, outside := mustFolder(t, src, "my shop"), mustFolder(t, src, "blog"), mustFolder(t, dir, "outside")
	file := filepath.Join(src, "file")
	must(t, os.WriteFile(file, nil, 0o600))
	g := New(Rules{Within: []string{src}})
	for what, test := range map[string]struct {
		uris []string
		want []string
		err  string
	}{
		"one":                      {[]string{uriOf(shop)}, []string{shop}, ""},
		"two, one of them twice":   {[]string{uriOf(shop), uriOf(blog), uriOf(shop) + "/"}, []string{shop, blog}, ""},
		"a remote one first":       {[]string{"https://example.com/x", uriOf(blog)}, []string{blog}, ""},
		"others left out":          {[]string{uriOf(blog), uriOf(outside), "vscode:x", uriOf(file), uriOf(src + "/missing")}, []string{blog}, ""},
		"others of no folder here": {[]string{uriOf(blog), "file:///C:/shop/..", "file://server/shop", "file:///%00", "", "/home/u"}, []string{blog}, ""},
		"the first one outside":    {[]string{uriOf(outside), uriOf(blog)}, nil, "outside the permitted folders"},
		"the first one missing":    {[]string{uriOf(src + "/missing"), uriOf(blog)}, nil, "does not exist"},
		"the first one a file":     {[]string{uriOf(file)}, nil, "is a file"},
		"none":                     {nil, nil, "the client has no root"},
		"only remote ones":         {slices.Repeat([]string{"https://example.com/x"}, 10000), nil, `the root "https://example.com/x": it is no URI`},
		"a long one":               {[]string{"file:///" + strings.Repeat("a", 1<<20)}, nil, "1048584 bytes"},
	} {
		set, err := g.AdmitRoots(t.Context(), "local", test.uris)
		var got []string
		for _, place := range set {
			got = append(got, place.Path())
		}
		if !slices.Equal(got, test.want) || (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
			t.Errorf("%s: %q, %v; want %q, %q", what, got, err, test.want, test.err)
		}
		if err != nil && len(err.Error()) > 2000 {
			t.Errorf("%s: the error has %d bytes", what, len(err.Error()))
		}
	}
}

// TestRootsAreBounded names 10,000 folders: the first 64 count, and no more than 256 are looked at.
func TestRootsAreBounded(t *testing.T) {
	dir := mustFolder(t, t.TempDir())
	var uris []string
	for i := range 10000 {
		if i < 100 {
			mustFolder(t, dir, fmt.Sprint(i))
		}
		uris = append(uris, uriOf(filepath.Join(dir, fmt.Sprint(i))))
	}
	asked := 0
	g := New(Rules{Within: []string{dir}}).Narrowed(func(string) bool { asked++; return true })
	set, err := g.AdmitRoots(t.Context(), "local", uris)
	if err != nil || len(set) != maxSet {
		t.Errorf("%d folders, %v", len(set), err)
	}
	asked = 0
	set, err = g.AdmitRoots(t.Context(), "local", append(uris[:1:1], uris[200:]...))
	if err != nil || len(set) != 1 || asked > maxNamed {
		t.Errorf("%d folders, %v; %d were looked at", len(set), err, asked)
	}
	deep := dir
	for range 10 {
		deep = mustFolder(t, deep, strings.Repeat("d", 100))
	}
	uris = nil
	for i := range 40 {
		uris = append(uris, uriOf(mustFolder(t, deep, fmt.Sprint(i))))
	}
	set, err = g.AdmitRoots(t.Context(), "local", uris)
	bytes := 0
	for _, place := range set {
		bytes += len(place.Path())
	}
	if err != nil || len(set) == 0 || len(set) == 40 || bytes > maxSetBytes {
		t.Errorf("%d folders with %d bytes, %v", len(set), bytes, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range most { // so that the next one waits
		_, err := g.opening.begin(t.Context(), "busy")
		must(t, err)
	}
	if _, err := g.AdmitRoots(ctx, "busy", uris); !errors.Is(err, context.Canceled) {
		t.Errorf("a client that has gone: %v", err)
	}
}

// TestSetKeys: the first folder counts apart, and the order of the others does not.
func TestSetKeys(t *testing.T) {
	dir := mustFolder(t, t.TempDir())
	g := New(Rules{Within: []string{dir}})
	set := func(names ...string) Set {
		var uris []string
		for _, name := range names {
			uris = append(uris, uriOf(mustFolder(t, dir, name)))
		}
		s, err := g.AdmitRoots(t.Context(), "local", uris)
		must(t, err)
		return s
	}
	if set("a", "b", "c").Key() != set("a", "c", "b").Key() {
		t.Error("the order of the others counts")
	}
	seen := map[string]bool{Set(nil).Key(): true}
	for _, s := range []Set{set("a"), set("b"), set("a", "b"), set("b", "a"), set("a", "b", "c")} {
		if seen[s.Key()] {
			t.Errorf("the key of %v is that of another set", s)
		}
		seen[s.Key()] = true
	}
}
