package policy_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"junction/policy"
	"junction/upstream/raw"
)

// spellings are URIs of the schemes notes and https. Most of them are other names of
// notes://secret/a.md or https://corp.example/private/a for at least one plain reader.
var spellings = []string{
	"notes://secret/a.md", "notes://x/../secret/a.md", "notes:///secret/a.md", "notes://./secret/a.md",
	"notes:////secret/a.md", "notes://../root/secret/a.md", "notes:/secret/a.md", "notes:secret/a.md",
	"notes:./secret/a.md", "notes:x/../secret/a.md", "notes://../../srv/root/secret/a.md",
	"notes://../../../../srv/root/secret/a.md", "notes:///../root/secret/a.md", "notes://x/../../root/secret/a.md",
	"notes://user@secret/a.md", "notes://secret:80/a.md", "notes://user:pw@secret:80/a.md", "notes://a@b@secret/a.md",
	"notes://secret:/a.md", "notes://user@SECRET:80/a.md", "notes://secret/x/../a.md", "notes://secret/./a.md",
	"notes://secret//a.md", "notes://x/../../../secret/a.md", "notes://secret/../../../a.md",
	"notes://x/%2e%2e/secret/a.md", "notes://x/..%2fsecret/a.md", "notes://x%2f../secret/a.md",
	"notes://%2e/secret/a.md", "notes://%2e%2e/root/secret/a.md", "notes://%73ecret/a.md", "notes:///%73ecret/a.md",
	"notes://x/../%73ecret/a.md", "notes://x%2fy/../%73ecret/a.md", "notes://x%2fy/%2e%2e/%73ecret/a.md",
	"notes://x/y%2fz/%2e%2e/../../secret/a.md", "notes:///x%2fy/%2E%2e/%73ecret/a.md", "notes://x/.%2E/secret/a.md",
	"notes:///x//../secret/a.md", "notes:///x//../../secret/a.md", "notes://x/..;/../secret/a.md",
	"notes://..;/../secret/a.md", "notes://%73ecret/..;/../a.md", `notes://x\..\secret/a.md`, `notes:\\secret\a.md`,
	`notes://x/..\/../secret/a.md`, "notes://x/../secret/a.md?q", "notes://x/../secret/a.md#f",
	"notes://x/../secret/a.md%3fq", "notes://x/../secret/a.md%23f?x", "notes://x/../%73ecret/a%23b.md?q#f",
	"notes://x?/../secret/a.md", "notes://x#/../secret/a.md", "notes://x%3f/../secret/a.md", "notes://.#/../secret/a.md",
	"\tnotes://x/../secret/a.md", "notes://x/.\t./secret/a.md", "no\ntes://x/../secret/a.md", " notes:///secret/a.md ",
	"NOTES://x/../secret/a.md", "Notes:///secret/a.md", "notes://x/../secret/", "notes://x/../secret",
	"notes://[::1]/../secret/a.md", "notes://[secret]/a.md", "notes://:80/../secret/a.md", "notes://:A/secret/a.md",
	"notes:#x%2fy/../%73ecret/a.md", "notes://u@secret/x//../../a.md", "notes://./x%2fy//../%73ecret/a.md",
	"notes://x%2fy/./..//%73ecret/a.md", "notes://@/secret/a.md",
	"notes://secret:99999/a.md", "notes://secret:x/a.md", "notes://sec ret/a.md", "notes://x|y/../secret/a.md",
	"notes://é/../secret/a.md", "notes:///é/../secret/é.md", "notes:///secret/a b.md", "notes:///secret/{a}.md",
	"notes:", "notes:/", "notes://", "notes:///", "notes:////", "notes://..", "notes://.", "notes:///..", "notes:..",
	"notes:///x/..", "notes:///x/.", "notes://x", "notes://x/", "notes:/..//x", "notes:/.//x", "notes://public/b.md",
	"notes:/x/y%2fz/%2e./../secret/a.md", "notes:///x/y%2fz/.%2e/../%73ecret/a.md",
	// of https://corp.example/private/a
	"https://corp.example/private/a", "https://corp.example:443/private/a", "https://corp.example:/private/a",
	"https://corp.example:0443/private/a", "https://corp.example:00000443/private/a",
	"https://corp.example:+443/private/a", "https://corp.example:4_43/private/a", "https://corp.example: 443/private/a",
	"https://corp.example.:/private/a", "https://corp.example.:0443/private/a", "https://CORP.Example:0443/private/a",
	"https://u@corp.example:/private/a", "https://u:p@corp.example:0443/private/a", "HTTPS://corp.example:/private/a",
	"https://corp.example:0443/x/../private/a", "https://corp.example:/./private/a", "https:corp.example:/private/a",
	"https:///corp.example:0443/private/a", `https:\\corp.example:\private\a`, "https://corp%2eexample:/private/a",
	"https://corp.exa\tmple:04\t43/private/a", "https://corp.example:0443/private/a?q#f",
	"https://corp.example:/%2e%2e/private/a", "https://corp.example:0/private/a", "https://corp.example:8443/private/a",
	"https://corp.example:65979/private/a", "https://corp.example:x/private/a", "https://corp.example:0443:/private/a",
	"https://corp.example:-443/private/a", "https://corp.example:", "https://:0443/private/a", "https://x/private/a",
}

