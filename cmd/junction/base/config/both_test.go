package config

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"junction/auth"
	"junction/policy"
	"junction/proxy/proxytest"
	"junction/proxy/scope"
	"junction/proxy/view"
	"junction/upstream"
	"junction/upstream/client"
	"junction/upstream/raw"
	"junction/upstream/yamlread"
)

// TestEveryKeyHasAnEffect: a new key of the file needs the tag change, with words that exist, and a key
// at the top also the tag members.
func TestEveryKeyHasAnEffect(t *testing.T) {
	var all []string
	walkKeys(reflect.TypeFor[Config](), "", &all)
	parents := map[string]bool{"": true}
	for key := range effects {
		parents[parentOf(key)] = true
	}
	for _, key := range all {
		if effects[key] == 0 && parents[parentOf(key)] {
			t.Errorf("%s has no effect: what does a reload do with the key? Write the tag change", key)
		}
	}
	for key, effect := range effects {
		if effect == inside && !parents[key] {
			t.Errorf("the effects of the keys in %s are missing", key)
		}
	}
	seen := map[reflect.Type]bool{}
	var tags func(t0 reflect.Type, top bool)
	tags = func(t0 reflect.Type, top bool) {
		for t0.Kind() == reflect.Pointer || t0.Kind() == reflect.Slice || t0.Kind() == reflect.Map {
			t0 = t0.Elem()
		}
		if t0.Kind() != reflect.Struct || seen[t0] {
			return
		}
		seen[t0] = true
		for _, field := range reflect.VisibleFields(t0) {
			if key := field.Tag.Get("yaml"); key == "" || key == "-" {
				continue
			}
			if _, _, err := yamlread.ChangeOf(field); err != nil {
				t.Error(t0, err)
			}
			among, err := yamlread.AmongOf(field)
			if err != nil {
				t.Error(t0, err)
			}
			if top && among == "" {
				t.Errorf("may members differ in %s? Write the tag members", field.Name)
			}
			tags(field.Type, false)
		}
	}
	tags(reflect.TypeFor[Config](), true)
}

func parentOf(key string) string { return key[:max(0, strings.LastIndexByte(key, '.'))] }

// refusedPair returns what is in force after a reload from one file to another one that is refused in part.
func refusedPair(t *testing.T, old, next string) (before, after *Config, change Change) {
	t.Helper()
	before, after = mustParse(t, old, nil), mustParse(t, next, nil)
	change = before.Follow(mustParse(t, next, nil))
	change.Refuse(errors.New("cannot open the audit"))
	return before, after, change
}

// A visitor sends calls to what a configuration puts in force.
type visitor struct {
	snapshot *scope.Snapshot
	guard    *auth.Guard
	keys     keysOf
}

// configured is a backend with an entry of the file, and the tools read, delete and a long name.
type configured struct {
	*proxytest.Backend
	config upstream.Config
}

func (c *configured) Config() upstream.Config { return c.config }

func newVisitor(t *testing.T, c *Config, keys ...apiKey) *visitor {
	t.Helper()
	p, err := c.Compile()
	if err != nil {
		t.Fatal(err)
	}
	providers := auth.NewProviders(nil)
	t.Cleanup(providers.Close)
	v := &visitor{guard: c.Auth.Guard(providers, "http://127.0.0.1", nil), keys: keys}
	var backends []view.Backend
	for _, name := range []string{"u", "v"} {
		config, there := c.Upstreams[name]
		if !there || config.Off() {
			continue
		}
		catalog := &upstream.Catalog{Era: client.EraLegacy, Listed: time.Now()}
		for _, tool := range []string{"read", "delete", strings.Repeat("long", 12)} {
			catalog.Tools = append(catalog.Tools, proxytest.MustTool(t, `{"name":"`+tool+`","inputSchema":{"type":"object"}}`))
		}
		o, err := raw.Parse([]byte(`{"name":"ask"}`))
		if err != nil {
			t.Fatal(err)
		}
		catalog.Prompts = []upstream.Item{{Name: "ask", Definition: o.Forget()}}
		catalog.Capabilities, err = raw.Parse([]byte(`{"resources":{}}`))
		if err != nil {
			t.Fatal(err)
		}
		backends = append(backends, &configured{&proxytest.Backend{Named: name, Lists: catalog}, config})
	}
	v.snapshot = scope.New(scope.Config{Names: c.Names.WithDefaults(), Endpoints: c.Endpoints, Guard: v.guard, Policy: p},
		backends, nil, new(scope.Made))
	return v
}

// A visit is one call.
type visit struct {
	key             int // the number of a key; 0 for none
	from, forwarded string
	at              string // the endpoint, as scope names it
	kind            upstream.Part
	name, arguments string
}

// makes returns the verdict of a call, and the item; deny if the caller is rejected, or does not see the item.
func (v *visitor) makes(t *testing.T, call visit) (d policy.Decision, item *view.Target) {
	t.Helper()
	r := httptest.NewRequest(http.MethodPost, "http://127.0.0.1/mcp", nil)
	r.RemoteAddr = call.from + ":1"
	if call.key > 0 {
		r.Header.Set("Authorization", "Bearer "+v.keys[call.key-1].key)
	}
	if call.forwarded != "" {
		r.Header.Set("X-Forwarded-For", call.forwarded)
	}
	who := v.guard.Authenticate(httptest.NewRecorder(), r)
	if who == nil {
		return policy.Decision{}, nil
	}
	c := scope.Caller{Snapshot: v.snapshot, Principal: who}
	if c.Enter(call.at).None() || c.Endpoint == nil || c.Hidden() {
		return policy.Decision{}, nil
	}
	target := c.Subject.Named(call.kind, call.name)
	if call.kind == upstream.PartResources {
		target, _ = c.Subject.Resource(call.name)
	}
	if target == nil || !c.Subject.Ruling(target).Visible() {
		return policy.Decision{}, nil
	}
	arguments, err := raw.Parse([]byte(call.arguments))
	if err != nil {
		t.Fatal(err)
	}
	if d, err = c.Subject.Ruling(target).Decide(arguments); err != nil {
		t.Fatal(err)
	}
	return d, target
}

