package serve

import (
	"cmp"
	"fmt"
	"html"
	"io"
	"net/http"
	neturl "net/url"
	"regexp"
	"strings"
	"testing"
)

// TestSignInOnTheStatusPage has the owner start a sign-in, and others try to.
func TestSignInOnTheStatusPage(t *testing.T) {
	dir, u := t.TempDir(), mustOAuthUpstream(t)
	r := mustServe(t, fmt.Sprintf("storage: { dsn: %[1]s/junction.db, key_file: %[1]s/master.key }\n"+
		"upstreams:\n  linear: { url: %[2]s/mcp, auth: { mode: oauth } }\n  plain: { url: %[2]s/mcp }\n", dir, u.URL))
	r.until(t, "linear", "needs sign-in")
	admin := "http://" + r.listening.admin.Addr().String()
	send := func(method, path string, header http.Header) (int, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, admin+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header = header.Clone()
		if req.Header == nil {
			req.Header = http.Header{}
		}
		req.Host = cmp.Or(req.Header.Get("Host"), req.Host)
		resp, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, html.UnescapeString(string(text))
	}
	_, page := send("GET", "/", nil)
	if strings.Contains(page, "<form") || !strings.Contains(page, "junction login linear") {
		t.Fatalf("the page is %s", page)
	}
	ours, back := r.owned(), http.Header{"Sec-Fetch-Site": {"cross-site"}, "Sec-Fetch-Mode": {"navigate"}, "Sec-Fetch-Dest": {"document"}}
	with := func(name, value string) http.Header {
		header := r.owned()
		header.Set(name, value)
		return header
	}
	start := func() neturl.Values {
		t.Helper()
		status, text := send("POST", "/signin?upstream=linear", ours)
		link := regexp.MustCompile(`href="([^"]*/authorize\?[^"]*)"`).FindStringSubmatch(text)
		if status != 200 || link == nil || !strings.Contains(text, `http-equiv="refresh"`) {
			t.Fatalf("the sign-in is answered with %d %s", status, text)
		}
		to, err := neturl.Parse(link[1])
		if err != nil || to.Query().Get("redirect_uri") != admin+"/connect/linear/callback" {
			t.Fatalf("the person goes to %s (%v)", link[1], err)
		}
		return neturl.Values{"state": {to.Query().Get("state")}, "code": {"c"}}
	}
	answer := start()
	older := answer
	answer = start() // in place of the first one
	foreign := neturl.Values{"state": {"canary-foreign"}, "code": {"c"}}
	callback := "/connect/linear/callback?"
	for _, row := range []struct {
		name, method, path string
		header             http.Header
		status             int
		want               string
	}{
		{"no secret", "POST", "/signin?upstream=linear", http.Header{"Origin": {admin}}, 403, "Only the user who runs Junction"},
		{"another site", "POST", "/signin?upstream=linear", with("Origin", "https://evil.example"), 403, ""},
		{"another host", "POST", "/signin?upstream=linear", with("Host", "evil.example"), 403, ""},
		{"GET", "GET", "/signin?upstream=linear", ours, 405, ""},
		{"no sign-in", "POST", "/signin?upstream=plain", ours, 502, `"plain" has no OAuth sign-in of the operator`},
		{"no upstream", "POST", "/signin?upstream=%3Cb%3E", ours, 502, `"<b>" has no OAuth sign-in`},
		{"an image", "GET", callback + answer.Encode(), http.Header{"Sec-Fetch-Site": {"cross-site"}, "Sec-Fetch-Mode": {"no-cors"}, "Sec-Fetch-Dest": {"image"}}, 403, ""},
		{"a frame", "GET", callback + answer.Encode(), http.Header{"Sec-Fetch-Site": {"cross-site"}, "Sec-Fetch-Mode": {"navigate"}, "Sec-Fetch-Dest": {"iframe"}}, 403, ""},
		{"the host of an answer", "GET", callback + answer.Encode(), http.Header{"Host": {"evil.example"}}, 403, ""},
		{"a foreign state", "GET", callback + foreign.Encode(), back, 400, "does not belong to a sign-in"},
		{"the state of an earlier one", "GET", callback + older.Encode(), back, 400, "does not belong to a sign-in"},
		{"another upstream", "GET", "/connect/plain/callback?" + answer.Encode(), back, 400, "does not belong to a sign-in"},
		{"the page from another site", "GET", "/", back, 403, ""},
		{"the answer", "GET", callback + answer.Encode(), back, 200, "Signed in to linear"},
		{"the answer again", "GET", callback + answer.Encode(), back, 400, "does not belong to a sign-in"},
	} {
		if status, text := send(row.method, row.path, row.header); status != row.status || !strings.Contains(text, row.want) {
			t.Errorf("%s: %d %s\nwant %d with %q", row.name, status, text, row.status, row.want)
		}
	}
	r.until(t, "linear", "ready")
	if _, page := send("GET", "/", nil); strings.Contains(page, "junction login linear") {
		t.Errorf("afterwards the page is %s", page)
	}
	// An authorization server that says no: the old sign-in stays, and the page names the reason.
	denied := start()
	denied.Del("code")
	denied.Set("error", "access_denied")
	if status, text := send("GET", callback+denied.Encode(), back); status != 200 || !strings.Contains(text, "The sign-in to linear failed") {
		t.Errorf("a refusal: %d %s", status, text)
	}
	r.until(t, "linear", "ready")
}
