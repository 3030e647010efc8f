package manifest

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// all are the kinds of the rows of package pack; TestMain sets them.
var all Kinds

var update = flag.Bool("update", false, "write the wanted mistakes again")

// setVariables sets the variables of the manifests.
func setVariables(t interface{ Setenv(name, value string) }) {
	t.Setenv("SET", "s3cret-{{text}}")
	t.Setenv("EMPTY", "")
}

// TestBad: all mistakes of a file at once, each with its line and a remedy.
func TestBad(t *testing.T) {
	setVariables(t)
	files, err := filepath.Glob("testdata/bad/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no files: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			_, err := Load(file, all, Options{})
			problems, ok := errors.AsType[Problems](err)
			if !ok {
				t.Fatalf("%v, want Problems", err)
			}
			golden := strings.TrimSuffix(file, ".yaml") + ".txt"
			if *update {
				os.WriteFile(golden, []byte(problems.Error()+"\n"), 0o644)
			}
			want, err := os.ReadFile(golden)
			if err != nil || problems.Error()+"\n" != string(want) {
				t.Errorf("mistakes:\n%s\nwant:\n%s%v", problems, want, err)
			}
		})
	}
}

// TestReferences: references are replaced, their values are no templates, and the script of a shell
// keeps its own.
func TestReferences(t *testing.T) {
	setVariables(t)
	m, d := parse("testdata/pack.yaml", []byte(`
tools:
  a:
    description: d
    command: [echo, "${SET} ${EMPTY:-fallback} $${x} {{text}}", "${PACK_DIR}"]
    parameters: { text: t }
  b:
    description: d
    shell: true
    command: ['echo ${HOME} "$1"', "{{text}}"]
    parameters: { text: { default: x } }
`), Options{kinds: all}, allFiles())
	if len(d.Problems) > 0 {
		t.Fatal(d.Problems)
	}
	values := map[string]any{"text": "value"}
	dir, _ := filepath.Abs("testdata")
	if got, want := m.Tools[0].Command[1].Text.Text(values, nil), "s3cret-{{text}} fallback ${x} value"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := m.Tools[0].Command[2].Text.Text(nil, nil); got != dir {
		t.Errorf("PACK_DIR is %q, want %q", got, dir)
	}
	if got, _ := m.Tools[1].Command[0].Text.Constant(); got != `echo ${HOME} "$1"` {
		t.Errorf("the script is %q", got)
	}
	if m.Name != "testdata" || !m.Tools[0].Parameters[0].Required || m.Tools[1].Parameters[0].Required {
		t.Errorf("%s %+v", m.Name, m.Tools[0].Parameters[0])
	}
	if s := m.Tools[0].Command.String(); strings.Contains(s, "s3cret") {
		t.Errorf("shown is %s", s)
	}
}

// allFiles returns what the files of one pack may have.
func allFiles() *int64 {
	left := int64(maxFiles)
	return &left
}

// TestBoundsOfAManifest: aliases, long keys and files that are named often cost little.
func TestBoundsOfAManifest(t *testing.T) {
	long := strings.Repeat("x", 200<<10)
	for name, test := range map[string]struct{ text, want string }{
		"aliases of a text": {"tools: { t: { description: &d " + long + ", command: [echo" + strings.Repeat(", *d", 1000) + "] } }",
			"16 MiB of keys and texts"},
		"a long key": {"tools: { ? " + long + "\n : { command: [" + strings.Repeat("x, ", 1000) + "x] } }", "16 MiB of keys and texts"},
		"one file, many times": {"tools: { t: { description: d, command: [echo" + strings.Repeat(", '${file:big.txt}'", 1000) + "] } }",
			"more than 32 MiB together"},
		"one prompt, many times": {"prompts:\n" + func() (text string) {
			for i := range 1000 {
				text += fmt.Sprintf("  p%d: { description: d, file: big.txt }\n", i)
			}
			return text
		}(), "more than 32 MiB together"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for file, text := range map[string]string{"pack.yaml": test.text, "big.txt": strings.Repeat("y", 60<<10)} {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			_, err := Load(dir, all, Options{})
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%.300v, want %q", err, test.want)
			}
		})
	}
}

