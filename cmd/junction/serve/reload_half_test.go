package serve

import (
	"path/filepath"
	"strings"
	"testing"

	"junction/auth/authtest"
	"junction/upstream/upstreamtest"
)

// TestHalfAFileRevokesNothing writes a file with a mistake that lacks a key. If it may be the half of a file that is
// being written in place, the key stays in force until the file has stayed the same; and for as long as the file is
// cut within a line. A file that was replaced in one step revokes the key at once.
func TestHalfAFileRevokesNothing(t *testing.T) {
	_, url := upstreamtest.Start(t, upstreamtest.Script{})
	key := func(name, digit string) string {
		return "  - { name: " + name + ", hash: \"sha256:" + strings.Repeat(digit, 64) + "\" }\n"
	}
	sound := addresses + "upstreams: { a: { url: " + url + " } }\nauth:\n  api_keys:\n" + key("ann", "1")
	mistaken := "nonsense: 1\n" + sound
	for name, tt := range map[string]struct {
		text  string
		write func(t testing.TB, file, text string)
		lasts []bool // whether the key is in force after each reload; the second one is asked for
	}{
		"in place":               {mistaken, mustWrite, []bool{true, false}},
		"in place, and then all": {mistaken + key("ben", "2"), mustWrite, []bool{true, true}},
		"in place, and cut":      {mistaken + "  - { name:", mustWrite, []bool{true, true}},
		"cut at an entry":        {strings.TrimSuffix(mistaken, "\n"), mustWrite, []bool{true, true}},
		"replaced": {mistaken, func(t testing.TB, file, text string) {
			mustWrite(t, file+"~", text)
			mustRename(t, file+"~", file)
		}, []bool{false, false}},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "config.yaml")
			mustWrite(t, file, sound+key("ben", "2"))
			log := newTranscript()
			p, err := open(options{file: file, stdout: newTranscript(),
				stderr: authtest.Searched(t, "what the program writes", log),
				getenv: environment(map[string]string{"XDG_STATE_HOME": t.TempDir()})})
			if err != nil {
				t.Fatal(err)
			}
			defer p.close()
			tt.write(t, file, tt.text)
			for n, lasts := range tt.lasts {
				p.reload(n > 0)
				if got := len(p.inForce.config.Auth.APIKeys) == 2; got != lasts {
					t.Errorf("after reload %d, ben is in force: %v, want %v:\n%s", n+1, got, lasts, log)
				}
			}
			if name == "cut at an entry" && !strings.Contains(log.String(), `as if it were cut; they are accepted`) {
				t.Errorf("the log does not say that the key is accepted:\n%s", log)
			}
		})
	}
}
