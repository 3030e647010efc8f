//go:build unix

package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"junction/auth/authtest"
	"junction/cmd/pack/manifest"
	"junction/upstream/sandbox"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == sandbox.Word {
		os.Exit(sandbox.Main())
	}
	os.Exit(m.Run())
}

// tool returns the tool of a manifest in dir with the lines, of which each is indented.
func tool(t *testing.T, dir string, lines ...string) *manifest.Tool {
	t.Helper()
	text := "tools:\n  t:\n    description: d\n    " + strings.Join(lines, "\n    ") + "\n"
	file := filepath.Join(dir, "pack.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := manifest.Load(file, manifest.Kinds{manifest.CommandKind}, manifest.Options{})
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return p.Manifests[0].Tools[0]
}

// TestWords: every value stays within one argument, groups come and go, and what could become an
// option is refused.
func TestWords(t *testing.T) {
	dir := t.TempDir()
	const print = `command: [printf, '[%s]', x`
	for _, test := range []struct {
		name, command, parameters string
		arguments                 map[string]any
		want                      string // output, or error
	}{
		{"spaces and quotes", `, "{{a}}"]`, "a: A", map[string]any{"a": `a "b' $(c) *` + "\n"}, "[x][a \"b' $(c) *\n]"},
		{"empty", `, "{{a}}"]`, "a: A", map[string]any{"a": ""}, "[x][]"},
		{"option", `, "{{a}}"]`, "a: A", map[string]any{"a": "-rf"}, `"-rf" begins with -`},
		{"number", `, "{{a}}"]`, "a: { type: integer }", map[string]any{"a": -5}, `"-5" begins with -`},
		{"after --", `, --, "{{a}}"]`, "a: A", map[string]any{"a": "-rf"}, "[x][--][-rf]"},
		{"allowed", `, "{{a}}"]`, "a: { leading_dash: true }", map[string]any{"a": "-rf"}, "[x][-rf]"},
		{"within a word", `, "--a={{a}}"]`, "a: A", map[string]any{"a": "-rf --b"}, "[x][--a=-rf --b]"},
		{"group", `, [--a, "{{a}}"], y]`, "a: A", map[string]any{"a": "1"}, "[x][--a][1][y]"},
		{"group without value", `, [--a, "{{a}}"], y]`, "a: A", nil, "[x][y]"},
		{"-- of a group that is left out", `, [--, "{{a}}"], "{{b}}"]`, "{ a: A, b: B }",
			map[string]any{"b": "-b"}, `"-b" begins with -`},
		{"flag", `, { when: a, args: [--flag] }]`, "a: { type: boolean }", map[string]any{"a": true}, "[x][--flag]"},
		{"no flag", `, { when: a, args: [--flag] }]`, "a: { type: boolean }", map[string]any{"a": false}, "[x]"},
		{"list", `, "{{a...}}"]`, "a: { type: array }", map[string]any{"a": []any{"1 2", "3"}}, "[x][1 2][3]"},
		{"option in a list", `, "{{a...}}"]`, "a: { type: array }", map[string]any{"a": []any{"1", "-v"}},
			`"-v" begins with -`},
		{"list in one word", `, "{{a}}"]`, "a: { type: array }", map[string]any{"a": []any{"1", "2"}}, `[x][["1","2"]]`},
		{"default", `, "{{a}}"]`, "a: { default: d }", nil, "[x][d]"},
		{"NUL", `, "{{a}}"]`, "a: A", map[string]any{"a": "a\x00b"}, "a has a NUL character"},
		{"NUL in a list", `, "{{a...}}"]`, "a: { type: array }", map[string]any{"a": []any{"\x00"}}, "a has a NUL character"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if !strings.HasPrefix(test.parameters, "{") {
				test.parameters = "{ " + test.parameters + " }"
			}
			r := Runner{Log: authtest.Log(t)}
			out, _, err := r.Run(t.Context(), tool(t, dir, print+test.command, "parameters: "+test.parameters), test.arguments)
			got := fmt.Sprint(err)
			if err == nil {
				got = string(out)
			}
			if got != test.want && (err == nil || !strings.HasPrefix(got, test.want)) {
				t.Errorf("%s\nwant %s", got, test.want)
			}
		})
	}
}

