package skill

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"junction/upstream/definition"
	"junction/upstream/raw"
)

const refunds = "---\nname: refunds\ndescription: Does refunds.\n---\nSee [mail](mail.md).\n"

// mustWrite makes a pack with these files below skills; a text that begins with -> is a link.
func mustWrite(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, "skills", filepath.FromSlash(name))
		err := os.MkdirAll(filepath.Dir(path), 0o700)
		if target, link := strings.CutPrefix(text, "->"); err == nil && link {
			err = os.Symlink(target, path)
		} else if err == nil {
			err = os.WriteFile(path, []byte(text), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func uris(l *List) (list []string) {
	for _, s := range l.Skills {
		list = append(list, s.URI)
	}
	return list
}

// TestFrontmatterIsVerbatim: each field of the author is in the entry, with its digits and its order.
func TestFrontmatterIsVerbatim(t *testing.T) {
	dir := mustWrite(t, map[string]string{"acme/refunds/SKILL.md": "---\r\nname: refunds\r\ndescription: |\r\n  Does ü,\r\n" +
		"  all.\r\nlicense: MIT\r\nmetadata: {version: 1.0, when: 2026-01-01, yes: [yes, 1e2, null]}\r\n---\r\nText\r\n",
		"acme/refunds/my file.md": "x", "acme/refunds/.hidden": "x"})
	f := Open(dir)
	l := f.List()
	if len(l.Skills) != 1 || len(l.Problems) != 0 {
		t.Fatalf("skills %q, problems %v", uris(l), l.Problems)
	}
	o, err := raw.Parse(l.Skills[0].Entry)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"name":"refunds","description":"Does ü,\nall.\n","license":"MIT",` +
		`"metadata":{"version":1.0,"when":"2026-01-01","yes":["yes",1e2,null]}}`
	if got, _ := o.Get("frontmatter"); string(got) != want {
		t.Errorf("frontmatter %s\nwant        %s", got, want)
	}
	for file := range definition.SkillFiles(o) {
		text, err := f.Read(file.URI)
		if err != nil || digestOf(text) != file.Digest || int64(len(text)) != file.Size {
			t.Errorf("%s: %q, %v; want %+v", file.URI, text, err, file)
		}
	}
	if _, err := f.Read("skill://acme/refunds/.hidden"); err != ErrUnknown {
		t.Errorf("a hidden file: %v, want %v", err, ErrUnknown)
	}
	if children, ok := l.Children("skill://acme/refunds"); !ok || !slices.Equal(children,
		[]string{"skill://acme/refunds/SKILL.md", "skill://acme/refunds/my%20file.md"}) {
		t.Errorf("children %q, %t", children, ok)
	}
	if _, ok := l.Children("skill://acme"); ok {
		t.Error("a folder around skills has children")
	}
}

// TestWrongSkillsAreLeftOut: a folder that clients could not verify or load is left out with the
// reason, and the others are served.
func TestWrongSkillsAreLeftOut(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("s3cret"), 0o600); err != nil {
		t.Fatal(err)
	}
	skill := func(name, more string) string { return "---\nname: " + name + "\ndescription: d\n" + more + "---\n" }
	many := map[string]string{"x/SKILL.md": skill("x", "")}
	for i := range definition.MaxSkillFiles {
		many["x/"+strings.Repeat("a", i+1)[:min(i+1, 100)]+"-"+time.Duration(i).String()] = ""
	}
	for name, row := range map[string]struct {
		files map[string]string
		want  string
	}{
		"no frontmatter":             {map[string]string{"x/SKILL.md": "# x\n"}, "does not begin with frontmatter"},
		"an open frontmatter":        {map[string]string{"x/SKILL.md": "---\nname: x\n"}, "does not begin with frontmatter"},
		"another name":               {map[string]string{"x/SKILL.md": skill("y", "")}, `the name "y"`},
		"a wrong name":               {map[string]string{"X_y/SKILL.md": skill("X_y", "")}, "single hyphens"},
		"a name that is a number":    {map[string]string{"1/SKILL.md": skill("1", "")}, "has no name"},
		"no description":             {map[string]string{"x/SKILL.md": "---\nname: x\n---\n"}, "has no description"},
		"a key twice":                {map[string]string{"x/SKILL.md": skill("x", "name: x\n")}, "name"},
		"wrong YAML":                 {map[string]string{"x/SKILL.md": "---\nname: [x\n---\n"}, ""},
		"a link outside":             {map[string]string{"x/SKILL.md": skill("x", ""), "x/s": "->" + secret}, "leads out of the folder"},
		"a link above":               {map[string]string{"x/SKILL.md": skill("x", ""), "x/s": "->../../../../etc/passwd"}, "leads out of the folder"},
		"SKILL.md is a link outside": {map[string]string{"x/SKILL.md": "->" + secret}, "leads out of the folder"},
		"a folder in itself":         {map[string]string{"x/SKILL.md": skill("x", ""), "x/a": "->../x"}, "a folder around it"},
		"a link to nothing":          {map[string]string{"x/SKILL.md": skill("x", ""), "x/a": "->none"}, "cannot be read"},
		"too many files":             {many, "more than 512 files"},
		"a backslash":                {map[string]string{"x/SKILL.md": skill("x", ""), `x/a\..\y`: ""}, "encoded character"},
		"too large": {map[string]string{"x/SKILL.md": skill("x", ""), "x/a": strings.Repeat("a", definition.MaxSkillSize)},
			"16 MiB"},
	} {
		t.Run(name, func(t *testing.T) {
			row.files["refunds/SKILL.md"] = refunds
			f := Open(mustWrite(t, row.files))
			l := f.List()
			if got := uris(l); !slices.Equal(got, []string{"skill://refunds/SKILL.md"}) {
				t.Errorf("skills %q", got)
			}
			if len(l.Problems) != 1 || !strings.Contains(l.Problems[0].Text, row.want) {
				t.Errorf("problems %v, want %q", l.Problems, row.want)
			}
			for _, uri := range []string{"skill://x/s", "skill://x/SKILL.md", "skill://refunds/../x/s", "skill://../pack.yaml"} {
				if text, err := f.Read(uri); err != ErrUnknown {
					t.Errorf("%s: %q, %v", uri, text, err)
				}
			}
		})
	}
}

// TestLinksWithinThePackAreFollowed: as Kubernetes mounts files, and as nested skills share them.
func TestLinksWithinThePackAreFollowed(t *testing.T) {
	f := Open(mustWrite(t, map[string]string{"..data/refunds/SKILL.md": refunds, "refunds": "->..data/refunds",
		"around/SKILL.md": "---\nname: around\ndescription: d\n---\n", "around/refunds/SKILL.md": "->../../refunds/SKILL.md"}))
	l := f.List()
	want := []string{"skill://around/SKILL.md", "skill://around/refunds/SKILL.md", "skill://refunds/SKILL.md"}
	if got := uris(l); !slices.Equal(got, want) || len(l.Problems) > 0 {
		t.Fatalf("skills %q, want %q; %v", got, want, l.Problems)
	}
	if n := len(l.Skills[0].Files); n != 2 {
		t.Errorf("the outer skill has %d files, want those of the nested one, too", n)
	}
}

// TestChangedFiles: a change is in the next list. A change that keeps size and time is found by a
// read, after which the list has the new digest.
func TestChangedFiles(t *testing.T) {
	dir := mustWrite(t, map[string]string{"refunds/SKILL.md": refunds, "refunds/mail.md": "one"})
	mail := filepath.Join(dir, "skills", "refunds", "mail.md")
	long := time.Now().Add(-time.Hour)
	write := func(text string, at time.Time) {
		t.Helper()
		if err := os.WriteFile(mail, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(mail, at, at); err != nil {
			t.Fatal(err)
		}
	}
	write("one", long)
	f := Open(dir)
	digest := func() string { return f.List().files["skill://refunds/mail.md"].Digest }
	if digest() != digestOf([]byte("one")) {
		t.Fatal("the digest is not that of the file")
	}
	write("two", long.Add(time.Minute))
	if digest() != digestOf([]byte("two")) {
		t.Error("a changed file has its old digest")
	}
	write("six", long.Add(time.Minute)) // of the same size and time
	if digest() != digestOf([]byte("two")) {
		t.Error("an unchanged file was read again")
	}
	text, err := f.Read("skill://refunds/mail.md")
	if err != nil || string(text) != "six" || digest() != digestOf([]byte("six")) {
		t.Errorf("read %q, %v; then the digest is %s", text, err, digest())
	}
	if err := os.Remove(mail); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Read("skill://refunds/mail.md"); err != ErrUnknown {
		t.Errorf("a removed file: %v", err)
	}
	if n := len(f.List().Skills[0].Files); n != 1 {
		t.Errorf("%d files, want 1", n)
	}
}

// TestFrozenFiles: of a pack with a checksum, a file that was changed later is refused.
func TestFrozenFiles(t *testing.T) {
	dir := mustWrite(t, map[string]string{"refunds/SKILL.md": refunds, "refunds/mail.md": "one"})
	f := Open(dir)
	f.Freeze()
	if err := os.WriteFile(filepath.Join(dir, "skills", "refunds", "mail.md"), []byte("two"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "skills", "refunds", "new.md"), []byte("new"), 0o600); err != nil {
		t.Fatal(err)
	}
	if n := len(f.List().Skills[0].Files); n != 2 {
		t.Errorf("%d files, want the 2 of the checksum", n)
	}
	if text, err := f.Read("skill://refunds/mail.md"); err == nil || !strings.Contains(err.Error(), "has changed since") {
		t.Errorf("a changed file: %q, %v", text, err)
	}
	if _, err := f.Read("skill://refunds/new.md"); err != ErrUnknown {
		t.Errorf("a new file: %v", err)
	}
	if text, err := f.Read("skill://refunds/SKILL.md"); string(text) != refunds || err != nil {
		t.Errorf("an unchanged file: %q, %v", text, err)
	}
}