// keysOf has the keys of generated files, with their hashes.
type keysOf []apiKey

type apiKey struct{ key, hash string }

// partsOf are the parts of a generated file.
var partsOf = []func(pick func(...string) string, keys keysOf) string{
	func(pick func(...string) string, _ keysOf) string {
		return pick("", "", `names: { separator: "-" }`, "names: { max_length: 30 }", "names: { app_tools: false }")
	},
	func(pick func(...string) string, _ keysOf) string {
		return pick("", "allowed_hosts: [a, b]\nallowed_origins: [https://a.example]", "allowed_hosts: [b, c]")
	},
	func(pick func(...string) string, keys keysOf) string {
		text := ""
		for i, k := range keys {
			if pick("", "", "", "without") == "" {
				text += fmt.Sprintf("    - { name: %s, hash: %q%s }\n", string(rune('a'+i)), k.hash,
					pick("", "", "", "", ", cidrs: [192.0.2.0/24]", ", cidrs: [198.51.100.0/24]", ", endpoints: [mcp, ops]",
						", endpoints: [mcp/u]", ", expires: 2001-01-01", ", expires: 2999-01-01"))
			}
		}
		if text != "" {
			text = "  api_keys:\n" + text
		}
		text += pick("", "", "  trusted_proxies: [192.0.2.0/24]\n", "  trusted_proxies: [192.0.2.1/32, 203.0.113.0/24]\n")
		if text == "" {
			return ""
		}
		return "auth:\n" + text
	},
	func(pick func(...string) string, _ keysOf) string {
		text := "upstreams:\n"
		for _, name := range []string{"u", "v"} {
			text += "  " + name + ": { command: [x" + pick("", "y") + "]" + pick("", "", "", "", "", ", enabled: false") +
				pick("", "", "", ", prefix: p"+name, map[string]string{"u": `, prefix: ""`}[name]) +
				pick("", "", "", ", expose: listed") + pick("", "", "", "", ", capabilities: [c]", ", capabilities: [d]") +
				pick("", "", ", tools: { read: {} }", ", tools: { delete: { enabled: false } }", ", tools: { read: { as: look } }",
					`, tools: { "d*": { capabilities: [d] }, read: { enabled: true } }`) + " }\n"
		}
		return text
	},
	func(pick func(...string) string, _ keysOf) string {
		return "endpoints: { ops: { upstreams: [" + pick("u", "u, v") + "] }" + pick("", ", web: {}", ", web: {}",
			", web: { upstreams: [u] }", ", web: { upstreams: [u], surface: cli }", ", web: { match: { key: a } }",
			", web: { match: { cidr: 192.0.2.0/24 } }") + " }"
	},
	func(pick func(...string) string, _ keysOf) string {
		if pick("", "", "", "", "none") != "" {
			return ""
		}
		text := "policies:\n"
		for i := range 3 {
			text += fmt.Sprintf("  - { name: p%d, ", i) + pick("", "", "match: { key: a }, ", "match: { surface: web }, ",
				"match: { cidr: 192.0.2.0/24 }, ", "match: { kind: local }, ") + pick("", "", "capabilities: [c, d], ",
				"capabilities: [c], ") + pick("", "", "", "enforced: true, ") +
				pick("", "", "", "", "", "endpoints: [mcp, ops], ") + "rules: ["
			for range 2 {
				text += "{ " + pick("allow", "allow", "allow", "allow", "ask", "ask", "deny") + ": { " + pick(`upstreams: "*"`,
					`upstreams: "*"`, `upstreams: "*"`, "upstreams: u", `tools: "*read"`, `tools: [u__delete, "*look"]`,
					`prompts: "*"`, `resources: "note:*"`, `tools: "*", where: { x: "a*" }`,
					`tools: "u*", where: { x: b }`) + " } }, "
			}
			text += "] }\n"
		}
		return text
	},
}

