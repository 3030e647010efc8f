//go:build unix

package sandbox

import (
	"path/filepath"
	"slices"
	"testing"
)

// TestDecidersAreFoundThroughLinks: a command may write below a folder that decides, or above it. It is
// found by each name of the folder, such as that of systemd's StateDirectory with DynamicUser, which is
// a link.
func TestDecidersAreFoundThroughLinks(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	mustLay(t, dir, "lib/private/junction/catalogs/a/", "lib/junction -> private/junction", "lib/private/junction/own/",
		"alias -> lib/junction/catalogs", "plain/")
	at := func(name string) string { return filepath.Join(dir, name) }
	list := Deciders{
		{What: "the catalogs", Path: at("lib/junction/catalogs"), Inside: true},
		{What: "a key", Path: at("lib/junction/key")},
	}
	for write, want := range map[string][]string{
		"lib/junction/catalogs/a":         {"the catalogs"},
		"lib/private/junction/catalogs/a": {"the catalogs"},
		"lib/junction/catalogs/none":      {"the catalogs"},
		"alias/a":                         {"the catalogs"},
		"alias":                           {"the catalogs"},
		"lib/private":                     {"the catalogs", "a key"},
		"lib/junction":                    {"the catalogs", "a key"},
		"lib/junction/own":                nil,
		"lib/private/junction/own":        nil,
		"plain":                           nil,
	} {
		var got []string
		for _, d := range list.In([]string{at(write)}) {
			got = append(got, d.What)
		}
		if !slices.Equal(got, want) {
			t.Errorf("a command that writes in %s changes %q, want %q", write, got, want)
		}
	}
}
