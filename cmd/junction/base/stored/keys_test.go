package stored

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// follow reads the memory of a file anew, as after a restart, and follows keys of these names, whose hashes
// are their names.
func follow(t *testing.T, dir string, now time.Time, keys ...Key) (back []string) {
	t.Helper()
	k, err := OpenKeys(dir, "config.yaml")
	if err != nil {
		t.Fatal(err)
	}
	list, err := k.Follow(keys, now)
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range list {
		back = append(back, keys[b.Key].Name+" "+b.Since.Format(time.TimeOnly))
	}
	return back
}

// TestKeysThatAreBackAreNoticed tells the days of a team: each step is a start of its own, so that nothing is
// remembered but by the file.
func TestKeysThatAreBackAreNoticed(t *testing.T) {
	dir, day := t.TempDir(), time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	ann, ben := Key{Hash: "a", Name: "ann"}, Key{Hash: "b", Name: "ben"}
	meant := func(k Key, hour int) Key { k.Restored = day.Add(time.Duration(hour) * time.Hour); return k }
	renamed := ben
	renamed.Name = "benjamin"
	for i, step := range []struct {
		what string
		keys []Key
		want []string
	}{
		{"the first start", []Key{ann, ben}, nil},
		{"nothing changed", []Key{ann, ben}, nil},
		{"ben has another name", []Key{ann, renamed}, nil},
		{"ben leaves", []Key{ann}, nil},
		{"the old file is back", []Key{ann, ben}, []string{"ben 15:00:00"}},
		{"and stays", []Key{ben, ann}, []string{"ben 15:00:00"}},
		{"a confirmation from before the revocation", []Key{ann, meant(ben, 2)}, []string{"ben 15:00:00"}},
		{"a confirmation of a far day", []Key{ann, meant(ben, 999)}, []string{"ben 15:00:00"}},
		{"an operator confirms it", []Key{ann, meant(ben, 8)}, nil},
		{"and removes the line", []Key{ann, ben}, nil},
		{"ben leaves again", []Key{ann}, nil},
		{"the confirmed file is back", []Key{ann, meant(ben, 8)}, []string{"ben 22:00:00"}},
		{"everybody leaves", nil, nil},
	} {
		got := follow(t, dir, day.Add(time.Duration(i)*time.Hour), step.keys...)
		if !slices.Equal(got, step.want) {
			t.Errorf("%s: back are %q, want %q", step.what, got, step.want)
		}
	}
}

// TestKeysForgetTheOldest: the memory has a bound, which a key that is back does not count for.
func TestKeysForgetTheOldest(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	k, err := OpenKeys("", "config.yaml")
	if err != nil {
		t.Fatal(err)
	}
	key := func(i int) Key { return Key{Hash: fmt.Sprintf("%04d", i), Name: "ci"} }
	for i := range 2 * maxRevoked {
		if _, err := k.Follow([]Key{key(i)}, now.Add(time.Duration(i)*time.Second)); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(k.has.Revoked); n != maxRevoked {
		t.Errorf("%d keys are remembered, want %d", n, maxRevoked)
	}
	if back, _ := k.Follow([]Key{key(5)}, now); len(back) != 0 {
		t.Errorf("the oldest key is remembered: %v", back)
	}
	if back, _ := k.Follow([]Key{key(2*maxRevoked - 2)}, now); len(back) != 1 {
		t.Error("a late key is forgotten")
	}
}

// TestKeysSurviveABrokenMemory: a file that cannot be read is reported, and written anew.
func TestKeysSurviveABrokenMemory(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "api-keys"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "api-keys", "config.yaml"), []byte(`{"keys": [1]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	k, err := OpenKeys(dir, "config.yaml")
	if err == nil {
		t.Fatal("a broken file is not reported")
	}
	now := time.Unix(1_800_000_000, 0)
	if back, err := k.Follow([]Key{{Hash: "a", Name: "ann"}}, now); err != nil || len(back) != 0 {
		t.Errorf("back are %v, error %v", back, err)
	}
	follow(t, dir, now)
	if back := follow(t, dir, now, Key{Hash: "a", Name: "ann"}); len(back) != 1 {
		t.Errorf("back are %v, want the key of ann", back)
	}
}
