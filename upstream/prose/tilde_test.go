package prose

import (
	"path/filepath"
	"testing"
)

// TestTilde: the home folder becomes ~ where a word begins with it, and nowhere else.
func TestTilde(t *testing.T) {
	for text, want := range map[string]string{
		"/home/a/x of /home/a/y":                      "~/x of ~/y",
		"/home/a/c.yaml:3: (/home/a/x)":               "~/c.yaml:3: (~/x)",
		"--file=/home/a/x '/home/a/y'":                "--file=/home/a/x '/home/a/y'",
		"'${file:/home/a/x}'":                         "'${file:/home/a/x}'",
		"/mnt/home/a/x":                               "/mnt/home/a/x",
		"../home/a/x":                                 "../home/a/x",
		"/home/ab/x":                                  "/home/ab/x",
		"write { dir: /home/a/x }, a[1] in /home/a/y": "write { dir: /home/a/x }, a[1] in ~/y",
		"write [npx, /home/a/x]":                      "write [npx, /home/a/x]",
		"nothing":                                     "nothing",
	} {
		want = filepath.FromSlash(want)
		if got := tilde(filepath.FromSlash(text), filepath.FromSlash("/home/a")); got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
}
