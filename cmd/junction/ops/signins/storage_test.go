package signins

import (
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"junction/auth/seal"
	"junction/auth/store"
	"junction/cmd/junction/base/config"
	"junction/upstream/files"
)

var sealedAnew = regexp.MustCompile(`Sealed anew with (k\d{8}(?:-\d)?): (\d+) values?\.`)

// wantReadable fails unless the keys at hand open everything: of a session that goes on the token
// of the provider.
func (o *office) wantReadable(sessions ...string) {
	o.t.Helper()
	s := o.mustOpen()
	defer o.mustClose(s)
	for _, id := range sessions {
		if i, err := s.IDPSession(o.t.Context(), id); err != nil || !strings.HasPrefix(i.RefreshToken, "canary-refresh token of ") {
			o.t.Errorf("the session says %q, %v", i.RefreshToken, err)
		}
	}
	if n, err := s.Reencrypt(o.t.Context()); err != nil || n != (store.Reencrypted{}) {
		o.t.Errorf("%+v are not of the first key, %v", n, err)
	}
}

func mustRead(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestRotateKeepsWhatIsStored puts new keys in front of a file, takes the old ones away, and has all that is
// stored go on.
func TestRotateKeepsWhatIsStored(t *testing.T) {
	o := mustOffice(t)
	old := mustRead(t, o.keys)
	link := filepath.Join(t.TempDir(), "link.key")
	if err := os.Symlink(o.keys, link); err != nil {
		t.Fatal(err)
	}
	mustWrite(t, o.file, o.config(fmt.Sprintf("storage: { dsn: %q, key_file: %q }\n", o.database, link)))
	first := o.run("storage", "rotate")
	o.want(first, 0, "is in front of "+link+": keep a copy of it.", ": 3 values.", "Kept, for clients and tokens from before: old.")
	text := mustRead(t, o.keys)
	if m := sealedAnew.FindStringSubmatch(first.stdout); m == nil || !strings.HasPrefix(text, m[1]+":") || !strings.HasSuffix(text, "\n"+old) {
		t.Errorf("the keys are\n%safter\n%s", text, first.stdout)
	}
	secret := text[strings.IndexByte(text, ':')+1:][:43]
	if strings.Contains(first.stdout, secret) {
		t.Error("it shows the key")
	}
	if info, err := os.Lstat(link); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link is %v, %v", info, err)
	}
	if info, err := os.Stat(o.keys); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file of keys is %v, %v; want 0600", info, err)
	}
	if all, err := filepath.Glob(filepath.Join(o.dir, ".*")); err != nil || len(all) > 0 {
		t.Errorf("left behind: %q, %v", all, err)
	}
	o.wantReadable(o.ann.IDPSession, o.bob.IDPSession)
	// Another one on the same day, and then without the first one.
	o.want(o.run("storage", "rotate"), 0, "-2: 3 values.", "Kept, for clients and tokens from before: k2", ", old.")
	mustWrite(t, o.keys, strings.TrimSuffix(mustRead(t, o.keys), old))
	o.wantReadable(o.ann.IDPSession, o.bob.IDPSession)
	o.wantStanding(o.ann, o.other, o.bob)
}

// TestRotateRevokesAll is for the day on which a key is known.
func TestRotateRevokesAll(t *testing.T) {
	o := mustOffice(t)
	got := o.run("storage", "rotate", "--revoke-all", "--yes")
	o.want(got, 0, "Ended: 2 sessions and 3 grants.\n", "Gone from "+o.keys+": old.")
	if text := mustRead(t, o.keys); strings.Contains(text, "old:") || strings.Count(text, "\n") != 1 {
		t.Errorf("the keys are\n%s", text)
	}
	o.wantReadable()
	o.wantStanding()
	s := o.mustOpen()
	defer o.mustClose(s)
	if browsers, err := s.WebSessions(t.Context(), ""); err != nil || len(browsers) != 0 {
		t.Errorf("%d are signed in in browsers, %v", len(browsers), err)
	}
	if events, err := s.Events(t.Context(), 1); err != nil || len(events) != 1 || events[0].Event != "master_key_rotated" {
		t.Errorf("the audit ends with %+v, %v", events, err)
	}
}