// TestRefusedReloadAllowsNoMoreThanEitherFile generates pairs of files, and refuses the reload from one to the
// other in part. For each caller, address, endpoint, item and argument, the verdict is at most that of
// either file. Where the files agree about the rest, and differ in policies only, it is the stricter one.
func TestRefusedReloadAllowsNoMoreThanEitherFile(t *testing.T) {
	keys := make(keysOf, 3)
	for i := range keys {
		keys[i].key = auth.NewKey()
		hash, err := auth.HashKey(keys[i].key)
		if err != nil {
			t.Fatal(err)
		}
		keys[i].hash = hash.String()
	}
	random := rand.New(rand.NewPCG(40, 12))
	seen := map[string]int{}
	pick := func(variants ...string) string { return variants[random.IntN(len(variants))] }
	for range 300 {
		var oldParts, nextParts []string // the newer file is the older one after an edit of some parts
		for _, part := range partsOf {
			oldParts = append(oldParts, part(pick, keys))
		}
		nextParts = slices.Clone(oldParts)
		for range 1 + random.IntN(3) {
			i := random.IntN(len(partsOf))
			nextParts[i] = partsOf[i](pick, keys)
		}
		old, next := strings.Join(oldParts, "\n")+"\n", strings.Join(nextParts, "\n")+"\n"
		before, after, change := refusedPair(t, old, next)
		files := [3]*visitor{newVisitor(t, before, keys...), newVisitor(t, after, keys...),
			newVisitor(t, change.Config, keys...)}
		names := []visit{{kind: upstream.PartResources, name: "mcp://u/note:1"}, {kind: upstream.PartTools, name: "read"},
			{kind: upstream.PartResources, name: "mcp://v/note:1"}}
		for _, file := range files { // as clients see them, on /mcp and on the endpoint of a server
			for _, at := range []string{"", "u", "v"} {
				for _, part := range []upstream.Part{upstream.PartTools, upstream.PartPrompts} {
					if e := file.snapshot.Endpoints[at]; e != nil {
						for target := range e.View.All(part) {
							names = append(names, visit{kind: part, name: target.Exposed, at: at})
						}
					}
				}
			}
		}
		for range 100 {
			call := names[random.IntN(len(names))]
			if i := random.IntN(4 * len(keys)); i > 0 { // key a, as policies name it, comes more often
				call.key = 1 + max(0, i-3*len(keys))
			}
			call.from = []string{"127.0.0.1", "192.0.2.1", "192.0.2.9", "198.51.100.1"}[random.IntN(4)]
			call.forwarded = []string{"", "", "198.51.100.7", "192.0.2.9, 203.0.113.1"}[random.IntN(4)]
			if call.at == "" {
				call.at = pick("", "", "", "web/", "ops/")
			}
			call.arguments = []string{`{}`, `{"x":"a"}`, `{"x":"b"}`}[random.IntN(3)]
			got, item := files[2].makes(t, call)
			if item != nil && call.kind != upstream.PartResources {
				call.name = item.Exposed // a name without prefix may have meant one item of several that the caller sees
			}
			a, itemA := files[0].makes(t, call)
			b, itemB := files[1].makes(t, call)
			for _, other := range []*view.Target{itemA, itemB} {
				if item != nil && other != nil && (other.Backend.Name() != item.Backend.Name() || other.Name != item.Name) {
					t.Fatalf("%+v is another item by one of the files\nold:\n%s\nnext:\n%s", call, old, next)
				}
			}
			if got.Verdict > min(a.Verdict, b.Verdict) {
				t.Fatalf("%+v: %v, by the files %v and %v\nold:\n%s\nnext:\n%s\npartial: %v", call, got, a, b, old, next, change.Partial)
			}
			seen[got.Verdict.String()]++
			if a.Verdict != b.Verdict {
				seen["differ"]++
			}
			if got.Verdict < min(a.Verdict, b.Verdict) {
				seen["stricter than both"]++
				if only := strings.Join(append(change.Partial.Waits, change.Partial.Neither...), ""); only == "" &&
					strings.Join(change.Partial.Both, "") == "policies" {
					t.Fatalf("%+v: %v, by the files %v and %v, whose policies alone differ\nold:\n%s\nnext:\n%s", call, got, a, b, old, next)
				}
			}
		}
		for _, host := range change.Config.AllowedHosts {
			if !slices.Contains(before.AllowedHosts, host) || !slices.Contains(after.AllowedHosts, host) {
				t.Fatalf("%s is allowed, by %v and %v", host, before.AllowedHosts, after.AllowedHosts)
			}
		}
	}
	t.Log(seen)
	for _, word := range []string{"allow", "ask", "deny", "differ"} {
		if seen[word] < 500 {
			t.Errorf("%q comes only %d times", word, seen[word])
		}
	}
}

// everyEntry is a configuration with one entry of each kind.
func everyEntry(t *testing.T) *Config {
	t.Helper()
	return mustParse(t, `
public_url: https://mcp.example.com
auth:
  api_keys: [`+keyA+`]
  jwt: [{ issuer: https://i.example, audiences: [x] }]
  introspection: { issuer: https://o.example, endpoint: https://o.example/i, client_id: c, client_secret: canary-old, audiences: [x] }
  oauth: { identity_providers: [{ id: sso, issuer: https://login.example.com, client_id: c, client_secret: canary-provider }] }
upstreams: { u: { url: https://u.example, auth: { mode: none } } }
endpoints: { web: {} }
policies: [{ name: all, rules: [{ allow: { upstreams: "*" } }] }]
`, nil)
}

// at returns the fields of a key: those of the first entry, where the key is in a list.
func at(v reflect.Value, key string) reflect.Value {
	for name := range strings.SplitSeq(key, ".") {
		if v.Kind() == reflect.Pointer {
			v = v.Elem()
		}
		if v.Kind() == reflect.Slice {
			v = v.Index(0)
		}
		v = v.FieldByIndex(yamlread.Keys(v.Type())[name])
	}
	return v
}

// changed sets another value.
func changed(t *testing.T, v reflect.Value) {
	t.Helper()
	switch v.Kind() {
	case reflect.String:
		v.SetString(v.String() + "other")
	case reflect.Bool:
		v.SetBool(!v.Bool())
	case reflect.Int, reflect.Int64:
		v.SetInt(v.Int() + 7)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
	case reflect.Slice:
		v.Set(reflect.Append(reflect.MakeSlice(v.Type(), 0, 1), reflect.New(v.Type().Elem()).Elem()))
	case reflect.Map:
		m := reflect.MakeMap(v.Type())
		m.SetMapIndex(reflect.ValueOf("other"), reflect.New(v.Type().Elem()).Elem())
		v.Set(m)
	case reflect.Array:
		v.Index(0).SetUint(v.Index(0).Uint() + 1)
	case reflect.Struct:
		if moment, is := v.Addr().Interface().(*auth.Moment); is {
			moment.Time = moment.AddDate(1, 0, 0)
			return
		}
		changed(t, v.Field(0))
	default:
		t.Fatalf("no other value of %v", v.Type())
	}
}

