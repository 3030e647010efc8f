package skills

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"junction/integration/harness"
	"junction/upstream"
	"junction/upstream/client"
	"junction/upstream/raw"
	"junction/upstream/upstreamtest"
)

// The extension for skills (SEP-2640) over each wire. A host verifies each file that it reads, and so
// do these tests: whatever Junction hides, it never shows a digest that does not match.

const extension = "io.modelcontextprotocol/skills"

// library is a server with skills: refunds, and the skill legal nested in it, whose files are also
// files of refunds.
func library(name string) upstreamtest.Script {
	s := upstreamtest.Script{Contents: map[string]json.RawMessage{}, Directories: map[string]json.RawMessage{}}
	add := func(folder, body string, files map[string]string) {
		entry, contents := upstreamtest.Skill(folder, body, files)
		s.Skills = append(s.Skills, entry)
		maps.Copy(s.Contents, contents)
	}
	legal, _ := upstreamtest.Skill("skill://acme/refunds/legal", "Ask a lawyer of "+name+".", nil)
	_, files := upstreamtest.Skill("skill://acme/refunds/legal", "Ask a lawyer of "+name+".", nil)
	contents, _ := raw.Elements(files["skill://acme/refunds/legal/SKILL.md"])
	text, _ := raw.Get(contents[0], "text")
	inner, _ := raw.String(text)
	add("skill://acme/refunds", "See [the mail](examples/mail.md). "+name,
		map[string]string{"examples/mail.md": "Dear ü,\n" + name, "legal/SKILL.md": inner})
	s.Skills = append(s.Skills, legal)
	add("skill://plain", "Nothing secret.", nil)
	s.Directories["skill://acme/refunds"] = json.RawMessage(`[{"uri":"skill://acme/refunds/SKILL.md","name":"SKILL.md"},` +
		`{"uri":"skill://acme/refunds/examples","name":"examples","mimeType":"inode/directory"},` +
		`{"uri":"skill://acme/refunds/legal","name":"legal","mimeType":"inode/directory"}]`)
	s.Directories["skill://acme/refunds/examples"] = json.RawMessage(
		`[{"uri":"skill://acme/refunds/examples/mail.md","name":"mail.md","x":1.0}]`)
	return s
}

// over starts a junction over two servers with skills of the same names.
func over(t *testing.T, p harness.Pair, change func(*harness.Setup)) (map[string]*harness.Served, *harness.Junction) {
	t.Helper()
	ups, w := map[string]*harness.Served{}, harness.Setup{Upstreams: map[string]upstream.Config{}}
	for _, name := range []string{"a", "b"} {
		ups[name] = p.Serve(t, library(name))
		w.Upstreams[name] = harness.Exact(ups[name].Config)
	}
	if change != nil {
		change(&w)
	}
	j := harness.Start(t, p, w)
	j.Offers(t, "a", "b")
	return ups, j
}

// file is a file of a skill, as an entry promises it.
type file struct {
	URI, Digest string
	Size        int
}

// skill is an entry.
type skill struct {
	URI         string
	Frontmatter struct{ Name, Description string }
	Resources   []file
	Meta        map[string]any `json:"_meta"`
}

func mustEntry(t *testing.T, text []byte) (s skill) {
	t.Helper()
	if err := json.Unmarshal(text, &s); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return s
}

// listed returns the skills of a client, by URI.
func listed(t *testing.T, c *harness.Talker) map[string]skill {
	t.Helper()
	items, _ := c.Drain(t, "skills/list", "skills")
	all := map[string]skill{}
	for _, item := range items {
		s := mustEntry(t, item)
		all[s.URI] = s
	}
	return all
}

// verify reads each file of a skill, as a host does, and returns how many do not match.
func verify(t *testing.T, c *harness.Talker, s skill) {
	t.Helper()
	for _, f := range s.Resources {
		_, text := c.Read(t, f.URI)
		if digest := fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(text))); digest != f.Digest || len(text) != f.Size {
			t.Errorf("%s has %d bytes and %s, want %d and %s: %q", f.URI, len(text), digest, f.Size, f.Digest, text)
		}
	}
}

