package front

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"junction/auth"
	"junction/auth/authtest"
	"junction/proxy"
	"junction/proxy/budget"
	"junction/proxy/proxytest"
	"junction/upstream/client"
	"junction/upstream/raw"
)

// TestPagesAreWrittenAlike: a page that is written from the definitions and one that is
// prepared are the same bytes, whatever their size, in both eras and for clients with and without
// MCP Apps.
func TestPagesAreWrittenAlike(t *testing.T) {
	const body = `{"jsonrpc":"2.0","id":1,"method":"tools/list"`
	const ui = `"extensions":{"io.modelcontextprotocol/ui":{"mimeTypes":["text/html;profile=mcp-app"]}}`
	apps := strings.Replace(modernMeta, `clientCapabilities":{`, `clientCapabilities":{`+ui, 1)
	for _, n := range []int{1, 7, 1000} {
		b := proxytest.NewBackend(t, n, 10)
		headers, older := proxytest.MustTool(t, `{"name":"headers"}`), proxytest.MustTool(t, `{"name":"older","outputSchema":{"type":"array"}}`)
		headers.HeaderProblem, older.Older = "wrong", []raw.Edit{{Name: "outputSchema"}}
		app := proxytest.MustTool(t, `{"name":"app","_meta":{"ui":{"visibility":["app"]}}}`)
		b.Lists.Tools = append(b.Lists.Tools, app, headers, older)
		s := serverWith(t, Options{Log: authtest.Log(t), Limits: proxy.Limits{Page: 5000}}, b)
		plainID, _ := s.sessions.create("2025-11-25", "test", budget.Account{Principal: "local"}, client.Profile{})
		appsID, _ := s.sessions.create("2025-11-25", "test", budget.Account{Principal: "local"}, client.Profile{UI: "1"})
		lists := map[string]bool{}
		for i, client := range []struct {
			name, body   string
			header       http.Header
			legacy, apps bool
		}{
			{"legacy", body + "}", http.Header{"Mcp-Session-Id": {plainID}}, true, false},
			{"legacy with apps", body + "}", http.Header{"Mcp-Session-Id": {appsID}}, true, true},
			{"modern", body + `,"params":{` + modernMeta + "}}", modernHeader("tools/list", ""), false, false},
			{"modern with apps", body + `,"params":{` + apps + "}}", modernHeader("tools/list", ""), false, true},
		} {
			t.Run(fmt.Sprintf("%d tools, %s", n, client.name), func(t *testing.T) {
				text := ""
				for round := range 3 {
					w := newAnswer()
					s.send(w, auth.Local, client.body, client.header)
					if _, err := raw.Parse(w.text); err != nil {
						t.Fatalf("%v: %.300s", err, w.text)
					}
					if round > 0 && string(w.text) != text {
						t.Errorf("the list number %d differs from the first", round+1)
					}
					text = string(w.text)
					if length := w.header.Get("Content-Length"); length != "" && length != fmt.Sprint(len(text)) {
						t.Errorf("list number %d has %d bytes, and Content-Length is %s", round+1, len(text), length)
					}
				}
				if got := s.Snapshot().Endpoints[""].Cached().Pages; got != i+1 {
					t.Errorf("%d pages are prepared, want %d", got, i+1)
				}
				has := map[string]bool{"up__tool0": true, "up__app": client.apps, "up__headers": client.legacy,
					"up__older": true, "outputSchema": !client.legacy}
				for name, want := range has {
					if strings.Contains(text, `"`+name+`"`) != want {
						t.Errorf("%s is in the list: %t", name, !want)
					}
				}
				lists[text[strings.Index(text, `"tools"`):strings.LastIndex(text, "]")]] = true
			})
		}
		if len(lists) != 4 {
			t.Errorf("there are %d different lists, want 4", len(lists))
		}
	}
}