// TestEachKeyIsNamed changes one key after the other. A key that waits keeps its value, an entry that
// differs in a key that decides is not in force, and each key that has changed is named in its list.
func TestEachKeyIsNamed(t *testing.T) {
	for key, effect := range effects {
		section, rest, _ := strings.Cut(key, ".*.")
		named := effect == waits || effect == both || effect == neither
		if !named || strings.HasPrefix(key, "policies.") {
			continue
		}
		t.Run(key, func(t *testing.T) {
			old, next := everyEntry(t), everyEntry(t)
			shown := key
			switch section {
			case "upstreams":
				u := next.Upstreams["u"]
				changed(t, at(reflect.ValueOf(&u).Elem(), rest))
				next.Upstreams["u"], shown = u, "upstreams.u."+rest
			case "endpoints":
				e := next.Endpoints["web"]
				changed(t, at(reflect.ValueOf(&e).Elem(), rest))
				next.Endpoints["web"], shown = e, "endpoints.web."+rest
			default:
				changed(t, at(reflect.ValueOf(next).Elem(), key))
			}
			r, partial := old.meet(next)
			list := map[any][]string{waits: partial.Waits, both: partial.Both, neither: partial.Neither}[effect]
			last := key[strings.LastIndexByte(key, '.')+1:]
			switch is := func(s string) bool { return s == shown || strings.HasSuffix(s, "]."+last) }; {
			case slices.ContainsFunc(list, is):
			case last == "hash" || last == "id" || last == "issuer" && strings.Contains(key, "jwt"): // another entry
				if len(partial.Waits) != 1 {
					t.Errorf("the new entry does not wait: %+v", partial)
				}
			default:
				t.Errorf("%s is not named: %+v", shown, partial)
			}
			if len(partial.Waits)+len(partial.Both)+len(partial.Neither) != 1 {
				t.Errorf("one key has changed, and %+v are named", partial)
			}
			left := map[string]int{"auth.api_keys": len(r.Auth.APIKeys), "auth.jwt": len(r.Auth.JWT), "auth.introspection": 1,
				"auth.oauth.identity_providers": len(r.Auth.OAuth.IdentityProviders), "upstreams": len(r.Upstreams),
				"endpoints": len(r.Endpoints)}
			if r.Auth.Introspection == nil {
				left["auth.introspection"] = 0
			}
			for entry, n := range left {
				if gone := effect == neither && strings.HasPrefix(key, entry+"."); (n == 0) != gone && effect != both {
					t.Errorf("%s has %d entries", entry, n)
				}
			}
			if effect == waits && section == "upstreams" && !reflect.DeepEqual(r.Upstreams["u"], old.Upstreams["u"]) ||
				effect == waits && section == "endpoints" && !reflect.DeepEqual(r.Endpoints["web"], old.Endpoints["web"]) {
				t.Error("the old value does not stay")
			}
		})
	}
}

