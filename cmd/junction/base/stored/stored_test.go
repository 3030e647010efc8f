package stored

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"junction/auth/authtest"
	"junction/auth/seal"
)

func mustKey(t *testing.T) *seal.Key {
	t.Helper()
	key, err := seal.NewKey(seal.NewSecret())
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func mustOpen(t *testing.T, path string, key *seal.Key) *Dir {
	t.Helper()
	d, err := Open(path, key, authtest.Log(t))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func text(s string) func() []byte { return func() []byte { return []byte(s) } }

func (d *Dir) want(t *testing.T, entry, user, want string) {
	t.Helper()
	if got := string(d.Load(entry, user)); got != want {
		t.Errorf("Load(%q, %q) = %q, want %q", entry, user, got, want)
	}
}

// TestForeignStoredTexts: what one process saves the next one loads; texts of other upstreams do not come
// back.
func TestForeignStoredTexts(t *testing.T) {
	path, key := filepath.Join(t.TempDir(), "a", "b"), mustKey(t)
	d := mustOpen(t, path, key)
	d.Save("up", "", text("everyone's"))
	d.Save("up", "ada", text("Ada's"))
	d.Save("large", "", text(strings.Repeat("x", maxText)))
	d.Save("gone", "", text("soon"))
	d.Delete("gone", "")
	d.want(t, "up", "ada", "Ada's") // written or not
	d.want(t, "gone", "", "")
	d.Close()
	d = mustOpen(t, path, key)
	d.want(t, "up", "", "everyone's")
	d.want(t, "up", "ada", "Ada's")
	d.want(t, "up", "bob", "")
	d.want(t, "large", "", "")
	d.want(t, "gone", "", "")
	d.Close()

	// A file under another name is no text of that name.
	hers, err := os.ReadFile(d.file(k("up", "ada")))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(d.file(k("up", "bob")), hers, 0o600); err != nil {
		t.Fatal(err)
	}
	d.want(t, "up", "bob", "")
	other := mustOpen(t, path, mustKey(t))
	other.want(t, "up", "", "")
	other.Close()

	d.Keep([]string{"up"})
	d.want(t, "up", "ada", "Ada's")
	d.Keep(nil)
	d.want(t, "up", "ada", "")
}

func k(entry, user string) key { return key{entry, user} }

// TestForeignStoredSeldom: a server whose list changes every second is written every ten seconds,
// and at the end.
func TestForeignStoredSeldom(t *testing.T) {
	path, key := t.TempDir(), mustKey(t)
	synctest.Test(t, func(t *testing.T) {
		d := mustOpen(t, path, key)
		made := 0
		last := ""
		for i := range 35 {
			last = time.Duration(i).String()
			now := last
			d.Save("up", "", func() []byte { made++; return []byte(now) })
			time.Sleep(time.Second)
			synctest.Wait()
		}
		if made != 4 {
			t.Errorf("the text was made %d times in 35 seconds, want 4", made)
		}
		d.Close()
		d.want(t, "up", "", last)
	})
}

// TestForeignStoredCrowd: beyond the limit the oldest files go.
func TestForeignStoredCrowd(t *testing.T) {
	d := mustOpen(t, t.TempDir(), mustKey(t))
	for i := range maxFiles + 5 {
		name := d.file(k("up", time.Duration(i).String()))
		if err := os.WriteFile(name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		at := time.Unix(1_000_000+int64(i), 0)
		if err := os.Chtimes(name, at, at); err != nil {
			t.Fatal(err)
		}
	}
	d.Keep([]string{"up"})
	d.Close()
	for i, there := range map[int]bool{0: false, 4: false, 5: true, maxFiles + 4: true} {
		if _, err := os.Stat(d.file(k("up", time.Duration(i).String()))); (err == nil) != there {
			t.Errorf("file %d: %v, want it there: %t", i, err, there)
		}
	}
}
