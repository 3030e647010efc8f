package manifest

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

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
			_, err := Load(file, Options{})
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
`), Options{})
	if len(d.problems) > 0 {
		t.Fatal(d.problems)
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
		m, d := parse("testdata/pack.yaml", []byte(text), Options{})
		if len(d.problems) == 0 {
			for _, tool := range m.Tools {
				tool.InputSchema()
			}
			return
		}
		for _, p := range d.problems {
			if lines := strings.Count(text, "\n") + 2; p.Line < 1 || p.Line > lines || p.Text == "" {
				t.Errorf("%v of %d lines", p, lines)
			}
		}
	})
}