// TestRotateOfOthersKeys has keys that the command may not change: it seals with the first, and
// says what a person has to do.
func TestRotateOfOthersKeys(t *testing.T) {
	o := mustOffice(t)
	mustWrite(t, o.file, o.config(fmt.Sprintf("storage: { dsn: %q }\n", o.database)))
	old := strings.TrimSpace(mustRead(t, o.keys))
	next := "new:" + base64.StdEncoding.EncodeToString(seal.NewSecret())
	t.Setenv(config.MasterKeys, old)
	o.want(o.run("storage", "rotate"), 1, "JUNCTION_MASTER_KEYS has only the key old, which encrypts everything; add a new key there yourself, such as k2", ":$(openssl rand -base64 32)")
	running := o.mustOpen() // a proxy that has the new key behind the old one
	defer o.mustClose(running)
	t.Setenv(config.MasterKeys, next+","+old)
	o.want(o.run("storage", "rotate"), 0, "Sealed anew with new: 3 values.", "Kept, for clients and tokens from before: old.")
	o.want(o.run("storage", "rotate"), 0, "Sealed anew with new: 0 values.")
	t.Setenv(config.MasterKeys, next)
	o.want(o.run("grants", "list"), 0, o.ann.ID[:8])
	t.Setenv(config.MasterKeys, next+","+old)
	o.want(o.run("storage", "rotate", "--revoke-all", "--yes"), 0, "Ended: 2 sessions and 3 grants.", "Now remove these keys and restart every proxy", ": old.")
	t.Setenv(config.MasterKeys, next)
	o.want(o.run("storage", "rotate", "--revoke-all", "--yes"), 0, "There is no other key than new")
}

// TestRotateWithoutSignInsOfUsers: a file whose only sign-ins are those of the operator has a database, and its
// master key can be rotated. A file that needs no database has none.
func TestRotateWithoutSignInsOfUsers(t *testing.T) {
	o := mustOffice(t)
	file := func(auth string) string {
		return "listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\nupstreams: { a: { url: https://a.example/mcp" + auth + " } }\n" +
			fmt.Sprintf("storage: { dsn: %q, key_file: %q }\n", o.database, o.keys)
	}
	mustWrite(t, o.file, file(", auth: { mode: oauth }"))
	o.want(o.run("storage", "rotate"), 0, ": 3 values.")
	o.wantReadable(o.ann.IDPSession)
	mustWrite(t, o.file, file(""))
	o.want(o.run("storage", "rotate"), 1, "nothing is stored: ", " has neither auth.oauth, nor replicas, nor an upstream")
}

// TestRotateRefuses has what cannot be done change nothing.
func TestRotateRefuses(t *testing.T) {
	o := mustOffice(t)
	before := mustRead(t, o.keys)
	o.want(o.run("storage", "rotate", "now"), 2, "rotate takes no arguments")
	running := o.mustOpen()
	o.want(o.run("storage", "rotate"), 1, fmt.Sprintf("process %d on ", os.Getpid()), "; stop the proxy first", "; nothing was changed")
	o.mustClose(running)
	for _, tt := range []struct{ keys, says string }{
		{"other:" + base64.StdEncoding.EncodeToString(seal.NewSecret()) + "\n", "the master keys are not those of this store"},
		{"old:short\n", "master key old is not the base64 of 32 bytes"},
		{"", "no master key given"},
	} {
		mustWrite(t, o.keys, tt.keys)
		o.want(o.run("storage", "rotate"), 1, tt.says)
		if after := mustRead(t, o.keys); after != tt.keys {
			t.Errorf("the keys %q have become %q", tt.keys, after)
		}
	}
	mustWrite(t, o.keys, before)
	o.wantReadable(o.ann.IDPSession)
	o.wantStanding(o.ann, o.other, o.bob)
}

// TestRotateIsTakenUp breaks off where the key is on the disk and nothing is sealed with it, or
// half of everything: the keys at hand open all.
func TestRotateIsTakenUp(t *testing.T) {
	o := mustOffice(t)
	text := seal.NewEntry(o.ann.Created, nil) + "\n" + mustRead(t, o.keys)
	if err := files.Replace(o.keys, []byte(text)); err != nil {
		t.Fatal(err)
	}
	s := o.mustOpen()
	if i, err := s.IDPSession(t.Context(), o.ann.IDPSession); err != nil {
		t.Fatal(err)
	} else if err := s.UpdateIDPSession(t.Context(), i); err != nil {
		t.Fatal(err)
	}
	o.mustClose(s)
	o.want(o.run("storage", "rotate"), 0, ": 3 values.")
	o.wantReadable(o.ann.IDPSession, o.bob.IDPSession)
	if err := files.Replace(filepath.Join(o.dir, "none"), nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
}