func TestSkillsOfTwoServersAreVerified(t *testing.T) {
	harness.Waits(t)
	harness.EachPair(t, func(t *testing.T, p harness.Pair) {
		ups, j := over(t, p, nil)
		c := j.Talk(t)
		all := listed(t, c)
		want := []string{"skill://a/acme/refunds/SKILL.md", "skill://a/acme/refunds/legal/SKILL.md", "skill://a/plain/SKILL.md",
			"skill://b/acme/refunds/SKILL.md", "skill://b/acme/refunds/legal/SKILL.md", "skill://b/plain/SKILL.md"}
		if got := slices.Sorted(maps.Keys(all)); !slices.Equal(got, want) {
			t.Fatalf("listed %q\nwant   %q", got, want)
		}
		for uri, s := range all {
			verify(t, c, s)
			got := c.Must(t, "skills/get", `"uri":"`+uri+`"`)
			if fresh := harness.Member(got, "ttlMs") + harness.Member(got, "cacheScope"); c.Era == client.EraModern && fresh != `0"private"` {
				t.Errorf("skills/get %s = %s, want ttlMs and cacheScope in the modern era", uri, got)
			}
			one, err := raw.Get(got, "skill")
			if err != nil {
				t.Fatalf("skills/get %s = %s", uri, got)
			}
			if again := mustEntry(t, one); !slices.Equal(again.Resources, s.Resources) || again.URI != uri {
				t.Errorf("skills/get %s = %s, and the list has %+v", uri, one, s)
			}
			if owner := strings.Split(uri, "/")[2]; s.Meta["junction/upstream"] != owner {
				t.Errorf("%s says %v about its origin, want %s", uri, s.Meta, owner)
			}
		}
		for _, params := range []string{`"uri":"skill://a/acme/refunds/examples"`, `"uri":"skill://a/acme/refunds"`} {
			list, _ := raw.Get(c.Must(t, "resources/directory/read", params), "resources")
			if !strings.Contains(string(list), `"uri":"skill://a/acme/refunds/`) || strings.Contains(string(list), `//acme`) {
				t.Errorf("directory %s = %s", params, list)
			}
		}
		for method, uri := range map[string]string{"skills/get": "skill://a/none/SKILL.md",
			"resources/directory/read": "skill://a/acme/refunds/SKILL.md"} {
			harness.WantCode(t, c.Ask(t, method, `"uri":"`+uri+`"`), -32602)
		}
		bare := j.TalkTo(t, "/a")
		own := listed(t, bare)
		if got := slices.Sorted(maps.Keys(own)); !slices.Equal(got, []string{"skill://acme/refunds/SKILL.md",
			"skill://acme/refunds/legal/SKILL.md", "skill://plain/SKILL.md"}) {
			t.Errorf("on the server's own endpoint %q", got)
		}
		for _, s := range own {
			verify(t, bare, s)
		}
		for _, r := range ups["b"].RequestsOf(t, "resources/read", 1) {
			if uri := harness.Text(t, r.Message.Params, "uri"); strings.HasPrefix(uri, "skill://b/") {
				t.Errorf("the server was asked for %s", uri)
			}
		}
	})
}

// TestSkillsAreDeclaredWhereTheyAre: the extension is declared exactly on the endpoints with skills,
// and its methods do not exist elsewhere.
func TestSkillsAreDeclaredWhereTheyAre(t *testing.T) {
	harness.Waits(t)
	harness.EachEra(t, func(t *testing.T, p harness.Pair) {
		with, few, without := p.Serve(t, library("a")), library("b"), p.Serve(t, upstreamtest.Script{})
		few.Directories = nil
		other := p.Serve(t, few)
		empty := p.Serve(t, upstreamtest.Script{Capabilities: json.RawMessage(
			`{"tools":{},"resources":{},"extensions":{"` + extension + `":{}}}`)})
		j := harness.Start(t, p, harness.Setup{Upstreams: map[string]upstream.Config{"a": harness.Exact(with.Config),
			"b": harness.Exact(other.Config), "c": harness.Exact(without.Config), "d": harness.Exact(empty.Config)}})
		j.Offers(t, "a", "b", "c", "d")
		for path, want := range map[string]string{"": `{}`, "/a": `{"directoryRead":true}`, "/b": `{}`, "/c": "", "/d": ""} {
			c := j.TalkTo(t, path)
			got, _ := raw.Get(c.Declared(t), "extensions", extension)
			if string(got) != want {
				t.Errorf("%s declares %q, want %q", path, got, want)
			}
			if m := c.Ask(t, "skills/list", ""); (m.Error == nil) != (want != "") {
				t.Errorf("skills/list of %s: %v", path, m.Error)
			} else if m.Error != nil {
				harness.WantCode(t, m, -32601)
			}
		}
	})
}