// TestDenyHoldsForEachSpelling tries all spellings of a denied file or address with each plain reader.
func TestDenyHoldsForEachSpelling(t *testing.T) {
	reached := map[string]int{}
	for _, r := range plainReaders {
		for _, uri := range spellings {
			if mustNotReach(t, r, uri) {
				reached[r.name]++
			}
		}
	}
	for _, r := range plainReaders {
		if n := reached[r.name]; n < 5 {
			t.Errorf("%d spellings are a denied file for %q, so the test proves little", n, r.name)
		}
	}
}

// mustNotReach fails the test if the reader opens a denied file or address, and no rule denies the
// URI. It reports whether the URI is one of these.
func mustNotReach(t *testing.T, r plainReader, uri string) bool {
	t.Helper()
	for _, file := range r.read(uri) {
		if !strings.HasPrefix(file, r.denied()) {
			continue
		}
		for _, rule := range []string{r.rule, "mcp://files/" + r.rule} {
			p, err := policy.Compile(policy.Config{
				{Name: "locked", Enforced: new(true),
					Rules: []policy.Rule{{Deny: &policy.Selector{Resources: policy.List{rule}}}}},
				{Name: "all", Rules: []policy.Rule{{Allow: &policy.Selector{Upstreams: policy.List{"*"}}}}},
			})
			if err != nil {
				t.Fatal(err)
			}
			it := policy.Item{Kind: policy.Resource, Upstream: "files", Names: []string{uri, "mcp://files/" + uri}}
			if d, err := p.Decide(policy.Subject{}, it, raw.Object{}); err != nil || d.Verdict != policy.Deny {
				t.Errorf("%q is %s for the reader %q, and the deny of %s gives %v, %v", uri, file, r.name, rule, d, err)
			}
		}
		return true
	}
	return false
}

