package diagnose

import (
	"encoding/json"
	"slices"
	"testing"

	"junction/auth"
	"junction/cmd/junction/base/config"
	"junction/upstream"
)

// TestAccessesOfUsersAndBoundKeys: a change of the file is compared for keys that may use one endpoint alone, by what
// that endpoint gives, and for the users whom policies name.
func TestAccessesOfUsersAndBoundKeys(t *testing.T) {
	file := func(text string) *config.Config {
		t.Helper()
		c, err := config.Parse("config.yaml", []byte(`
auth:
  api_keys:
    - { name: bot, hash: "`+auth.Hash{1}.String()+`", endpoints: [web] }
    - { name: one, hash: "`+auth.Hash{2}.String()+`", endpoints: [mcp/files] }
    - { name: ann, hash: "`+auth.Hash{3}.String()+`" }
  jwt: [{ issuer: "https://idp.example.com", audiences: [x] }]
public_url: https://mcp.example.com
upstreams: { files: { command: [x] }, notes: { command: [y] } }
endpoints: { web: { upstreams: [notes] } }
`+text), func(string) (string, bool) { return "", false })
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	tool := func(name string) []ListItem {
		return []ListItem{{Name: name, Definition: json.RawMessage(`{"name":"` + name + `","inputSchema":{"type":"object"}}`)}}
	}
	lists := Lists{{Name: "files", Command: []string{"x"}, Items: map[string][]ListItem{upstream.PartTools.String(): tool("read")}},
		{Name: "notes", Command: []string{"y"}, Items: map[string][]ListItem{upstream.PartTools.String(): tool("add")}}}
	before := file(`policies:
  - { name: web, match: { surface: web }, rules: [{ allow: { upstreams: "*" } }] }
  - { name: staff, match: { group: staff }, rules: [{ allow: { upstreams: "*" } }] }
`)
	after := file(`policies:
  - { name: all, match: { kind: key }, rules: [{ allow: { upstreams: files } }] }
  - { name: staff, match: { group: staff }, rules: [{ allow: { upstreams: notes } }] }
  - { name: boss, match: { email: eve@example.com }, rules: [{ ask: { upstreams: files } }] }
`)
	all, _, err := lists.Accesses(before, after)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string][][]string{}
	for _, a := range all {
		got[a.Key+a.Users] = [][]string{a.Gains, a.Loses, a.Asks}
	}
	files, notes := []string{"files__read"}, []string{"notes__add"}
	for who, want := range map[string][][]string{
		"bot": {nil, notes, nil}, "one": {files, nil, nil}, "ann": {files, nil, nil},
		"a user of the group staff":                 {nil, files, nil},
		"the user with the address eve@example.com": {files, nil, files},
	} {
		if !slices.EqualFunc(got[who], want, slices.Equal) {
			t.Errorf("%s has %v, want %v", who, got[who], want)
		}
	}
	if len(got) != 5 {
		t.Errorf("the change is of %v", got)
	}
}