// TestBothFilesDecide has a pair of files for each key that both files decide. Of each pair, the stricter
// value is in force.
func TestBothFilesDecide(t *testing.T) {
	const rest = "upstreams: { u: { command: [x] } }\n"
	upstreams := func(entry string) string {
		return "upstreams: { u: { command: [x]" + entry + " }, v: { command: [x] } }\n"
	}
	offers := func(c *Config) (list []string) {
		u, there := c.Upstreams["u"]
		if !there {
			return nil
		}
		for _, tool := range []string{"a", "b", "c"} {
			if rule, offered := u.Offers(tool); offered {
				list = append(list, strings.Join(append([]string{tool}, union(u.Capabilities, rule.Capabilities)...), "+"))
			}
		}
		return list
	}
	tools := func(c *Config) (list []string) {
		v := newVisitor(t, c)
		for target := range v.snapshot.Endpoints[""].View.All(upstream.PartTools) {
			if target.Backend.Name() == "u" {
				list = append(list, target.Exposed)
			}
		}
		return list
	}
	endpoint := func(c *Config) (list []string) {
		if e := newVisitor(t, c).snapshot.Endpoints["web/"]; e != nil {
			list = append(list, "web")
			for _, st := range e.View.Stocks {
				list = append(list, st.Backend.Name())
			}
		}
		return list
	}
	key := "auth: { api_keys: [" + keyA + "]"
	cases := map[string][]struct {
		old, next string
		get       func(c *Config) any
		want      string
	}{
		"allowed_origins": {{"allowed_origins: [https://a.example, https://b.example]\n" + rest, "allowed_origins: [https://b.example]\n" + rest,
			func(c *Config) any { return c.AllowedOrigins }, "[https://b.example]"}},
		"allowed_hosts": {{"allowed_hosts: [a, b]\n" + rest, "allowed_hosts: [b, c]\n" + rest,
			func(c *Config) any { return c.AllowedHosts }, "[b]"}},
		"folders.within": {{"folders: { within: [/u, /v] }\n" + rest, "folders: { within: [/u/src, /w] }\n" + rest,
			func(c *Config) any { return c.Folders.Within }, "[/u/src]"}},
		"folders.except": {{"folders: { except: [/u/a] }\n" + rest, "folders: { except: [/u/b] }\n" + rest,
			func(c *Config) any { return c.Folders.Except }, "[/u/a /u/b]"}},
		"names.separator": {{rest, "names: { separator: \"-\" }\n" + rest, func(c *Config) any { return tools(c) }, "[]"}},
		"names.max_length": {{rest, "names: { max_length: 30 }\n" + rest, func(c *Config) any { return tools(c) },
			"[u__read u__delete]"}},
		"names.app_tools": {
			{rest, "names: { app_tools: false }\n" + rest, func(c *Config) any { return *c.Names.AppTools }, "false"},
			{"names: { app_tools: false }\n" + rest, "names: { app_tools: true }\n" + rest,
				func(c *Config) any { return *c.Names.AppTools }, "false"},
			{"names: { app_tools: true }\n" + rest, rest, func(c *Config) any { return c.Names.AppTools == nil }, "true"}},
		"auth.none": {{"auth: { none: true }\n" + rest, rest, func(c *Config) any { return c.Auth.None }, "false"},
			{rest, "auth: { none: true }\n" + rest, func(c *Config) any { return c.Auth.None }, "false"}},
		"auth.trusted_proxies": {{key + ", trusted_proxies: [10.0.0.0/8, 192.0.2.1/32] }\n" + rest, key + ", trusted_proxies: [10.1.0.0/16] }\n" + rest,
			func(c *Config) any { return fmt.Sprint(c.Auth.TrustedProxies, c.Auth.Disputed) }, "[10.1.0.0/16] []"}},
		"auth.scope_capabilities": {{"auth: { jwt: [{ issuer: https://i.example, audiences: [x] }], scope_capabilities: { s: [c] } }\n" + strings.Replace(rest, "[x]", "[x], capabilities: [c]", 1) +
			"policies: [{ name: all, capabilities: [c], rules: [{ allow: { tools: \"*\" } }] }]\n",
			"auth: { jwt: [{ issuer: https://i.example, audiences: [x] }], scope_capabilities: { o: [c] } }\n" + strings.Replace(rest, "[x]", "[x], capabilities: [c]", 1) +
				"policies: [{ name: all, capabilities: [c], rules: [{ allow: { tools: \"*\" } }] }]\n",
			func(c *Config) any {
				p, _ := c.Compile()
				var got []policy.Verdict
				for _, scopes := range [][]string{{"s"}, {"o"}, {"s", "o"}} {
					d, _ := p.For(policy.Subject{Kind: "user", Scopes: scopes}).Bind(policy.Item{Upstream: "u", Names: []string{"u__a"},
						Requires: []string{"c"}}).Decide(raw.Object{})
					got = append(got, d.Verdict)
				}
				return got
			}, "[deny deny allow]"}},
		"upstreams.*.enabled": {{upstreams(""), upstreams(", enabled: false"), func(c *Config) any { return offers(c) }, "[]"},
			{upstreams(", enabled: false"), upstreams(""), func(c *Config) any { return c.Upstreams["u"].Off() }, "true"}},
		"upstreams.*.prefix": {{upstreams(""), upstreams(", prefix: p"), func(c *Config) any { return tools(c) }, "[]"},
			{upstreams(""), upstreams(", prefix: u"), func(c *Config) any { return len(tools(c)) }, "3"}},
		"upstreams.*.expose": {{upstreams(", tools: { a: {} }"), upstreams(", expose: listed, tools: { a: {} }"), func(c *Config) any { return offers(c) }, "[a]"},
			{upstreams(", expose: listed, tools: { a: {}, b: {} }"), upstreams(""), func(c *Config) any { return offers(c) }, "[a b]"}},
		"upstreams.*.tools": {{upstreams(", tools: { a: { enabled: false } }"), upstreams(", tools: { b: { enabled: false }, \"*\": { capabilities: [k] } }"),
			func(c *Config) any { return offers(c) }, "[c+k]"},
			{upstreams(", tools: { a: { as: x, capabilities: [m] }, b: { as: y } }"), upstreams(", tools: { a: { as: x }, b: { as: z } }"),
				func(c *Config) any { return offers(c) }, "[a+m c]"}},
		"upstreams.*.capabilities": {{upstreams(", capabilities: [m]"), upstreams(", capabilities: [k]"), func(c *Config) any { return offers(c) },
			"[a+k+m b+k+m c+k+m]"}},
		"endpoints.*.upstreams": {
			{upstreams("") + "endpoints: { web: {} }\n", upstreams("") + "endpoints: { web: { upstreams: [u] } }\n", func(c *Config) any { return endpoint(c) }, "[web u]"},
			{upstreams("") + "endpoints: { web: { upstreams: [u, v] } }\n", upstreams("") + "endpoints: { web: { upstreams: [v] } }\n", func(c *Config) any { return endpoint(c) }, "[web v]"},
			{upstreams("") + "endpoints: { web: { upstreams: [u] } }\n", upstreams("") + "endpoints: { web: { upstreams: [v] } }\n", func(c *Config) any { return endpoint(c) }, "[]"},
			{upstreams("") + "endpoints: { web: { upstreams: [u] } }\n", upstreams(", enabled: false") + "endpoints: { web: { upstreams: [u] } }\n", func(c *Config) any { return endpoint(c) }, "[]"},
			{upstreams("") + "endpoints: { web: {} }\n", strings.Replace(upstreams(""), "v:", "w:", 1) + "endpoints: { web: { upstreams: [w] } }\n", func(c *Config) any { return endpoint(c) }, "[]"}},
		"policies": {{rest, rest + "policies: [{ name: all, rules: [{ allow: { tools: u__read } }] }]\n", func(c *Config) any {
			v := newVisitor(t, c)
			read, _ := v.makes(t, visit{from: "127.0.0.1", kind: upstream.PartTools, name: "u__read", arguments: "{}"})
			other, _ := v.makes(t, visit{from: "127.0.0.1", kind: upstream.PartTools, name: "u__delete", arguments: "{}"})
			return []policy.Verdict{read.Verdict, other.Verdict}
		}, "[allow deny]"}},
	}
	for key, effect := range effects {
		if effect == both && len(cases[key]) == 0 && !strings.HasPrefix(key, "policies.") {
			t.Errorf("both files decide %s, and no pair of files shows it", key)
		}
	}
	for key, pairs := range cases {
		for _, pair := range pairs {
			before, _, change := refusedPair(t, pair.old, pair.next)
			if got := fmt.Sprint(pair.get(change.Config)); got != pair.want {
				t.Errorf("%s: %s, want %s, of\n%s%s", key, got, pair.want, pair.old, pair.next)
			}
			if before.Both != nil || effects[key] != both {
				t.Errorf("%s is not a key that both files decide", key)
			}
		}
	}
}