// TestDenyOfAPathDeniesItsSpellingsAlone: a rule denies other names of what it names, in the URIs of
// servers and in those for clients, and no other resource.
func TestDenyOfAPathDeniesItsSpellingsAlone(t *testing.T) {
	for rule, uris := range map[string]struct{ denied, others []string }{
		"notes://secret/*": {
			[]string{"notes:///secret/a", "NOTES:/secret/a", "notes://x/../secret/a", "notes://../r/secret/a"},
			[]string{"notes://x/secret/a", "notes:///x/secret/a", "notes://secretary/a", "notes://secret", "notes://x/y",
				"notes://../secret.d/a", "x://secret/a", "notes://x@y/secret/a"}},
		// a rule without a first part is also for a server that ignores it
		"notes:///secret/*": {
			[]string{"notes:///secret/a", "notes://secret/a", "notes://x/secret/a", "notes://x/y/../secret/a"},
			[]string{"notes:///x/secret/a", "notes:///secretary/a", "notes://x/y/secret/a"}},
		"config:/secret": {
			[]string{"config:/secret", "config:///secret", "config:secret", "config://x/secret", "config:/x/../secret/"},
			[]string{"config:/x", "config:/secret/a", "config://x/y/secret"}},
		"mem://hidden/*": {
			[]string{"mem://user@hidden/x", "mem://hidden:80/x", "mem://u@HIDDEN:80/x", "mem://hidden%3a80/x"},
			[]string{"mem://hidden@x/x", "mem://hidden.org/x", "mem://x:80/hidden/x"}},
		"mem://hidden:80/*": {
			[]string{"mem://user@hidden:80/x"}, []string{"mem://hidden/x", "mem://hidden:81/x"}},
		// another port is another server of the web, in each spelling
		"https://corp.example/private/*": {
			[]string{"https://corp.example:/private/a", "https://corp.example:0443/private/a"},
			[]string{"https://corp.example:8443/private/a", "https://corp.example:0/private/a",
				"https://corp.example:4430/private/a", "https://corp.example:x/private/a"}},
		"https://corp.example:0443/*": {
			[]string{"https://corp.example/a", "https://corp.example:/a"}, []string{"https://corp.example:44/a"}},
		"https://corp.example:8443/*": {
			[]string{"https://u@corp.example:08443/a", "https://corp.example.:08443/a"},
			[]string{"https://corp.example/a", "https://corp.example:443/a", "https://corp.example:84430/a"}},
		"http://user.example/*": {[]string{"http://user.example:/q", "http://user.example:0080/q"},
			[]string{"http://user.example:443/q"}},
		"wss://[::1]/*": {[]string{"wss://[::1]:/a", "wss://[::1]:0443/a"}, []string{"wss://[::1]:44/a", "wss://[::2]/a"}},
		"notes://a//b":  {[]string{"notes://a//b", "notes:///a//b", "notes://a///b"}, []string{"notes://a/c"}},
		"ui://files/secret/*": {
			[]string{"ui://secret/a", "ui:///secret/a", "ui://x/../secret/a", "ui://u@secret/a", "ui://../r/secret/a"},
			[]string{"ui://x/secret/a"}},
		"ui://files//secret/*":          {[]string{"ui:///secret/a", "ui://x/secret/a"}, []string{"ui://x/a"}},
		"mcp://files/notes:///secret/*": {[]string{"notes://x/secret/a", "notes:secret/a"}, []string{"notes://x/a"}},
		"mcp://inner/notes://secret/*": { // the server is a gateway with URIs of its own
			[]string{"mcp://inner/notes://x/../secret/a", "mcp://inner/notes:///secret/a",
				"mcp://x/../inner/notes://secret/a"},
			[]string{"mcp://inner/notes://x/a", "mcp://other/notes://secret/a"}},
	} {
		r := mustCompile(t, `[{ name: locked, enforced: true, rules: [{ deny: { resources: "`+rule+`" } }] },
			{ name: all, rules: [{ allow: { upstreams: "*" } }] }]`).For(policy.Subject{})
		judge := func(uri string, denied bool) {
			exposed := "mcp://files/" + uri
			if rest, ok := strings.CutPrefix(uri, "ui://"); ok {
				exposed = "ui://files/" + rest
			}
			it := policy.Item{Kind: policy.Resource, Upstream: "files", Names: []string{uri, exposed}}
			if got := r.Bind(it).Visible(); got == denied {
				t.Errorf("a deny of %s: %s is visible: %v", rule, uri, got)
			}
		}
		for _, uri := range uris.denied {
			judge(uri, true)
		}
		for _, uri := range uris.others {
			judge(uri, false)
		}
	}
}

