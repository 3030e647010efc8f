package config

import (
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"junction/upstream/yamlread"
)

// mustShare returns what a process with a file compares, as the words of its row.
func mustShare(t *testing.T, text string) []string {
	t.Helper()
	all, err := mustParse(t, text, nil).Shared([]byte("key"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(all)
}

// TestWhatMembersCompare: members over one database need equal values of some keys, show a difference of
// others while a change is rolled out (~), and have values of their own for the rest. The key is named.
func TestWhatMembersCompare(t *testing.T) {
	file := func(more string) string { return "upstreams: { a: { command: [x] } }\n" + more + "\n" }
	signIn := func(provider, more string) string {
		return "public_url: https://a.example\nauth: { oauth: { identity_providers: [{ id: sso, issuer: https://i.example, client_id: c" +
			provider + " }]" + more + " }"
	}
	issuer := func(more string) string {
		return "auth: { jwt: [{ issuer: https://i.example, " + more + " }] }"
	}
	const audience = "audiences: [https://a.example/mcp]"
	for _, test := range []struct{ one, other, want string }{
		{"auth: { none: true }\npublic_url: https://a.example", "auth: { none: true }\npublic_url: https://b.example", "public_url"},
		{"auth: { none: true }\npublic_url: https://a.example", "public_url: http://127.0.0.1:1", "auth.none public_url"},
		{`names: { separator: "_" }`, `names: { separator: "-" }`, "names.separator"},
		{`names: { separator: "__" }`, "", ""}, // the default
		{issuer("audiences: [a]"), issuer("audiences: [b]"), "?auth.jwt.https%3A//i.example.audiences"},
		{issuer(audience), issuer(audience + ", claims: { subject: [oid] }"), "?auth.jwt.https%3A//i.example.claims.subject"},
		{issuer(audience), issuer(audience + ", claims: { groups: [roles] }"), "~auth.jwt.https%3A//i.example.claims.groups"},
		{issuer(audience), "auth: { jwt: [{ issuer: https://i.example, " + audience + " }, { issuer: https://j.example, " + audience + " }] }",
			"~auth.jwt.https%3A//j.example ?auth.jwt.https%3A//j.example.audiences " +
				"?auth.jwt.https%3A//j.example.claims.subject ?auth.jwt.https%3A//j.example.issuer"},
		{"auth: { trusted_proxies: [10.0.0.1/32] }", "auth: { trusted_proxies: [10.0.0.2/32] }", "~auth.trusted_proxies"},
		{"auth: { api_keys: [" + keyA + "] }", "auth: { api_keys: [" + keyB + "] }", "~auth.api_keys"},
		{"auth: { api_keys: [" + keyA + "] }", "", "auth ~auth.api_keys"},
		{signIn(", client_secret: canary-one", "") + " }", signIn(", client_secret: canary-two", "") + " }",
			"~auth.oauth.identity_providers.sso.client_secret"},
		{signIn("", "") + " }", signIn(", subject_claims: [oid]", "") + " }", "?auth.oauth.identity_providers.sso.subject_claims"},
		{signIn("", "") + " }", signIn("", ", tokens: { access_ttl: 20m }") + " }", "~auth.oauth.tokens.access_ttl"},
		{signIn("", "") + ", scope_capabilities: { web: [w] } }", signIn("", "") + ", scope_capabilities: { web: [w], \"a=b\": [w] } }",
			"~auth.scope_capabilities.a%3Db"},
		{signIn("", "") + " }", signIn("", ", clients: { static: [{ id: old, redirect_uris: [https://b.example/] }] }") + " }",
			"~auth.oauth.clients.static.old ?auth.oauth.clients.static.old.id ~auth.oauth.clients.static.old.redirect_uris"},
		{signIn("", "") + " }", "public_url: https://a.example\nauth: { api_keys: [" + keyA + "] }",
			"~auth.api_keys auth.oauth ~auth.oauth.identity_providers.sso ~auth.oauth.identity_providers.sso.client_id " +
				"?auth.oauth.identity_providers.sso.id ?auth.oauth.identity_providers.sso.issuer " +
				"?auth.oauth.identity_providers.sso.subject_claims"},
		{"limits: { requests: 7 }", "limits: { requests: 8 }", "~limits.requests"},
		{"limits: { requests: 2000 }", "", ""},
		{"defaults: { timeout: 7s }", "defaults: { timeout: 8s }", "~defaults.timeout"},
		{"allowed_origins: [https://a.example]", "", "~allowed_origins"},
		{"sessions: { key_file: /a, idle: 1h }", "sessions: { key_file: /b, idle: 2h }", "~sessions.idle"},
		{"endpoints: { web: { upstreams: [a] } }", "", "~endpoints"},
		{`policies: [{ name: p, rules: [{ allow: { upstreams: "*" } }] }]`, `policies: [{ name: q, rules: [{ allow: { upstreams: "*" } }] }]`, "~policies"},
		{"shutdown_grace: 7s", "shutdown_grace: 8s", "~shutdown_grace"},
		{"listen: 127.0.0.1:1", "listen: 127.0.0.1:2", ""},
		{"log: { level: debug }", "log: { level: info }", ""},
	} {
		one, other := mustShare(t, file(test.one)), mustShare(t, file(test.other))
		var differ []string
		for _, part := range slices.Concat(one, other) {
			name, _, _ := strings.Cut(part, "=")
			if !(slices.Contains(one, part) && slices.Contains(other, part)) && !slices.Contains(differ, name) {
				differ = append(differ, name)
			}
		}
		slices.SortFunc(differ, func(a, b string) int { return strings.Compare(strings.Trim(a, "~?"), strings.Trim(b, "~?")) })
		if got := strings.Join(differ, " "); got != test.want {
			t.Errorf("members with %q and %q differ in %q, want %q", test.one, test.other, got, test.want)
		}
	}
	if plain := mustShare(t, file("")); len(plain) != 2 { // with the schema
		t.Errorf("a file without other keys than upstreams has the parts %q", plain)
	}
}

// TestEntriesHaveAnIdentity: members compare the entries of a list one by one if the table knows the key that
// tells them apart.
func TestEntriesHaveAnIdentity(t *testing.T) {
	var walk func(path string, of reflect.Type)
	walk = func(path string, of reflect.Type) {
		for of.Kind() == reflect.Pointer {
			of = of.Elem()
		}
		if of.Kind() != reflect.Struct {
			return
		}
		for key, i := range yamlread.Keys(of) {
			field, at := of.FieldByIndex(i), yamlread.Join(path, key)
			among, _ := yamlread.AmongOf(field)
			if among == yamlread.AmongSteps && field.Type.Kind() == reflect.Slice && identities[at] == "" {
				t.Errorf("members compare the entries of %s; write into identities which key tells them apart", at)
			}
			walk(at, field.Type)
		}
	}
	walk("", reflect.TypeFor[Config]())
}

// TestTheChartReplacesPods: the chart replaces the pods if a key changes that needs a restart, or that all
// members must have equal, and for no other key.
func TestTheChartReplacesPods(t *testing.T) {
	const template = "../../deploy/helm/templates/junction.yaml"
	text, err := os.ReadFile(template)
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile(`checksum/restart: \{\{ list (.*) \}\}`).FindStringSubmatch(string(text))
	if line == nil {
		t.Fatal("there is no checksum/restart")
	}
	var have []string
	pick, dig, _ := strings.Cut(line[1], ")")
	for _, m := range regexp.MustCompile(`"(\w+)"`).FindAllStringSubmatch(pick, -1) {
		have = append(have, m[1])
	}
	for _, m := range regexp.MustCompile(`dig "auth" "(\w+)"`).FindAllStringSubmatch(dig, -1) {
		have = append(have, "auth."+m[1])
	}
	var hard func(of reflect.Type) bool
	hard = func(of reflect.Type) bool {
		for of.Kind() == reflect.Pointer || of.Kind() == reflect.Slice {
			of = of.Elem()
		}
		if of.Kind() != reflect.Struct {
			return false
		}
		for _, i := range yamlread.Keys(of) {
			field := of.FieldByIndex(i)
			if among, _ := yamlread.AmongOf(field); among == yamlread.AmongHard || hard(field.Type) {
				return true
			}
		}
		return false
	}
	want := []string{"auth.api_keys"} // whether there are any: authentication is on or off
	for _, of := range []struct {
		at string
		of reflect.Type
	}{{"", reflect.TypeFor[Config]()}, {"auth", reflect.TypeFor[Auth]()}} {
		for key, i := range yamlread.Keys(of.of) {
			field, at := of.of.FieldByIndex(i), yamlread.Join(of.at, key)
			among, _ := yamlread.AmongOf(field)
			if at != "auth" && (effects[at] == restarts || among == yamlread.AmongHard || hard(field.Type)) {
				want = append(want, at)
			}
		}
	}
	slices.Sort(have)
	slices.Sort(want)
	if !slices.Equal(have, want) {
		t.Errorf("%s replaces the pods for\n%q, want\n%q", template, have, want)
	}
}

// TestHardKeysWaitForARestart: a member follows a changed file without the keys that all members must have
// equal. A process alone follows them at once.
func TestHardKeysWaitForARestart(t *testing.T) {
	file := func(more string) string {
		return "upstreams: { a: { command: [x] } }\nstorage: { driver: postgres, dsn: x, key_file: /m }\nsessions: { key_file: /k }\n" + more
	}
	const several = "replicas: { listen: 127.0.0.1:0, advertise: 127.0.0.1:0 }\n"
	issuer := func(audience, url string) string {
		return "auth: { jwt: [{ issuer: https://i.example, audiences: [" + audience + "], jwks_url: " + url + " }] }\n"
	}
	for _, tt := range []struct{ old, next, waits string }{
		{`names: { separator: "_" }`, `names: { separator: "-" }`, "names"},
		{"auth: { none: true }\npublic_url: https://a.example", "auth: { none: true }\npublic_url: https://b.example", "public_url"},
		{"", "auth: { api_keys: [" + keyA + "] }", "auth"},
		{issuer("a", "https://i.example/k"), issuer("b", "https://i.example/k"), "auth.jwt"},
		{issuer("a", "https://i.example/k"), issuer("a", "https://i.example/l"), ""},
		{"auth: { api_keys: [" + keyA + "] }", "auth: { api_keys: [" + keyB + "] }", ""},
		{"allowed_origins: [https://a.example]", "", ""},
		{issuer("a", "https://i.example/k"), strings.Replace(issuer("a", "https://i.example/k"), "jwks_url", "claims: { subject: [oid] }, jwks_url", 1), "auth.jwt"},
	} {
		for _, of := range []string{several, ""} {
			old, next := mustParse(t, file(of+tt.old), nil), mustParse(t, file(of+tt.next), nil)
			change, want := old.Follow(next), tt.waits
			if of == "" {
				want = ""
			}
			// Without the first key, requests would not be authenticated: then both files decide.
			if got := strings.Join(change.Restart, " "); got != want || (change.Refused != nil) != (got == "auth") {
				t.Errorf("from %q to %q, with %q: %q waits (%v), want %q", tt.old, tt.next, of, got, change.Refused, want)
			}
			if paths := hardDiffering(old, change.Config); len(paths) > 0 && of != "" {
				t.Errorf("from %q to %q: the member differs from the others in %q", tt.old, tt.next, paths)
			}
		}
	}
}

// TestReadmeHasWhatMembersCompare: the page for operators lists the keys of each kind. Who changes a tag runs
// go generate.
func TestReadmeHasWhatMembersCompare(t *testing.T) {
	const page = "../replicas/README.md"
	kinds := map[yamlread.Among][]string{}
	kindsIn("", "", reflect.TypeFor[Config](), kinds)
	made := "\n"
	for _, kind := range []struct {
		among yamlread.Among
		name  string
	}{{yamlread.AmongHard, "hard"}, {yamlread.AmongSteps, "in steps"}, {yamlread.AmongRolls, "rolls"}, {yamlread.AmongHot, "own"}} {
		list := slices.Compact(slices.Sorted(slices.Values(kinds[kind.among])))
		line := "- **" + kind.name + "**:"
		for i, key := range list {
			word := " `" + key + "`,"
			if i == len(list)-1 {
				word = strings.TrimSuffix(word, ",")
			}
			if last := line[strings.LastIndexByte(line, '\n')+1:]; len(last)+len(word) > 100 {
				line += "\n "
			}
			line += word
		}
		made += line + "\n"
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile(`(?s)(<!-- keys by kind: .*? -->\n).*?(<!-- end of keys by kind -->)`)
	next := block.ReplaceAllString(string(text), "${1}"+made+"\n${2}")
	if *update && next != string(text) {
		mustWrite(t, page, next)
	} else if next != string(text) || !block.Match(text) {
		t.Errorf("%s has other kinds of keys than the tags; run go generate ./cmd/junction/base/config", page)
	}
}

// kindsIn adds the keys of a section to their kinds. A section whose keys are all of one kind is one key. It
// returns the kinds that the section has.
func kindsIn(path string, around yamlread.Among, of reflect.Type, kinds map[yamlread.Among][]string) (all []yamlread.Among) {
	for of.Kind() == reflect.Pointer || around == yamlread.AmongSteps && of.Kind() == reflect.Slice {
		of = of.Elem()
	}
	inside := map[yamlread.Among][]string{}
	for key, i := range yamlread.Keys(of) {
		field, at := of.FieldByIndex(i), yamlread.Join(path, key)
		among, _ := yamlread.AmongOf(field)
		if among == "" {
			among = around
		}
		element, below := field.Type, among
		for element.Kind() == reflect.Pointer || among == yamlread.AmongSteps && element.Kind() == reflect.Slice {
			element = element.Elem()
		}
		if among == yamlread.AmongSteps {
			below = yamlread.AmongHard
			inside[among] = append(inside[among], at)
		}
		if element.Kind() != reflect.Struct || len(yamlread.Keys(element)) == 0 {
			inside[below] = append(inside[below], at)
			if all = append(all, below); among == yamlread.AmongSteps { // a map
				inside[below] = slices.DeleteFunc(inside[below], func(s string) bool { return s == at })
				all[len(all)-1] = among
			}
			continue
		}
		all = append(all, kindsIn(at, below, element, inside)...)
		all = append(all, among)
	}
	slices.Sort(all)
	if all = slices.Compact(all); len(all) == 1 && path != "" && all[0] != yamlread.AmongSteps {
		kinds[all[0]] = append(kinds[all[0]], path)
		return all
	}
	for among, list := range inside {
		kinds[among] = append(kinds[among], list...)
	}
	return all
}
