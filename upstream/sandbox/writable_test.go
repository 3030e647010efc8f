//go:build unix

package sandbox

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// mustLay makes files and links below a folder: a name that ends in a slash is a folder, and one with
// an arrow is a link. An absolute target is below the folder, too.
func mustLay(t *testing.T, dir string, names ...string) {
	t.Helper()
	for _, name := range names {
		name, to, link := strings.Cut(name, " -> ")
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if filepath.IsAbs(to) {
			to = filepath.Join(dir, to)
		}
		var err error
		switch {
		case link:
			err = os.Symlink(to, path)
		case strings.HasSuffix(name, "/"):
			err = os.MkdirAll(path, 0o700)
		default:
			err = os.WriteFile(path, nil, 0o700)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestWritableFollowsLinksOutsideAlone: links outside of all writable paths are followed, and no link
// below one.
func TestWritableFollowsLinksOutsideAlone(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	mustLay(t, dir, "secret/key", "w/file", "w/inner/file", "w/gone -> /secret", "w/out -> ../secret", "alias -> w",
		"far -> alias/inner", "around -> w/../secret", "circle -> circle2", "circle2 -> circle", "plain/file")
	at := func(name string) string { return filepath.Join(dir, name) }
	for name, row := range map[string]struct {
		paths    []string
		want     []string // nil for an error
		held     []string
		notHeld  []string
		excluded []string // with a problem
	}{
		"a folder": {[]string{"w"}, []string{"w"}, []string{"w", "w/file", "w/none", "alias/file", "far/file", "w/gone/key"},
			[]string{"secret", "plain/file", "none"}, []string{"w/gone", "w/gone/key", "alias/out"}},
		"a link to a folder": {[]string{"alias"}, []string{"w"}, []string{"w/file", "far"}, []string{"plain"},
			[]string{"w/gone"}},
		"one below another":         {[]string{"w", "w/gone"}, []string{"w", "w/gone"}, []string{"w/gone/key"}, []string{"secret/key"}, []string{"w/gone"}},
		"one below another by name": {[]string{"alias", "far"}, []string{"w", "w/inner"}, []string{"w/inner/file"}, []string{"secret"}, nil},
		"a path that is not there":  {[]string{"none/x"}, []string{"none/x"}, []string{"none/x/y"}, []string{"none"}, nil},
		"links in a circle":         {[]string{"circle"}, nil, nil, nil, nil},
		"links through one another": {[]string{"alias", "w/root"}, nil, nil, nil, nil},
		"out of a writable path":    {[]string{"w"}, []string{"w"}, []string{"around"}, nil, nil},
	} {
		if name == "links through one another" {
			mustLay(t, dir, "w/root -> "+strings.Repeat("../", 40))
		}
		var paths []string
		for _, p := range row.paths {
			paths = append(paths, at(p))
		}
		w, err := NewWritable(paths)
		if row.want == nil {
			if err == nil {
				t.Errorf("%s: %q, want an error", name, w)
			}
			continue
		}
		var want Writable
		for _, p := range row.want {
			want = append(want, at(p))
		}
		if err != nil || !slices.Equal(w, want) {
			t.Errorf("%s: %q, %v, want %q", name, w, err, want)
		}
		for _, p := range row.held {
			if w.Holds(at(p)) == "" {
				t.Errorf("%s: %s is not held", name, p)
			}
		}
		for _, p := range row.notHeld {
			if got := w.Holds(at(p)); got != "" {
				t.Errorf("%s: %s is held by %s", name, p, got)
			}
		}
		for _, p := range row.excluded {
			if w.problem("read", at(p)) == "" {
				t.Errorf("%s: %s can be used", name, p)
			}
		}
	}
}

// TestSandboxProgramsReadNoWritableFile: no file and no link that a confined command may change
// decides what another one may read.
func TestSandboxProgramsReadNoWritableFile(t *testing.T) {
	home := t.TempDir()
	mustLay(t, home, "secret/bin/sh", "secret/lib/key", "secret/pyvenv.cfg", "secret/cert",
		"w/venv/bin/python", "w/venv/pyvenv.cfg", "w/venv/lib -> /secret/lib", "w/bin -> /secret/bin",
		"w/cert -> /secret/cert", "w/nvm -> /secret", "w/link -> /secret/bin/sh", "bin/server -> /w/link",
		"half/bin/x", "half/lib -> /w/marks", "w/marks/node_modules/", "half/lib64/key", "plain/node/bin/npx",
		"plain/node/lib/node_modules/")
	script := func(name, line string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(home, name), []byte(line), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	script("w/script", "#!"+home+"/secret/bin/sh\n")
	script("bin/script", "#!"+home+"/w/venv/bin/python\n")
	w, err := NewWritable([]string{filepath.Join(home, "w")})
	if err != nil {
		t.Fatal(err)
	}
	secrets := []string{"secret/lib/key", "secret/bin/sh", "secret/cert", "half/lib64/key"}
	for name, row := range map[string]struct {
		program     string
		environment []string
		want        string // is readable
	}{
		"an installation":      {"w/venv/bin/python", nil, ""},
		"a first line":         {"w/script", nil, ""},
		"an interpreter":       {"bin/script", nil, "bin/script"},
		"a link to a program":  {"bin/server", nil, ""},
		"a folder of PATH":     {"plain/node/bin/npx", []string{"PATH=" + home + "/w/bin:" + home + "/plain/node/bin"}, "plain/node/lib"},
		"certificates":         {"plain/node/bin/npx", []string{"SSL_CERT_FILE=" + home + "/w/cert"}, "plain/node/lib"},
		"a version manager":    {"plain/node/bin/npx", []string{"NVM_DIR=" + home + "/w/nvm"}, "plain/node/bin"},
		"the mark of a folder": {"half/bin/x", nil, "half/bin/x"},
	} {
		environment := append([]string{"HOME=" + home}, row.environment...)
		program := filepath.Join(home, row.program)
		leaks := func(paths []string) bool {
			return slices.ContainsFunc(paths, func(p string) bool {
				real, err := filepath.EvalSymlinks(p)
				return err == nil && slices.ContainsFunc(secrets, func(s string) bool {
					secret, err := filepath.EvalSymlinks(filepath.Join(home, s))
					return err == nil && within(secret, real)
				})
			})
		}
		if !leaks(Programs(program, environment, nil)) {
			t.Errorf("%s: nothing is readable that should not be, so the test proves nothing", name)
		}
		got := Programs(program, environment, w)
		if leaks(got) {
			t.Errorf("%s: a link that a command may make lets another one read %q", name, got)
		}
		if row.want != "" && !Covers(got, filepath.Join(home, row.want)) {
			t.Errorf("%s: it may not read %s, but %q", name, row.want, got)
		}
	}
}