// TestFilesOfThePack: a reference to a file of the pack is resolved to show what the file decides. A
// variable, and a file outside of the folder, are left, and so is the check of the value.
func TestFilesOfThePack(t *testing.T) {
	above := t.TempDir()
	dir := filepath.Join(above, "pack")
	for _, err := range []error{os.Mkdir(dir, 0o755), os.WriteFile(filepath.Join(dir, "host"), []byte("https://api.example.com\n"), 0o600),
		os.WriteFile(filepath.Join(above, "secret"), []byte("canary-secret"), 0o600), os.Symlink("../secret", filepath.Join(dir, "link")),
		os.WriteFile(filepath.Join(dir, "pack.yaml"), []byte(`openapi:
  file: { spec: a.yaml, base_url: "${file:host}" }
  outside: { spec: a.yaml, base_url: "${file:../secret}" }
  link: { spec: a.yaml, base_url: "${file:link}" }
  variable: { spec: a.yaml, base_url: "${HOST:-https://${file:host}" }
  text: { spec: a.yaml, base_url: "https://api.example.com/$${x}" }
`), 0o600)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	p, err := Load(dir, all, Options{Unresolved: true, PackFiles: true})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"https://api.example.com false", "${file:../secret} true", "${file:link} true",
		"${HOST:-https://${file:host} true", "https://api.example.com/${x} false"} {
		url := p.Manifests[0].OpenAPI[i].BaseURL
		if got := fmt.Sprint(url.Value(), " ", url.Open()); got != want {
			t.Errorf("%s: %s, want %s", url.Source, got, want)
		}
	}
}

// FuzzManifest: no text stops the program, and a mistake has a line of the file.
func FuzzManifest(f *testing.F) {
	setVariables(f)
	files, _ := filepath.Glob("testdata/bad/*.yaml")
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text))
	}
	f.Add("a: &a [*a]\ntools: *a")
	f.Fuzz(func(t *testing.T, text string) {
		m, d := parse("testdata/pack.yaml", []byte(text), Options{kinds: all}, allFiles())
		if len(d.Problems) == 0 {
			for _, tool := range m.Tools {
				tool.InputSchema()
			}
			return
		}
		for _, p := range d.Problems {
			if lines := strings.Count(text, "\n") + 2; p.Line < 1 || p.Line > lines || p.Text == "" {
				t.Errorf("%v of %d lines", p, lines)
			}
		}
	})
}

// TestAllMistakesAtOnce: a document that does not exist, and a tool that does nothing, are reported
// beside an unknown key, in each file of the pack.
func TestAllMistakesAtOnce(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"a.pack.yaml": "openapi:\n  one: { spec: one.yaml }\n  off: { spec: off.yaml, enabled: false }\n  url: { spec: 'https://example.com/x' }\n",
		"pack.yaml": "openapi:\n  two:\n    spec: two.yaml\n    opertions: [a]\ntools:\n" +
			"  idle: { description: Idle., enabledd: true }\n  typo: { description: Typo., comand: [a] }\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	_, err := Load(dir, all, Options{})
	problems, _ := errors.AsType[Problems](err)
	var got []string
	for _, p := range problems {
		got = append(got, strings.ReplaceAll(strings.TrimPrefix(p.String(), dir+string(filepath.Separator)), dir, "DIR"))
	}
	want := []string{
		"a.pack.yaml:2: openapi.one.spec: cannot use the document one.yaml: cannot read DIR/one.yaml: no such file",
		"pack.yaml:3: openapi.two.spec: cannot use the document two.yaml: cannot read DIR/two.yaml: no such file",
		"pack.yaml:4: openapi.two.opertions: unknown key; did you mean operations?",
		"pack.yaml:6: tools.idle.enabledd: unknown key; did you mean enabled?",
		"pack.yaml:6: tools.idle: does nothing; add command: [program, \"{{parameter}}\"], http: { url: https://… } or prompt: { text: … }",
		"pack.yaml:7: tools.typo.comand: unknown key; did you mean command?",
	}
	for i := range got {
		got[i] = filepath.ToSlash(got[i])
	}
	if !slices.Equal(got, want) {
		t.Errorf("mistakes:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