// TestPoliciesHideWholeSkills: whatever a policy hides, the other skills verify, and the hidden one is
// unknown to each method.
func TestPoliciesHideWholeSkills(t *testing.T) {
	harness.Waits(t)
	const all = `- { name: all, rules: [ { allow: { upstreams: "*" } } ] }` + "\n"
	deny := func(rule string) string {
		return all + `- { name: no, enforced: true, rules: [ { deny: { ` + rule + ` } } ] }` + "\n"
	}
	const outer, inner, plain = "skill://a/acme/refunds/SKILL.md", "skill://a/acme/refunds/legal/SKILL.md", "skill://a/plain/SKILL.md"
	rows := []struct {
		name, policy string
		want         []string
		unread       string // a file that must not be read
	}{
		{"everything", all, []string{outer, inner, plain}, ""},
		{"a file", deny(`resources: "*/mail.md"`), []string{inner, plain}, "skill://a/acme/refunds/examples/mail.md"},
		{"a file by its own URI", deny(`resources: "skill://acme/refunds/examples/*"`), []string{inner, plain},
			"skill://a/acme/refunds/examples/mail.md"},
		{"a file as earlier versions named it", deny(`resources: "mcp://a/skill://acme/refunds/examples/*"`),
			[]string{inner, plain}, "skill://a/acme/refunds/examples/mail.md"},
		{"the nested skill, and so the one around it", deny(`skills: "a/acme/refunds/legal"`), []string{plain}, inner},
		{"by name", deny(`skills: "*/plain"`), []string{outer, inner}, plain},
		{"only one", `- { name: one, rules: [ { allow: { skills: "a/plain" } } ] }` + "\n", []string{plain}, outer},
		{"resources without skills", `- { name: r, rules: [ { allow: { resources: "*" } } ] }` + "\n", nil, ""},
		{"asked", all + `- { name: ask, enforced: true, rules: [ { ask: { skills: "a/plain" } } ] }` + "\n",
			[]string{outer, inner, plain}, ""},
		{"an upstream", deny(`upstreams: a`), nil, plain},
		{"a capability that the caller lacks", all, nil, inner},
		{"a file that is asked for", all + `- { name: ask, enforced: true, rules: [ { ask: { resources: "*/mail.md" } } ] }` + "\n",
			[]string{outer, inner, plain}, ""},
		{"pinned, and nothing accepted", all + `- { name: p, pinned: true }` + "\n", nil, ""},
		{"validate and limits", all + `- { name: v, validate: true, limits: { rate: 6000/m, burst: 1000 } }` + "\n",
			[]string{outer, inner, plain}, ""},
		{"known forms of secrets", all + `- { name: r, redact: [secrets] }` + "\n", []string{outer, inner, plain}, ""},
		{"redacted text that comes back", all +
			`- { name: r, redact: { restore: true, patterns: [ { name: r, re: "lawyer" } ] } }` + "\n",
			[]string{outer, inner, plain}, inner},
		{"a redaction that matches the URI of a file", all + `- { name: r, redact: [ { name: r, re: "examples/mail" } ] }` + "\n",
			[]string{inner, plain}, ""},
		{"redacted text of a file", all + `- { name: r, redact: [ { name: r, re: "lawyer" } ] }` + "\n",
			[]string{outer, inner, plain}, inner},
		{"redacted frontmatter", all + `- { name: r, redact: [ { name: r, re: "Does legal" } ] }` + "\n",
			[]string{outer, plain}, inner},
		{"a redaction that matches digests", all + `- { name: r, redact: [ { name: r, re: "sha256:[0-9a-f]{64}" } ] }` + "\n",
			[]string{outer, inner, plain}, ""},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			harness.EachEra(t, func(t *testing.T, p harness.Pair) {
				if p.Client != p.Upstream && testing.Short() {
					return // a policy knows no eras
				}
				guard, keys := harness.Keyring(t, "k")
				_, j := over(t, p, func(w *harness.Setup) {
					w.Guard, w.Policy = guard, harness.MustPolicy(t, row.policy)
					if up := w.Upstreams["a"]; strings.HasPrefix(row.name, "a capability") {
						up.Capabilities = []string{"legal"}
						w.Upstreams["a"] = up
					}
				})
				c := j.As(t, keys["k"], func(c *harness.Talker) { c.Capabilities = "{}" }) // nobody can be asked
				all := map[string]skill{}
				if row.want != nil {
					all = listed(t, c)
				}
				var got []string
				for _, uri := range slices.Sorted(maps.Keys(all)) {
					if strings.HasPrefix(uri, "skill://a/") {
						got = append(got, uri)
					}
				}
				if !slices.Equal(got, row.want) {
					t.Errorf("listed %q, want %q", got, row.want)
				}
				for _, uri := range []string{outer, inner, plain} {
					m := c.Ask(t, "skills/get", `"uri":"`+uri+`"`)
					shown := slices.Contains(row.want, uri)
					if row.name == "asked" && uri == plain { // listed, and not without the user
						if m.Error == nil && harness.Member(m.Result, "skill") != "" {
							t.Errorf("skills/get %s without an approval: %s", uri, m.Result)
						}
						continue
					}
					if shown != (m.Error == nil) {
						t.Errorf("skills/get %s: %v", uri, m.Error)
					}
					if !shown && m.Error.Code != -32602 && m.Error.Code != -32601 {
						t.Errorf("skills/get %s: %v, want -32602", uri, m.Error)
					}
				}
				if row.unread != "" {
					if m := c.Ask(t, "resources/read", `"uri":"`+row.unread+`"`); m.Error == nil {
						t.Errorf("%s was read: %s", row.unread, m.Result)
					}
				}
				for uri, s := range all {
					for _, f := range s.Resources { // each file that can be read verifies
						m := c.Ask(t, "resources/read", `"uri":"`+f.URI+`"`)
						if m.Error != nil || m.Result == nil {
							continue
						}
						contents, _ := raw.Get(m.Result, "contents")
						if list, _ := raw.Elements(contents); len(list) == 1 {
							text := harness.Text(t, list[0], "text")
							if fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(text))) != f.Digest {
								t.Errorf("%s of %s does not match its digest: %q", f.URI, uri, text)
							}
						}
					}
				}
			})
		})
	}
}
