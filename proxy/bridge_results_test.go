package proxy

import (
	"errors"
	"strings"
	"testing"

	"junction/upstream"
	"junction/upstream/client"
)

// TestResultsBetweenEras converts results of tools and of reads. <meta> is the server info that a modern
// client gets.
func TestResultsBetweenEras(t *testing.T) {
	const modern, legacy = client.EraModern, client.EraLegacy
	for _, row := range []struct {
		name            string
		client, up      client.Era
		version, method string
		result, want    string
	}{
		{"modern to modern", modern, modern, "", "tools/call", `{"content":[],"resultType":"complete","x":1.0}`,
			`{"content":[],"resultType":"complete","x":1.0,"_meta":<meta>}`},
		{"legacy to modern", modern, legacy, "", "tools/call", `{"content":[]}`,
			`{"content":[],"resultType":"complete","_meta":<meta>}`},
		{"an empty one to modern", modern, legacy, "", "tools/call", `{}`, `{"resultType":"complete","_meta":<meta>}`},
		{"a read to modern", modern, legacy, "", "resources/read", `{"contents":[],"ttlMs":5}`,
			`{"contents":[],"ttlMs":5,"resultType":"complete","cacheScope":"private","_meta":<meta>}`},
		{"an object to legacy", legacy, modern, "2025-11-25", "tools/call", `{"structuredContent":{"a":1.0},"content":[]}`,
			`{"structuredContent":{"a":1.0},"content":[]}`},
		{"a list to legacy", legacy, modern, "2025-11-25", "tools/call", `{"structuredContent":[1.0],"content":[],"x":1}`,
			`{"content":[{"type":"text","text":"[1.0]"}],"x":1}`},
		{"a list of a legacy server", legacy, legacy, "2025-11-25", "tools/call", `{"structuredContent":[1.0],"content":[]}`,
			`{"structuredContent":[1.0],"content":[]}`},
		{"null members", legacy, legacy, "2025-11-25", "tools/call",
			`{"_meta":null,"content":[{"type":"text","text":"x","annotations":null, "_meta" : null,"x":null},{"type":"text","text":"a\":null"}],"isError":null,"structuredContent":null,"x":null}`,
			`{"content":[{"type":"text","text":"x","x":null},{"type":"text","text":"a\":null"}],"x":null}`},
		{"null members to modern", modern, legacy, "", "tools/call",
			`{"content":[{"type":"resource_link","uri":"https://x.org/a","name":"n","title":null,"size":null}],"isError":null,"structuredContent":null}`,
			`{"content":[{"type":"resource_link","uri":"https://x.org/a","name":"n"}],"structuredContent":null,"resultType":"complete","_meta":<meta>}`},
		{"null of a modern server to legacy", legacy, modern, "2025-11-25", "tools/call", `{"content":[],"structuredContent":null}`, `{"content":[]}`},
		{"null in a prompt", legacy, legacy, "2025-11-25", "prompts/get",
			`{"description":null,"messages":[{"role":"user","content":{"type":"text","text":"x","_meta":null}}]}`,
			`{"messages":[{"role":"user","content":{"type":"text","text":"x"}}]}`},
		{"null in a resource", legacy, legacy, "2025-11-25", "resources/read", `{"contents":[{"uri":"https://x.org/a","mimeType":null,"text":"x","_meta":null}]}`,
			`{"contents":[{"uri":"https://x.org/a","text":"x"}]}`},
		{"null after a long text", legacy, legacy, "2025-11-25", "tools/call",
			`{"content":[{"type":"text","text":"` + strings.Repeat("null ", 1000) + `","annotations":null}]}`,
			`{"content":[{"type":"text","text":"` + strings.Repeat("null ", 1000) + `"}]}`},
		{"null in data", legacy, legacy, "2025-11-25", "tools/call", `{"content":[],"structuredContent":{"_meta":null},"_meta":{"a":null}}`,
			`{"content":[],"structuredContent":{"_meta":null},"_meta":{"a":null}}`},
		{"a modern server to legacy", legacy, modern, "2025-11-25", "tools/call",
			`{"resultType":"complete","content":[],"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"x"}},"x":1.0}`, `{"content":[],"x":1.0}`},
		{"the rest of _meta to legacy", legacy, modern, "2025-11-25", "prompts/get",
			`{"messages":[],"_meta":{"a":1.0,"io.modelcontextprotocol/serverInfo":{"name":"x"}},"resultType":"complete"}`,
			`{"messages":[],"_meta":{"a":1.0}}`},
		{"a read to legacy", legacy, modern, "2024-11-05", "resources/read", `{"resultType":"complete","contents":[]}`, `{"contents":[]}`},
		{"a completion to legacy", legacy, modern, "2025-11-25", "completion/complete", `{"completion":{"values":[]},"resultType":"complete"}`,
			`{"completion":{"values":[]}}`},
		{"a list and more to legacy", legacy, modern, "2025-11-25", "tools/call", `{"structuredContent":[1.0],"content":[],"resultType":"complete"}`,
			`{"content":[{"type":"text","text":"[1.0]"}]}`},
		{"the same members of a legacy server", legacy, legacy, "2025-11-25", "tools/call",
			`{"resultType":"complete","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"x"}},"content":[]}`,
			`{"resultType":"complete","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"x"}},"content":[]}`},
		{"a link to 2025-06-18", legacy, modern, "2025-06-18", "tools/call",
			`{"content":[{"type":"resource_link","uri":"https://x.org/a","name":"n"}]}`,
			`{"content":[{"type":"resource_link","uri":"https://x.org/a","name":"n"}]}`},
	} {
		t.Run(row.name, func(t *testing.T) {
			s, x := between(t, row.client, row.up, row.version, client.Profile{})
			x.Msg.Method = row.method
			got, err := s.answerResult(x, client.Result{Object: object(t, row.result), Type: client.TypeComplete})
			want := strings.ReplaceAll(row.want, "<meta>", string(s.modernMeta))
			if err != nil || got.text() != want {
				t.Errorf("%s becomes\n%s, %v; want\n%s", row.result, got.text(), err, want)
			}
		})
	}
}

// TestLinksBecomeText: 2025-03-26 has no links in results.
func TestLinksBecomeText(t *testing.T) {
	s, x := between(t, client.EraLegacy, client.EraModern, "2025-03-26", client.Profile{})
	link := `{"content":[{"type":"resource_link","uri":"https://x.org/a","name":"the name"}]}`
	got, err := s.answerResult(x, client.Result{Object: object(t, link), Type: client.TypeComplete})
	if text := got.text(); err != nil || strings.Contains(text, "resource_link") || !strings.Contains(text, `"type":"text"`) ||
		!strings.Contains(text, "https://x.org/a") || !strings.Contains(text, "the name") {
		t.Errorf("the link becomes %s, %v; want a text with its name and its URI", text, err)
	}
}

// TestUnfinishedResultIsInvalidForLegacyClients: no legacy client may get a result of another type.
func TestUnfinishedResultIsInvalidForLegacyClients(t *testing.T) {
	for _, kind := range []string{client.TypeInputRequired, "task", "new"} {
		s, x := between(t, client.EraLegacy, client.EraModern, "2025-11-25", client.Profile{})
		got, err := s.answerResult(x, client.Result{Object: object(t, `{"requestState":"s","taskId":"t","status":"working"}`), Type: kind})
		if own, ok := errors.AsType[*upstream.Error](err); !ok || own.Kind != client.KindInvalid {
			t.Errorf("a result of type %s becomes %s, %v; want an invalid answer", kind, got.text(), err)
		}
	}
}