// TestWithin: a path stays in its folder, through links and dots as well.
func TestWithin(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	for _, err := range []error{
		os.MkdirAll(filepath.Join(dir, "in", "sub"), 0o755),
		os.Symlink(other, filepath.Join(dir, "in", "out")),
		os.Symlink("loop", filepath.Join(dir, "in", "loop")),
		os.Symlink("sub", filepath.Join(dir, "in", "link")),
		os.Mkdir(filepath.Join(dir, "inside"), 0o755), // begins like the folder
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	r := Runner{Log: authtest.Log(t)}
	x := tool(t, dir, `command: [printf, '%s', "{{p}}"]`, "parameters: { p: { within: in } }")
	for path, want := range map[string]string{
		"a": "./in/a", "./sub/../b": "./in/b", "link/x": "./in/sub/x", "-rf": "./in/-rf", ".": "./in", "": "./in",
		filepath.Join(dir, "in", "a"): "./in/a",
		"..":                          "", "../in2": "", "../inside/a": "", "out/x": "", "loop": "", "/etc/passwd": "", "sub/../../x": "",
	} {
		out, _, err := r.Run(t.Context(), x, map[string]any{"p": path})
		if want == "" && err == nil || want != "" && (err != nil || string(out) != want) {
			t.Errorf("%q: %+v, %v; want %q", path, out, err, want)
		}
	}
}

// TestSandboxed: a command in a sandbox cannot read other files, and can write its output file.
func TestSandboxed(t *testing.T) {
	if missing := sandbox.Kernel().Missing(&sandbox.Rules{}); missing != "" {
		t.Skip("NOT TESTED: " + missing)
	}
	dir, other := t.TempDir(), t.TempDir()
	secret := filepath.Join(other, "secret")
	if err := os.WriteFile(secret, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := Runner{Log: authtest.Log(t)}
	x := tool(t, dir, `command: [cp, "{{from}}", "{{output}}"]`, "parameters: { from: F }", "sandbox: { require: true }")
	if out, _, err := r.Run(t.Context(), x, map[string]any{"from": secret}); err == nil {
		t.Errorf("read %q", out)
	}
	x.Sandbox.Read = []string{other}
	if out, _, err := r.Run(t.Context(), x, map[string]any{"from": secret}); err != nil || string(out) != "x" {
		t.Errorf("%+v, %v", out, err)
	}
}

// TestSandboxedByOthers: a link that another command may make decides nothing for the command of a tool.
func TestSandboxedByOthers(t *testing.T) {
	if missing := sandbox.Kernel().Missing(&sandbox.Rules{}); missing != "" {
		t.Skip("NOT TESTED: " + missing)
	}
	dir, w := t.TempDir(), t.TempDir()
	if err := os.Symlink("/etc", filepath.Join(w, "link")); err != nil {
		t.Fatal(err)
	}
	writer := tool(t, dir, `command: ["true"]`, "sandbox: { require: true }")
	reader := tool(t, dir, `command: [cat, /etc/fstab]`, "sandbox: { require: true }")
	writer.Sandbox.Write, reader.Sandbox.Read = []string{w}, []string{filepath.Join(w, "link")}
	for name, r := range map[string]*Runner{
		"another tool": {Log: authtest.Log(t)}, "a tool of the manifest before": {Log: authtest.Log(t)},
		"a command outside of the pack": {Log: authtest.Log(t), Writable: []string{w}},
	} {
		if r.Writable == nil {
			r.Confine([]*manifest.Tool{writer, reader})
		}
		if name != "another tool" {
			r.Confine([]*manifest.Tool{reader})
		}
		if out, _, err := r.Run(t.Context(), reader, nil); err == nil || !strings.Contains(err.Error(), "is a link below") {
			t.Errorf("after a link of %s, the tool reads %q, %v", name, out, err)
		}
	}
}

// TestOutputFile: what the command leaves in place of its output file is not followed.
func TestOutputFile(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "folder"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "folder", "output"), []byte("the secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := Runner{Log: authtest.Log(t)}
	for script, want := range map[string]string{
		`printf ok >"$1"`: "", `:`: "t ended without writing its output file",
		`ln -s /etc/passwd "$1"`:       "t wrote something that is no regular file",
		`mkfifo "$1"`:                  "t wrote something that is no regular file",
		`head -c 2000 /dev/zero >"$1"`: "t wrote a file of 2000 bytes, more than its limit of 1024 (max_output)",
		// another folder in place of the one with the file
		`d=${1%/*}; rm -r "$d"; ln -s "$PWD/folder" "$d"`: "t ended without writing its output file",
	} {
		x := tool(t, dir, "shell: true", fmt.Sprintf(`command: ['%s', "{{output}}"]`, script), "max_output: 1KiB")
		out, _, err := r.Run(t.Context(), x, nil)
		if want == "" && (err != nil || string(out) != "ok") || want != "" && (err == nil || err.Error() != want) {
			t.Errorf("%s: %+v, %v; want %q", script, out, err, want)
		}
	}
}

// TestOutputFileIsReadAsItWasOpened: while a process that the command has left puts a link in place of its
// output file, again and again, no read returns the file that the link leads to, and none blocks.
func TestOutputFileIsReadAsItWasOpened(t *testing.T) {
	dir := t.TempDir()
	secret := filepath.Join(dir, "secret")
	if err := os.WriteFile(secret, []byte("the secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	x := tool(t, dir, `command: [cp, /dev/null, "{{output}}"]`)
	o, err := newOutput(x, map[string]any{})
	if err != nil {
		t.Fatal(err)
	}
	defer o.remove()
	done := make(chan struct{})
	var swapping sync.WaitGroup
	swapping.Go(func() {
		next, name := filepath.Join(o.dir, "next"), filepath.Join(o.dir, "output")
		for i := 0; ; i++ {
			select {
			case <-done:
				return
			default:
			}
			put := func() error { return os.WriteFile(next, []byte("its own"), 0o600) }
			if i%2 == 1 {
				put = func() error { return os.Symlink(secret, next) }
			}
			if err := errors.Join(put(), os.Rename(next, name)); err != nil {
				t.Error(err)
				return
			}
		}
	})
	defer swapping.Wait()
	defer close(done)
	for range 20_000 {
		if data, _, _ := o.read(x); string(data) == "the secret" {
			t.Fatal("a call returns the file to which a link led")
		}
	}
}

// TestCallerGone: the end of the caller is no failure of the tool.
func TestCallerGone(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r := Runner{Log: authtest.Log(t)}
	if _, _, err := r.Run(ctx, tool(t, t.TempDir(), "command: [cat]"), nil); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want %v", err, context.Canceled)
	}
}
