package policy_test

import (
	"runtime"
	"strings"
	"testing"

	"junction/policy"
)

// costly are URIs with many forms, or many steps per form, up to a length.
func costly(length int) map[string]string {
	fill := func(begin, filler, end string) string {
		return begin + strings.Repeat(filler, max(0, length-len(begin)-len(end))/len(filler)) + end
	}
	const nested = "mcp://a/mcp://b/mcp://c/mcp://d/mcp://e/x:"
	return map[string]string{
		"plain":    fill("x://h/", "a", ""),
		"slashes":  fill(nested, "/", "%2525252541?b=%25#c\x00d"),
		"double":   fill(nested, "a//b/", "%2525252541?b=%25//#c//\x00d/"),
		"dots":     fill(nested, "a/../", "%2525252541?b=%25//#c//\x00d/"),
		"odd dots": fill(nested, `a\..;b/`, "%2525252541?b=%25//#c//\x00d/"),
		"encoded":  fill(nested, "%25252561", "?b=%25#c\x00d//"),
		"almost":   fill(nested, "a", "%2525252541?b=%25//#c//\x00d/"),
		"nested":   fill("", "mcp://a/", "x:a%2525252541?b#c\x00"),
		"web": fill("https://user@host.:443/https://user@host.:443/https://h:443/", "a//",
			"%2525252541?b=%25//#c//\x00d/"),
		"short": "mcp://a/mcp://b/mcp://c/https://u@d.:443//e/../f%252525412f?b=%2525252541//#c%2525252541//\x00d/",
	}
}

// threeDenies are globs that match no costly URI.
func threeDenies(tb testing.TB) *policy.Rights {
	return mustCompile(tb, `
- name: all
  rules:
    - deny: { resources: "file:///etc/*" }
    - deny: { resources: "*a?a?q*" }
    - deny: { resources: ["*aaaaaaaaaaq*", "x:*.env"] }
    - allow: { upstreams: "*" }
`).For(policy.Subject{})
}

func itemOf(uri string) policy.Item {
	if strings.HasPrefix(uri, "https:") {
		return policy.Item{Kind: policy.Resource, Upstream: "up", Names: []string{uri, uri}}
	}
	return policy.Item{Kind: policy.Resource, Upstream: "up", Names: []string{uri, "mcp://up/" + uri}}
}

func BenchmarkCostlyURI(b *testing.B) {
	r := threeDenies(b)
	for _, length := range []int{2000, 8000} {
		for name, uri := range costly(length) {
			b.Run(name+"/"+string(rune('0'+length/1000)), func(b *testing.B) {
				it := itemOf(uri)
				for b.Loop() {
					r.Bind(it)
				}
			})
		}
	}
}

// TestCostlyURITakesFewSteps counts allocated bytes, since each form of a URI allocates.
func TestCostlyURITakesFewSteps(t *testing.T) {
	r := threeDenies(t)
	for _, length := range []int{500, 1000, 1500, 2000, 2040, 4000, 8000, 60000} {
		for name, uri := range costly(length) {
			it := itemOf(uri)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			r.Bind(it)
			runtime.ReadMemStats(&after)
			if got := after.TotalAlloc - before.TotalAlloc; got > 768<<10 {
				t.Errorf("a URI of %d bytes (%s) takes %d KiB to judge, want at most 768", len(uri), name, got>>10)
			}
		}
	}
}

// TestOrdinaryURIsAreJudged: the limit of steps does not affect ordinary URIs.
func TestOrdinaryURIsAreJudged(t *testing.T) {
	r := threeDenies(t)
	long := strings.Repeat("a%20file/", 50)
	for _, uri := range []string{"file:///srv/" + long + "x.txt",
		"https://x.org/" + long + "?q=" + strings.Repeat("b", 100) + "#c", "note:1", "repo://owner/name/" + long,
		"db://h:5432/a/b?c=d", "x:" + strings.Repeat("b", 1900)} {
		if !r.Bind(itemOf(uri)).Visible() {
			t.Errorf("%.60s… of %d bytes is denied", uri, len(uri))
		}
	}
	files := mustCompile(t,
		`[{ name: all, rules: [{ deny: { resources: "file:///etc/*" } }, { allow: { upstreams: "*" } }] }]`).For(policy.Subject{})
	signed := "https://x.org/sign?" + strings.Repeat("X-Signature=0123456789&", 400)
	if !files.Bind(itemOf(signed)).Visible() {
		t.Errorf("a web address of %d bytes is denied by a rule for files", len(signed))
	}
	for _, begin := range []string{"file:///", "FILE:///", "%66ile:///", " file:///", "file:"} {
		if uri := begin + strings.Repeat("a/../", 1000) + "etc/passwd"; files.Bind(itemOf(uri)).Visible() {
			t.Errorf("%.30s… of %d bytes is visible, and may mean a file that is denied", uri, len(uri))
		}
	}
}