// TestPlainReadersAreNodeAndPython compares the models of Node's URL and of Python's urlsplit with
// both programs, on all spellings.
func TestPlainReadersAreNodeAndPython(t *testing.T) {
	compare := func(program, code string, model func(uri string) (host, port, path string, ok bool)) {
		t.Run(program, func(t *testing.T) {
			if _, err := exec.LookPath(program); err != nil && os.Getenv("JUNCTION_REQUIRE_NODE") == "" {
				t.Skipf("NOT TESTED: %v", err)
			}
			input, err := json.Marshal(spellings)
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command(program, code[:2], code[3:])
			cmd.Stdin = bytes.NewReader(input)
			out, err := cmd.Output()
			if err != nil {
				t.Fatalf("%s: %v", program, err)
			}
			var theirs []*[3]string // nil if the program rejects the URI
			if err := json.Unmarshal(out, &theirs); err != nil || len(theirs) != len(spellings) {
				t.Fatalf("%s wrote %.200q, %v", program, out, err)
			}
			known := 0
			for i, uri := range spellings {
				host, port, path, ok := model(uri)
				if !ok {
					continue // the models need not know everything
				}
				if known++; theirs[i] == nil || *theirs[i] != [3]string{host, port, path} {
					t.Errorf("%q is %q for %s, and %q for the model", uri, theirs[i], program, [3]string{host, port, path})
				}
			}
			if known < len(spellings)*3/4 {
				t.Errorf("the model knows %d of %d spellings", known, len(spellings))
			}
		})
	}
	compare("node", `-e const u = JSON.parse(require("fs").readFileSync(0, "utf8")).map(s => {
		try { const u = new URL(s); return [u.host, u.port, u.pathname] } catch { return null } })
		console.log(JSON.stringify(u))`, func(uri string) (string, string, string, bool) {
		u, ok := nodeURL(uri)
		_, port, _ := cutPort(u.host)
		return u.host, port, u.pathname, ok
	})
	compare("python3", `-c import http.client, json, sys, urllib.parse
class Connection(http.client.HTTPConnection):
    default_port = ""
def read(s):
    try:
        u = urllib.parse.urlsplit(s)
    except ValueError:
        return None
    try:
        port = str(Connection(u.netloc.rpartition("@")[2]).port)
    except http.client.InvalidURL:
        port = "invalid"
    return [u.netloc, port, u.path]
print(json.dumps([read(s) for s in json.load(sys.stdin)]))`, func(uri string) (string, string, string, bool) {
		u, ok := pythonSplit(uri)
		_, port := u.server()
		if n, err := strconv.Atoi(port); err == nil {
			port = strconv.Itoa(n)
		}
		return u.netloc, port, u.path, ok
	})
}

// mustStayWithinBudget fails the test if the readings of a URI as a path are too much work. An
// ambiguous URI may be too much work, because no allow but that of everything matches it anyway.
func mustStayWithinBudget(t *testing.T, uri string) {
	t.Helper()
	before, now := policy.WithinBudget(uri, "mcp://files/"+uri)
	if before && !now && !policy.Odd(uri) {
		t.Errorf("the readings of %.60q… (%d bytes) as a path are too much work", uri, len(uri))
	}
}

// TestEachURIHasItsReadings: the limit of readings as a path affects no URI that is not ambiguous.
func TestEachURIHasItsReadings(t *testing.T) {
	for length := 100; length <= 2000; length += 100 {
		for _, begin := range []string{"x://h/", "x://U@h:1:80/", "mcp://a/mcp://b/x://U@h%41:8/", "https://U@h.:443/"} {
			for _, filler := range []string{"a", "a/", "a//", "%2541", "%252541/", "a;b/"} {
				for _, end := range []string{"", "?b#c", "%252525?b%25#c%25"} {
					n := max(0, length-len(begin)-len(end)) / len(filler)
					mustStayWithinBudget(t, begin+strings.Repeat(filler, n)+end)
				}
			}
		}
	}
}

// FuzzSpelling looks for a spelling with which a plain reader opens a denied file, and for a URI that
// costs more than the limit of readings permits.
func FuzzSpelling(f *testing.F) {
	for _, uri := range spellings {
		f.Add(uri)
	}
	for _, uri := range costly(2000) {
		f.Add(uri)
	}
	f.Fuzz(func(t *testing.T, uri string) {
		if len(uri) > 1<<10 {
			return
		}
		for _, r := range plainReaders {
			mustNotReach(t, r, uri)
		}
		mustStayWithinBudget(t, uri)
	})
}
