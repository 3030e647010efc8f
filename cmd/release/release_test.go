package main

import (
	"bytes"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestArchives: the same files give the same bytes, whatever their dates and modes are.
func TestArchives(t *testing.T) {
	date := time.Date(2026, 11, 22, 10, 0, 0, 0, time.UTC)
	for name, pack := range map[string]func(string, []packed, time.Time) ([]byte, error){"tar": tarball, "zip": zipFile} {
		t.Run(name, func(t *testing.T) {
			var archives [][]byte
			for i := range 2 {
				file := filepath.Join(t.TempDir(), "junction")
				if err := os.WriteFile(file, []byte("program"), os.FileMode(0o600+i*0o111)); err != nil {
					t.Fatal(err)
				}
				if err := os.Chtimes(file, time.Time{}, date.Add(time.Duration(i)*time.Hour)); err != nil {
					t.Fatal(err)
				}
				archive, err := pack("junction_1", []packed{{file, "junction", 0o755}, {file, "cmd/README.md", 0o644}}, date)
				if err != nil {
					t.Fatal(err)
				}
				archives = append(archives, archive)
			}
			if !bytes.Equal(archives[0], archives[1]) {
				t.Error("two archives of the same files differ")
			}
		})
	}
}

// TestArchivesHaveLinkedDocuments: a link of a document in an archive leads to a document there, unless it
// leads to source code. Pages for developers are there, and what they link to need not be.
func TestArchivesHaveLinkedDocuments(t *testing.T) {
	source := t.TempDir()
	for name, text := range map[string]string{
		"LICENSE": "", "config.example.yaml": "", "cmd/main.go": "", "integration/testdata/x.md": "", "deploy/nginx.conf": "",
		"README.md": "[a](cmd/README.md#b) ([c](CONTRIBUTING.md)) [d](https://example.com/e.md) [f](#g) [h](LICENSE)",
		"cmd/README.md": "[a](../README.md) [b](main.go) [c](../deploy/README.md) [d](../deploy) [e](../missing.md) " +
			"[f](../../beyond.md)",
		"deploy/README.md": "[a](nginx.conf)",
		"CONTRIBUTING.md":  "[a](integration/testdata/x.md)",
	} {
		file := filepath.Join(source, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	list, err := linked(source)
	const want = "LICENSE README.md config.example.yaml cmd/README.md CONTRIBUTING.md deploy/README.md deploy/nginx.conf"
	if got := strings.Join(list, " "); err != nil || got != want {
		t.Errorf("the documents are\n%s (%v)\nwant\n%s", got, err, want)
	}
	list, err = linked(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"cmd/README.md", "cmd/junction/deploy/nginx.conf", "policy/README.md"} {
		if !slices.Contains(list, name) {
			t.Errorf("the archive of this repository lacks %s: %v", name, list)
		}
	}
}

// TestBillOfMaterials: the list has each module of the program with its version and checksum.
func TestBillOfMaterials(t *testing.T) {
	info := &buildinfo.BuildInfo{GoVersion: "go1.26.8", Main: debug.Module{Path: "junction"}, Deps: []*debug.Module{
		{Path: "example.com/a", Version: "v1.2.3+incompatible", Sum: "h1:AAEC"},
		{Path: "example.com/b", Version: "v1.0.0", Replace: &debug.Module{Path: "example.com/c", Version: "v2.0.0"}},
	}}
	text, err := billOfMaterials(info, "1.0.0", time.Date(2026, 11, 22, 10, 0, 0, 0, time.UTC))
	if err != nil {
		t.Fatal(err)
	}
	var list struct {
		Components   []component
		Dependencies []struct{ DependsOn []string }
	}
	if err := json.Unmarshal(text, &list); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range list.Components {
		got = append(got, c.PURL)
		for _, h := range c.Hashes {
			got = append(got, h.Algorithm+" "+h.Content)
		}
	}
	const want = "pkg:golang/std@1.26.8, pkg:golang/example.com/a@v1.2.3+incompatible, SHA-256 000102, pkg:golang/example.com/c@v2.0.0"
	if got := strings.Join(got, ", "); got != want {
		t.Errorf("the components are\n%s\nwant\n%s", got, want)
	}
	if len(list.Dependencies) != 1 || len(list.Dependencies[0].DependsOn) != 3 {
		t.Errorf("the dependencies are %+v", list.Dependencies)
	}
}

// TestReleasePrintsWhatItWrote: each file is printed with its size when it is written, and the folder at the end.
func TestReleasePrintsWhatItWrote(t *testing.T) {
	var out bytes.Buffer
	r := &release{dir: t.TempDir(), version: "1.0.0", stdout: &out, sums: map[string]string{}}
	if err := errors.Join(r.write("b.deb", []byte("12345")), r.write("a.tar.gz", nil), r.checksums()); err != nil {
		t.Fatal(err)
	}
	want := "          5  b.deb\n          0  a.tar.gz\n        147  checksums.txt\nJunction 1.0.0 is in " + r.dir +
		": 3 files, with their sizes in bytes.\n"
	text, err := os.ReadFile(filepath.Join(r.dir, "checksums.txt"))
	if out.String() != want || err != nil || strings.Count(string(text), "\n") != 2 || strings.Contains(string(text), "checksums") {
		t.Errorf("it prints\n%swant\n%sand the checksums are\n%s(%v)", out.String(), want, text, err)
	}
}

// TestFormula: the formula has the platforms that were built, and no others.
func TestFormula(t *testing.T) {
	text := formula("1.0.0", "https://example.com/d", []platform{
		{"linux", "amd64", "l.tar.gz", "01", 1}, {"darwin", "arm64", "d.tar.gz", "02", 1}, {"windows", "amd64", "w.zip", "03", 1},
	})
	for _, want := range []string{
		"on_macos do\n    on_arm do\n      url \"https://example.com/d/d.tar.gz\"\n      sha256 \"02\"\n",
		"on_linux do\n    on_intel do\n      url \"https://example.com/d/l.tar.gz\"\n      sha256 \"01\"\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the formula is\n%s\nwant in it\n%s", text, want)
		}
	}
	if strings.Contains(text, "w.zip") {
		t.Errorf("the formula has the archive for Windows:\n%s", text)
	}
}

// TestOldResults: results of an earlier run are not overwritten.
func TestOldResults(t *testing.T) {
	dir := t.TempDir()
	if _, err := emptyFolder(dir); err != nil {
		t.Errorf("an empty folder: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "checksums.txt"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := emptyFolder(dir); err == nil {
		t.Error("a folder with results is accepted")
	}
}