// TestEntriesThatDifferAreInNeitherFile: a key or an issuer that both files have is accepted only if the
// entries agree in what decides; without one, a listener that one of the files closes stays closed.
func TestEntriesThatDifferAreInNeitherFile(t *testing.T) {
	const rest = "upstreams: { a: { command: [x] } }\n"
	accepted := func(old, next string) string {
		t.Helper()
		_, _, change := refusedPair(t, old+rest, next+rest)
		c := change.Config
		for _, k := range slices.Concat(change.AddedKeys, change.RevokedKeys) {
			if k.Hash == (auth.Hash{}) {
				t.Errorf("the report has a key that nobody can have: %q", k.Name)
			}
		}
		if !c.Auth.Needed() {
			t.Error("no request is authenticated")
		}
		var list []string
		for _, k := range c.Auth.APIKeys {
			list = append(list, k.Name)
		}
		for _, i := range c.Auth.JWT {
			list = append(list, i.Issuer)
		}
		if i := c.Auth.Introspection; i != nil {
			list = append(list, i.Issuer+" "+i.ClientSecret)
		}
		return strings.Join(list, ", ")
	}
	key := func(more string) string {
		return "auth: { api_keys: [{ name: a, hash: \"" + hashA + "\"" + more + " }] }\n"
	}
	issuer := func(more string) string { return "auth: { jwt: [{ issuer: https://i.example, " + more + " }] }\n" }
	asked := func(secret, more string) string {
		return "auth: { introspection: { issuer: https://o.example, endpoint: https://o.example/i, client_id: c, client_secret: canary-" +
			secret + ", audiences: [x]" + more + " } }\n"
	}
	for name, test := range map[string]struct{ old, next, want string }{
		"the same key":        {key(", cidrs: [10.0.0.0/8]"), key(", cidrs: [10.0.0.0/8]"), "a"},
		"narrower networks":   {key(", cidrs: [10.0.0.0/8]"), key(", cidrs: [10.1.0.0/16]"), "nobody"},
		"all networks":        {key(", cidrs: [10.0.0.0/8]"), key(""), "nobody"},
		"more endpoints":      {key(", endpoints: [mcp]"), key(", endpoints: [mcp, mcp/a]"), "nobody"},
		"an earlier end":      {key(", expires: 2028-01-01"), key(", expires: 2027-01-01"), "nobody"},
		"another name":        {key(""), strings.Replace(key(""), "name: a", "name: b", 1), "nobody"},
		"another key":         {key(""), strings.Replace(key(""), hashA, hashB, 1), "nobody"},
		"one more key":        {key(""), "auth: { api_keys: [" + keyA + ", " + keyB + "] }\n", "a"},
		"the first key":       {"", key(""), "nobody"},
		"the last key":        {key(""), "", "nobody"},
		"the same issuer":     {issuer("audiences: [x]"), issuer("audiences: [x]"), "https://i.example"},
		"another audience":    {issuer("audiences: [x, y]"), issuer("audiences: [y]"), "nobody"},
		"more scopes":         {issuer("audiences: [x]"), issuer("audiences: [x], required_scopes: [a]"), "nobody"},
		"other claims":        {issuer("audiences: [x], required_claims: { tid: one }"), issuer("audiences: [x]"), "nobody"},
		"another secret":      {asked("one", ""), asked("two", ""), "https://o.example canary-one"},
		"another requirement": {asked("one", ""), asked("one", ", required_scopes: [a]"), "nobody"},
		"no introspection":    {asked("one", ""), key(""), "nobody"},
		"another public_url": {"public_url: https://a.example\n" + issuer("audiences: [https://a.example/mcp]"),
			"public_url: https://b.example\n" + issuer("audiences: [https://a.example/mcp]"), "nobody"},
		"another public_url, which no audience has": {"public_url: https://a.example\n" + issuer("audiences: [x]"),
			"public_url: https://b.example\n" + issuer("audiences: [x]"), "https://i.example"},
	} {
		if got := accepted(test.old, test.next); got != test.want {
			t.Errorf("%s: accepted are %q, want %q", name, got, test.want)
		}
	}
}

// TestEntriesWithOtherCallersAreInNeitherFile: an endpoint with another match or surface, and an upstream with
// another mode of its sign-in, are not in force.
func TestEntriesWithOtherCallersAreInNeitherFile(t *testing.T) {
	file := func(endpoint, mode string) string {
		return "public_url: https://mcp.example.com\nauth: { oauth: { identity_providers: [{ id: sso, issuer: https://login.example.com, client_id: c, " +
			"client_secret: canary-provider }] } }\nupstreams: { u: { url: https://u.example, auth: { mode: " + mode +
			" } } }\nendpoints: { web: {" + endpoint + "} }\n"
	}
	for _, test := range []struct {
		old, next            string
		endpoints, upstreams int
	}{
		{file("", "oauth"), file("catalog: search", "oauth"), 1, 1},
		{file("", "oauth"), file("match: { group: staff }", "oauth"), 0, 1},
		{file("match: { group: staff }", "oauth"), file("match: { group: admins }", "oauth"), 0, 1},
		{file("match: { group: staff }", "oauth"), file("", "oauth"), 0, 1},
		{file("surface: cli", "oauth"), file("", "oauth"), 0, 1},
		{file("", "oauth"), file("", "oauth_user"), 1, 0}, {file("", "oauth_user"), file("", "oauth"), 1, 0},
	} {
		_, _, change := refusedPair(t, test.old, test.next)
		if e, u := len(change.Config.Endpoints), len(change.Config.Upstreams); e != test.endpoints || u != test.upstreams {
			t.Errorf("%d endpoints and %d upstreams are in force, want %d and %d, of\n%s%s", e, u, test.endpoints, test.upstreams,
				test.old, test.next)
		}
	}
}

// TestRefusedReloadKeepsCallersApart: if there are several principals by one of the files, each has a process
// of their own, although only one is left.
func TestRefusedReloadKeepsCallersApart(t *testing.T) {
	file := func(keys string) string {
		return "auth: { api_keys: [" + keys + "] }\nupstreams: { a: { command: [x] } }\n"
	}
	for _, pair := range [][2]string{{file(keyA), file(keyA + ", " + keyB)}, {file(keyA + ", " + keyB), file(keyA)}} {
		if _, _, change := refusedPair(t, pair[0], pair[1]); !change.Config.Upstreams["a"].Separate {
			t.Errorf("the callers share a process after a reload of\n%sto\n%s", pair[0], pair[1])
		}
	}
}

// TestRefusedReloadKeepsWhatReplicasShare: a process that leaves out an issuer, because a reload was refused in part,
// is no replica with another configuration.
func TestRefusedReloadKeepsWhatReplicasShare(t *testing.T) {
	file := func(separator, more string) string {
		return "names: { separator: \"" + separator + "\" }\nauth: { trusted_proxies: [10.0.0.1/32" + more + "], api_keys: [{ name: a, hash: \"" +
			hashA + "\", cidrs: [10.0.0.0/8] }], jwt: [{ issuer: https://i.example, audiences: [x" + more +
			"] }] }\nupstreams: { a: { command: [x] } }\npolicies: [{ name: p" + strconv.Itoa(len(more)) +
			", rules: [{ allow: { upstreams: \"*\" } }] }]\n"
	}
	before, _, change := refusedPair(t, file("_", ""), file("-", ", 192.0.2.1/32"))
	parts := func(c *Config) (required []string, all string) {
		all, err := c.Shared([]byte("key"))
		if err != nil {
			t.Fatal(err)
		}
		return slices.DeleteFunc(strings.Fields(all), func(s string) bool { return s[0] == '~' }), all
	}
	old, oldAll := parts(before)
	now, nowAll := parts(change.Config)
	if !slices.Equal(old, now) || oldAll == nowAll || len(change.Config.Auth.JWT) > 0 || len(change.Config.Auth.Disputed) == 0 {
		t.Errorf("before the reload:\n%s\nafter:\n%s", oldAll, nowAll)
	}
}

