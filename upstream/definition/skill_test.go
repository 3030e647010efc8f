package definition

import (
	"fmt"
	"strings"
	"testing"

	"junction/upstream/raw"
)

// TestBadSkillsAreLeftOut: a skill that a host could not verify is left out, with the reason.
func TestBadSkillsAreLeftOut(t *testing.T) {
	digest := "sha256:" + strings.Repeat("0a", 32)
	file := func(uri string) string { return fmt.Sprintf(`{"uri":%q,"digest":%q,"size":1}`, uri, digest) }
	entry := func(uri, name, files string) string {
		return fmt.Sprintf(`{"uri":%q,"frontmatter":{"name":%q,"description":"d","x":1.0},"resources":%s}`, uri, name, files)
	}
	const uri = "skill://a/s/SKILL.md"
	own := file(uri)
	files := func(more ...string) string {
		return entry(uri, "s", "["+strings.Join(append([]string{own}, more...), ",")+"]")
	}
	many := make([]string, 600)
	for i := range many {
		many[i] = file(fmt.Sprintf("skill://a/s/%d", i))
	}
	for _, row := range []struct{ name, entry, want string }{
		{"good", files(file("skill://a/s/x/y.md"), file("skill://a/s/100%25.md")), ""},
		{"512 files", files(many[:511]...), ""},
		{"dynamic", entry(uri, "s", `"dynamic"`), ""},
		{"another scheme", entry("github://o/r/s/SKILL.md", "s", "["+file("github://o/r/s/SKILL.md")+"]"), ""},
		{"a local path", entry("file:///srv/s/SKILL.md", "s", "["+file("file:///srv/s/SKILL.md")+"]"), ""},
		{"cut", `{"uri":"skill://a/s/SKILL.md","frontmatter":{"name":"s","description":"d"}}`, "neither a list nor"},
		{"another word", entry(uri, "s", `"later"`), "neither a list nor"},
		{"no frontmatter", `{"uri":"skill://a/s/SKILL.md","resources":"dynamic"}`, "frontmatter"},
		{"two names", `{"uri":"skill://a/s/SKILL.md","frontmatter":{"name":"s","name":"t","description":"d"},` +
			`"resources":"dynamic"}`, "has no name"},
		{"no description", `{"uri":"skill://a/s/SKILL.md","frontmatter":{"name":"s"},"resources":"dynamic"}`, "no description"},
		{"another name", entry(uri, "t", "["+own+"]"), `has the name "t"`},
		{"no SKILL.md", entry("skill://a/s", "s", "["+own+"]"), "is not that of a SKILL.md"},
		{"its SKILL.md is not listed", entry(uri, "s", "["+file("skill://a/s/x")+"]"), "does not have its SKILL.md"},
		{"a file twice", files(file("skill://a/s/x"), file("skill://a/s/x")), "is there twice"},
		{"outside", files(file("skill://a/t/x")), "outside of the folder"},
		{"a folder of the same beginning", files(file("skill://a/s2/x")), "outside of the folder"},
		{"another host", files(file("skill://b/s/x")), "outside of the folder"},
		{"dots", files(file("skill://a/s/../t/x")), "dot segment"},
		{"encoded dots", files(file("skill://a/s/%2E%2e/t/x")), "%2e"},
		{"dots encoded twice", files(file("skill://a/s/%252e%252e/t/x")), "%2e"},
		{"an encoded slash", files(file("skill://a/s/..%2ft")), "%2f"},
		{"an empty segment", files(file("skill://a/s//x")), "empty segment"},
		{"a backslash", files(file(`skill://a/s/..\x`)), "character"},
		{"a query", files(file("skill://a/s/x?y")), "character"},
		{"dots in the skill's path", entry("skill://a/../s/SKILL.md", "s", `"dynamic"`), "dot segment"},
		{"an empty path", entry("skill:///SKILL.md", "", `"dynamic"`), "empty segment"},
		{"600 files", files(many...), "more than 512 files"},
		{"20 MiB", files(`{"uri":"skill://a/s/x","digest":"` + digest + `","size":20971520}`), "more than 16 MiB"},
		{"sizes that overflow", files(`{"uri":"skill://a/s/x","digest":"`+digest+`","size":9223372036854775807}`,
			`{"uri":"skill://a/s/y","digest":"`+digest+`","size":9223372036854775807}`), "more than 16 MiB"},
		{"a negative size", files(`{"uri":"skill://a/s/x","digest":"` + digest + `","size":-1}`), "no size"},
		{"half a byte", files(`{"uri":"skill://a/s/x","digest":"` + digest + `","size":1.5}`), "no size"},
		{"no size", files(`{"uri":"skill://a/s/x","digest":"` + digest + `"}`), "no size"},
		{"an upper-case digest", files(`{"uri":"skill://a/s/x","digest":"sha256:` + strings.Repeat("0A", 32) + `","size":1}`),
			"no digest"},
		{"a short digest", files(`{"uri":"skill://a/s/x","digest":"sha256:00","size":1}`), "no digest"},
		{"another hash", files(`{"uri":"skill://a/s/x","digest":"md5:00","size":1}`), "no digest"},
		{"no object", files(`"x"`), "no object"},
	} {
		o, err := Parse([]byte(row.entry))
		if err != nil {
			t.Fatalf("%s: %v", row.name, err)
		}
		_, _, left := Skills.Mend(o)
		if left == "" {
			left = CheckSkill(o)
		}
		if (left == "") != (row.want == "") || !strings.Contains(left, row.want) {
			t.Errorf("%s: %q, want %q", row.name, left, row.want)
		}
	}
	o, err := raw.Parse([]byte(files(file("skill://a/s/x"))))
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for f := range SkillFiles(o) {
		if n++; f.Digest != digest || f.Size != 1 {
			t.Errorf("read %+v", f)
		}
	}
	if n != 2 {
		t.Errorf("read %d files, want 2", n)
	}
}
