package serve

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"junction/cmd/junction/ops/console"
	"junction/upstream/upstreamtest"
)

// visitor is a browser at the console.
type visitor struct {
	*http.Client
	admin, base string
}

// mustInvite opens an invitation in a browser of the owner, and returns the page.
func (r *running) mustInvite(t *testing.T) (v *visitor, name, page string) {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	v = &visitor{Client: &http.Client{Jar: jar}, admin: "http://" + r.listening.admin.Addr().String()}
	var i console.Invitation
	_, text := mustRequest(t, http.MethodPost, v.admin+console.InvitePath, r.owned())
	if err := json.Unmarshal([]byte(text), &i); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	v.base = i.Path
	_, page = v.mustGet(t, v.base, nil)
	return v, i.Name, page
}

// mustEnter opens a session of the console in a browser.
func (r *running) mustEnter(t *testing.T) *visitor {
	t.Helper()
	v, name, page := r.mustInvite(t)
	code := regexp.MustCompile(`[A-Z0-9]{3}-[A-Z0-9]{3}`).FindString(page)
	q := url.Values{"name": {name}, "code": {code}, "same": {"true"}}
	if resp, text := mustRequest(t, http.MethodPost, v.admin+console.AnswerPath+"?"+q.Encode(), r.owned()); resp.StatusCode != http.StatusOK {
		t.Fatalf("the answer: %d %s, code %q", resp.StatusCode, text, code)
	}
	return v
}

// mustGet opens a path.
func (v *visitor) mustGet(t *testing.T, path string, header http.Header) (status int, page string) {
	t.Helper()
	return v.must(t, http.MethodGet, path, nil, header)
}

// mustPost sends a form, and follows to the page after it.
func (v *visitor) mustPost(t *testing.T, path string, form url.Values) (status int, page string) {
	t.Helper()
	return v.must(t, http.MethodPost, path, form, http.Header{"Origin": {v.admin}, "Sec-Fetch-Site": {"same-origin"},
		"Content-Type": {"application/x-www-form-urlencoded"}})
}

func (v *visitor) must(t *testing.T, method, path string, form url.Values, header http.Header) (status int, page string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, v.admin+path, strings.NewReader(form.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	if req.Header = header; header == nil {
		req.Header = http.Header{}
	}
	req.Host = req.Header.Get("Host")
	resp, err := v.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// tokenOf returns the token of the forms of a page.
func tokenOf(page string) string {
	found := regexp.MustCompile(`name="token" value="([^"]+)"`).FindStringSubmatch(page)
	if found == nil {
		return ""
	}
	return found[1]
}

// TestConsoleChangesSomething: the owner connects a server again by the button of the console. Without a session the
// same path does nothing, and a page whose host name leads to this machine gets nothing, whatever cookie it has.
func TestConsoleChangesSomething(t *testing.T) {
	_, up := upstreamtest.Start(t, upstreamtest.Script{Tools: fine("echo")})
	r := mustServe(t, "upstreams: { good: { url: "+up+" } }\n")
	r.stderr.mustSay(t, "upstream=good state=ready", 1)
	v := r.mustEnter(t)
	status, page := v.mustGet(t, v.base, nil)
	if status != http.StatusOK || tokenOf(page) == "" {
		t.Fatalf("the console: %d\n%s", status, page)
	}
	form := url.Values{"token": {tokenOf(page)}, "upstream": {"good"}}
	for _, host := range []string{"evil.example", "evil.example:8421", "127.0.0.1.evil.example"} {
		if status, page := v.mustGet(t, v.base, http.Header{"Host": {host}}); status != http.StatusForbidden || strings.Contains(page, ">good</a>") {
			t.Errorf("for the host %s: %d", host, status)
		}
	}
	for _, site := range []string{"same-site", "cross-site"} { // of another port, and of another site
		if status, _ := v.mustGet(t, v.base, http.Header{"Sec-Fetch-Site": {site}}); status != http.StatusForbidden {
			t.Errorf("a page of the kind %s: %d", site, status)
		}
	}
	thief, _, _ := r.mustInvite(t)
	if status, _ := thief.mustPost(t, v.base+"reconnect", form); status != http.StatusForbidden {
		t.Errorf("another browser: %d", status)
	}
	if status, _ := v.mustPost(t, "/reconnect", form); status != http.StatusForbidden {
		t.Errorf("outside of the console: %d", status)
	}
	if status, page := v.mustPost(t, v.base+"reconnect", form); status != http.StatusOK || !strings.Contains(page, "<h1>good</h1>") {
		t.Errorf("the owner: %d\n%s", status, page)
	}
	r.stderr.mustSay(t, "upstream=good state=ready", 2)
	if n := strings.Count(r.stderr.String(), "is connected again, as its owner has asked"); n != 1 {
		t.Errorf("the server was connected again %d times", n)
	}
}