// TestRefusedReloadAsksForNoNewScope: a client cannot get a scope of the new file before the restart, so that
// no call names it.
func TestRefusedReloadAsksForNoNewScope(t *testing.T) {
	file := func(scopes string) string {
		return "public_url: https://mcp.example.com\nauth: { oauth: { identity_providers: [{ id: sso, issuer: https://login.example.com, client_id: c, " +
			"client_secret: canary-provider }] }, scope_capabilities: { " + scopes + " } }\nupstreams: { u: { command: [x], capabilities: [c] } }\n" +
			"policies: [{ name: all, capabilities: [c], rules: [{ allow: { tools: \"*\" } }] }]\n"
	}
	_, _, change := refusedPair(t, file("old: [c]"), file("old: [], new: [c]"))
	p, err := change.Config.Compile()
	if err != nil {
		t.Fatal(err)
	}
	d, err := p.For(policy.Subject{Kind: "user", Scopes: []string{"old"}}).Bind(policy.Item{Upstream: "u", Names: []string{"u__a"},
		Requires: []string{"c"}}).Decide(raw.Object{})
	if err != nil || d.Verdict != policy.Deny || d.Scopes != "" {
		t.Errorf("the call is %+v, %v", d, err)
	}
}

// TestUncertainAddressesAreRejected: while two files disagree about the trusted proxies, and an address
// decides something, a request is rejected if its address depends on the file.
func TestUncertainAddressesAreRejected(t *testing.T) {
	const rest = "upstreams: { u: { command: [x] } }\npolicies: [{ name: all, match: { cidr: [10.0.0.0/8, 192.0.2.0/24] }, rules: [{ allow: { tools: \"*\" } }] }]\n"
	file := func(proxies string) string { return "auth: { trusted_proxies: [" + proxies + "] }\n" + rest }
	_, _, change := refusedPair(t, file("192.0.2.0/24"), file("192.0.2.1/32, 203.0.113.1/32"))
	v := newVisitor(t, change.Config)
	for _, test := range []struct {
		from, forwarded string
		want            policy.Verdict
	}{
		{"10.0.0.1", "", policy.Allow}, {"10.0.0.1", "198.51.100.1", policy.Allow}, // is no proxy
		{"192.0.2.1", "10.0.0.1", policy.Allow}, {"192.0.2.1", "198.51.100.1", policy.Deny}, // is one by both files
		{"192.0.2.9", "10.0.0.1", policy.Deny}, {"192.0.2.9", "", policy.Allow}, {"203.0.113.1", "10.0.0.1", policy.Deny},
		{"192.0.2.1", "10.0.0.1, 203.0.113.1", policy.Deny},
	} {
		got, _ := v.makes(t, visit{from: test.from, forwarded: test.forwarded, kind: upstream.PartTools, name: "u__read", arguments: "{}"})
		if got.Verdict != test.want {
			t.Errorf("from %s for %q: %v, want %v", test.from, test.forwarded, got.Verdict, test.want)
		}
	}
}

// TestRefusedReloadsDoNotAddUp: after several refused reloads the last file that was in force as a whole, and
// the newest one decide. A file that is loaded as a whole ends that.
func TestRefusedReloadsDoNotAddUp(t *testing.T) {
	file := func(keys, more string) *Config {
		return mustParse(t, "auth: { api_keys: ["+keys+"] }\nupstreams: { u: { command: [x]"+more+" }, v: { command: [x] } }\n", nil)
	}
	old := file(keyA+", "+keyB, "")
	first := old.Follow(file(keyA, ", tools: { read: { enabled: false } }"))
	first.Refuse(errors.New("cannot open the audit"))
	if _, offered := first.Config.Upstreams["u"].Offers("read"); offered || !slices.Equal(first.Revoked, []string{"b"}) {
		t.Errorf("read is offered: %v; revoked are %v", offered, first.Revoked)
	}
	second := first.Config.Follow(file(keyA+", "+keyB, ", tools: { delete: { enabled: false } }"))
	second.Refuse(errors.New("cannot open the audit"))
	u := second.Config.Upstreams["u"]
	_, read := u.Offers("read")
	_, deleted := u.Offers("delete")
	if !read || deleted || len(second.AddedKeys) != 1 || second.Config.Both.Old != old {
		t.Errorf("read is offered: %v, delete: %v; added keys: %v", read, deleted, second.AddedKeys)
	}
	whole := second.Config.Follow(file(keyA, ""))
	if c := whole.Config; c.Both != nil || whole.Partial != nil || c.Upstreams["u"].Also != nil || !slices.Equal(whole.Revoked, []string{"b"}) {
		t.Errorf("the whole file leaves %+v, partial %v, revoked %v", c.Both, whole.Partial, whole.Revoked)
	}
}

