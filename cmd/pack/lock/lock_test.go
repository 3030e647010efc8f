package lock

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"junction/cmd/pack/tree"
)

// TestCheck: an installed pack is refused unless commit and checksum are those of the lock file.
// Other packs are not checked.
func TestCheck(t *testing.T) {
	dir := t.TempDir()
	config, commit := filepath.Join(dir, "config.yaml"), strings.Repeat("a", 40)
	pack := filepath.Join(dir, filepath.FromSlash(Dir("tools", commit)))
	put := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(pack, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want := func(part string) {
		t.Helper()
		_, err := Check(config, "", pack)
		if part == "" && err != nil || part != "" && (err == nil || !strings.Contains(err.Error(), part)) {
			t.Errorf("Check = %v, want %q", err, part)
		}
	}
	if err := os.MkdirAll(filepath.Join(pack, "sub"), 0o700); err != nil {
		t.Fatal(err)
	}
	put("pack.yaml", "x")
	want("that packs.lock does not have")
	sum, err := tree.Sum(pack)
	if err != nil {
		t.Fatal(err)
	}
	l := &File{Version: 1, Packs: map[string]Pack{"tools": {Source: "https://a.example/b", Commit: commit, Checksum: sum}}}
	lock := func() {
		t.Helper()
		if err := l.Write(Path(config)); err != nil {
			t.Fatal(err)
		}
	}
	lock()
	want("")
	put("pack.yaml", "y")
	want("has the checksum sha256:")
	want("packs.lock has " + sum)
	put("pack.yaml", "x")
	put("more.pack.yaml", "")
	want("has the checksum")
	os.Remove(filepath.Join(pack, "more.pack.yaml"))
	want("")
	other := strings.Repeat("b", 40)
	l.Packs["tools"] = Pack{Commit: other, Checksum: sum}
	lock()
	want("has the commit " + commit + ", and packs.lock has " + other)
	l.Packs["tools"] = Pack{Commit: commit}
	lock()
	want("has no checksum")
	for text, part := range map[string]string{"{": "cannot read the lock file", `{"version":2}`: "use a newer junction",
		`{"version":1,"pack":{}}`: "unknown field"} {
		if err := os.WriteFile(Path(config), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		want(part)
	}
	for _, part := range []string{"sub", "pack.yaml"} {
		if _, err := Check(config, "", filepath.Join(pack, part)); err == nil {
			t.Errorf("%s of an installed pack is not refused", part)
		}
	}
	if sum, err := Check(config, "", filepath.Join(dir, "packs", "dev")); sum != "" || err != nil {
		t.Errorf("a pack of one's own: %q, %v", sum, err)
	}
}