// TestUsersOfAChangedProviderAreInNeitherFile: the server of sign-ins keeps its section until a restart, but the
// users of a provider that the new file does not have, or has with other requirements, are not accepted.
func TestUsersOfAChangedProviderAreInNeitherFile(t *testing.T) {
	provider := func(id, more string) string {
		return "{ id: " + id + ", issuer: https://" + id + ".example, client_id: c, client_secret: canary-provider" + more + " }"
	}
	file := func(providers string) string {
		return "public_url: https://mcp.example.com\nauth: { oauth: { identity_providers: [" + providers + "] } }\nupstreams: { a: { command: [x] } }\n"
	}
	for name, test := range map[string]struct{ next, want string }{
		"the same":                  {file(provider("one", "") + ", " + provider("two", "")), "[one two]"},
		"one is removed":            {file(provider("one", "")), "[one]"},
		"one has more claims":       {file(provider("one", ", email_domains: [a.example]") + ", " + provider("two", "")), "[two]"},
		"one has another name":      {file(provider("one", ", name: Other") + ", " + provider("two", "")), "[one two]"},
		"no sign-in":                {"public_url: https://mcp.example.com\nauth: { api_keys: [" + keyA + "] }\nupstreams: { a: { command: [x] } }\n", "[]"},
		"one is added, which waits": {file(provider("one", "") + ", " + provider("two", "") + ", " + provider("three", "")), "[one two]"},
	} {
		_, _, change := refusedPair(t, file(provider("one", "")+", "+provider("two", "")), test.next)
		ids := []string{}
		for _, p := range change.Config.Auth.OAuth.IdentityProviders {
			ids = append(ids, p.ID)
		}
		if got := fmt.Sprint(ids); got != test.want || !change.Config.Auth.Needed() {
			t.Errorf("%s: the users of %s are accepted, want %s", name, got, test.want)
		}
	}
}

// TestProvidersOfOneIssuerAreInForceTogether: a user has the issuer of a provider. So if one provider is left out,
// those with its issuer are, too, and they are named.
func TestProvidersOfOneIssuerAreInForceTogether(t *testing.T) {
	file := func(providers ...string) string {
		return "public_url: https://mcp.example.com\nauth: { oauth: { identity_providers: [" + strings.Join(providers, ", ") +
			"] } }\nupstreams: { a: { command: [x] } }\n"
	}
	provider := func(id, host, more string) string {
		return "{ id: " + id + ", issuer: https://" + host + ".example, client_id: " + id + ", client_secret: canary-provider" + more + " }"
	}
	staff, partners, guests := provider("staff", "x", ""), provider("partners", "x", ""), provider("guests", "y", "")
	const key = "auth.oauth.identity_providers"
	for name, test := range map[string]struct{ next, want, neither string }{
		"the same":       {file(staff, partners, guests), "[staff partners guests]", "[]"},
		"another order":  {file(guests, partners, staff), "[staff partners guests]", "[]"},
		"one is removed": {file(staff, guests), "[guests]", "[" + key + "[staff].issuer]"},
		"one differs": {file(staff, provider("partners", "x", ", email_domains: [a.example]"), guests), "[guests]",
			"[" + key + "[partners].email_domains " + key + "[staff].issuer]"},
		"one has another issuer": {file(staff, provider("partners", "z", ""), guests), "[guests]",
			"[" + key + "[partners].issuer " + key + "[staff].issuer]"},
		"one has another name": {file(staff, provider("partners", "x", ", name: Other"), guests), "[staff partners guests]", "[]"},
		"one is added":         {file(staff, partners, guests, provider("more", "x", "")), "[staff partners guests]", "[]"},
		"another is removed":   {file(staff, partners), "[staff partners]", "[]"},
		"both are removed":     {file(guests), "[guests]", "[]"},
	} {
		before, _, change := refusedPair(t, file(staff, partners, guests), test.next)
		ids := []string{}
		for _, p := range change.Config.Auth.OAuth.IdentityProviders {
			ids = append(ids, p.ID)
		}
		if got, neither := fmt.Sprint(ids), fmt.Sprint(change.Partial.Neither); got != test.want || neither != test.neither {
			t.Errorf("%s: the users of %s are accepted, want %s; not in force because of %s, want %s", name, got, test.want,
				neither, test.neither)
		}
		if n := len(before.Auth.OAuth.IdentityProviders); n != 3 {
			t.Errorf("%s: the old file has %d providers now", name, n)
		}
	}
}

// TestRefusedReloadBlocksWhatEitherFileBlocks: an upstream that one of the files blocks is blocked, for the reason
// of the newest file that has one.
func TestRefusedReloadBlocksWhatEitherFileBlocks(t *testing.T) {
	file := func(token string) *Config {
		c, err := ParseServing("test.yaml", []byte("upstreams:\n  u: { command: [x], env: { TOKEN: \""+token+
			"\" } }\n  v: { command: [x] }\n"), environment(nil))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	for _, test := range []struct{ old, next, why string }{
		{"one", "two", ""}, {"one", "${GONE}", "GONE is not set"}, {"${GONE}", "one", "GONE is not set"},
		{"${GONE}", "${LOST}", "LOST is not set"},
	} {
		change := file(test.old).Follow(file(test.next))
		change.Refuse(errors.New("cannot open the audit"))
		u, v := change.Config.Upstreams["u"].Blocked, change.Config.Upstreams["v"].Blocked
		if (u == "") != (test.why == "") || !strings.Contains(u, test.why) || v != "" {
			t.Errorf("from %s to %s: blocked by %q, want %q; the other upstream by %q", test.old, test.next, u, test.why, v)
		}
	}
}

// TestPartialNamesAreBounded: each list names at most fifty keys, and says how many more there are.
func TestPartialNamesAreBounded(t *testing.T) {
	var next strings.Builder
	next.WriteString("upstreams:\n  u: { command: [x] }\n")
	for i := range 60 {
		fmt.Fprintf(&next, "  n%02d: { command: [x] }\n", i)
	}
	_, _, change := refusedPair(t, "upstreams: { u: { command: [x], timeout: 1s } }\n", next.String())
	if list := change.Partial.Waits; len(list) != maxPartial+1 || list[0] != "upstreams.u.timeout" || list[maxPartial] != "and 11 more" {
		t.Errorf("waiting are %q", list)
	}
	if got := change.Report(); !strings.Contains(got, "\ncannot open the audit; a call passes only if the old file and the new one let it pass"+
		"\nthe old value stays: upstreams.u.timeout, upstreams.n00, ") {
		t.Errorf("the report is\n%s", got)
	}
}
