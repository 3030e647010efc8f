package console

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"

	"junction/auth/authtest"
	"junction/cmd/junction/ops/pages"
)

const host = "127.0.0.1:8421"

// desk is a console with pages that keep what they were asked.
type desk struct {
	*Console
	routes chi.Router
	asked  []string // method and path of the requests that came to the pages
	view   pages.View
	events []string
}

func mustDesk(t *testing.T) *desk {
	t.Helper()
	d := &desk{routes: chi.NewRouter()}
	c, err := New(Options{Log: authtest.Log(t), Event: func(e string) { d.events = append(d.events, e) },
		Pages: func(w http.ResponseWriter, r *http.Request, v pages.View) {
			d.asked, d.view = append(d.asked, r.Method+" "+r.URL.Path), v
			io.WriteString(w, "canary-page")
		}})
	if err != nil {
		t.Fatal(err)
	}
	d.Console = c
	c.Register(d.routes)
	return d
}

// request is one of a browser, below the prefix, or one of a command.
func (d *desk) request(method, path string, form url.Values, change ...func(*http.Request)) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, "http://"+host+path, strings.NewReader(form.Encode()))
	r.RemoteAddr = "127.0.0.1:1"
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Origin", "http://"+host)
	}
	for _, c := range change {
		c(r)
	}
	w := httptest.NewRecorder()
	if strings.HasPrefix(path, Prefix) {
		d.ServeHTTP(w, r)
	} else {
		d.routes.ServeHTTP(w, r)
	}
	return w
}

// with adds a cookie to a request.
func with(c *http.Cookie) func(*http.Request) {
	return func(r *http.Request) {
		if c != nil {
			r.AddCookie(&http.Cookie{Name: c.Name, Value: c.Value})
		}
	}
}

// mustOpen opens an invitation in a browser.
func (d *desk) mustOpen(t *testing.T) (name, base, code string, own *http.Cookie) {
	t.Helper()
	name = d.sessions.Invite()
	base = Prefix + name + "/"
	w := d.request("GET", base, nil)
	_, code = d.sessions.Stage(name)
	cookies := w.Result().Cookies()
	if w.Code != http.StatusOK || len(cookies) != 1 || code == "" || !strings.Contains(w.Body.String(), ">"+code+"<") {
		t.Fatalf("the first browser gets %d %v, without the code %q:\n%s", w.Code, cookies, code, w.Body)
	}
	return name, base, code, cookies[0]
}

// mustEnter opens a session in a browser.
func (d *desk) mustEnter(t *testing.T) (base string, own *http.Cookie) {
	t.Helper()
	name, base, code, own := d.mustOpen(t)
	w := d.request("POST", AnswerPath+"?"+url.Values{"name": {name}, "code": {code}, "same": {"true"}}.Encode(), nil)
	if w.Code != http.StatusOK {
		t.Fatalf("the answer: %d %s", w.Code, w.Body)
	}
	return base, own
}

// TestCookieIsForOnePath: the cookie is sent below the random path alone, to no script and with no request of another
// site, and neither path nor page has its secret.
func TestCookieIsForOnePath(t *testing.T) {
	d := mustDesk(t)
	_, base, code, own := d.mustOpen(t)
	if own.Path != base || !own.HttpOnly || own.SameSite != http.SameSiteStrictMode || own.Domain != "" || own.MaxAge != 0 {
		t.Errorf("the cookie is %v", own)
	}
	if strings.Contains(base, own.Value) || strings.Contains(code, own.Value) || len(base) < len(Prefix)+26 {
		t.Errorf("the path is %s", base)
	}
	w := d.request("GET", base, nil, with(own))
	if strings.Contains(w.Body.String(), code) || strings.Contains(w.Body.String(), own.Value) {
		t.Errorf("the page shows the code twice, or the secret:\n%s", w.Body)
	}
}

// TestOtherUserGetsNothing: another user of the machine reads the address in the list of processes and opens it first,
// or later, and tries everything that they can. The pages get no request.
func TestOtherUserGetsNothing(t *testing.T) {
	d := mustDesk(t)
	name, base, code, foreign := d.mustOpen(t) // the other user is first
	w := d.request("GET", base, nil)           // the owner
	if w.Code != http.StatusConflict || !strings.Contains(w.Body.String(), "Answer no at the terminal") || len(w.Result().Cookies()) > 0 ||
		strings.Contains(w.Body.String(), code) {
		t.Errorf("the owner sees %d:\n%s", w.Code, w.Body)
	}
	w = d.request("GET", base, nil, with(foreign)) // in the browser of the owner, a page of another port has set the cookie
	if strings.Contains(w.Body.String(), code) {
		t.Errorf("with a foreign cookie, the owner sees the code:\n%s", w.Body)
	}
	for _, path := range []string{"", "events", "servers", "end"} {
		for _, method := range []string{"GET", "HEAD", "POST", "DELETE"} {
			d.request(method, base+path, nil, with(foreign))
		}
	}
	d.request("POST", AnswerPath+"?"+url.Values{"name": {name}, "code": {code}, "same": {"false"}}.Encode(), nil)
	if w = d.request("GET", base, nil, with(foreign)); w.Code != http.StatusNotFound {
		t.Errorf("after the no of the owner: %d", w.Code)
	}
	base, own := d.mustEnter(t)
	for what, c := range map[string]*http.Cookie{"no cookie": nil, "another session": foreign,
		"a guess": {Name: cookie, Value: own.Value[:len(own.Value)-1] + "_"}, "another name": {Name: "x", Value: own.Value}} {
		for _, path := range []string{"", "events", "servers"} {
			if w := d.request("GET", base+path, nil, with(c)); w.Code != http.StatusForbidden {
				t.Errorf("%s at %q with %s: %d", base, path, what, w.Code)
			}
		}
	}
	if len(d.asked) > 0 {
		t.Errorf("the pages were asked for %q", d.asked)
	}
	if !slices.Equal(d.events, []string{"console_refused", "console_opened"}) {
		t.Errorf("the audit has %q", d.events)
	}
}

// TestPrefetchOpensNothing: HEAD, and a browser that fetches ahead, leave the invitation to the person.
func TestPrefetchOpensNothing(t *testing.T) {
	d := mustDesk(t)
	base := Prefix + d.sessions.Invite() + "/"
	for _, w := range []*httptest.ResponseRecorder{d.request("HEAD", base, nil), d.request("POST", base, nil),
		d.request("GET", base, nil, func(r *http.Request) { r.Header.Set("Sec-Purpose", "prefetch") })} {
		if w.Code != http.StatusForbidden || len(w.Result().Cookies()) > 0 {
			t.Errorf("%d %v", w.Code, w.Result().Cookies())
		}
	}
	if w := d.request("GET", base, nil); w.Code != http.StatusOK || len(w.Result().Cookies()) != 1 {
		t.Errorf("the person gets %d", w.Code)
	}
}

// TestOnlyFormsOfTheSessionChangeSomething: a POST needs the cookie, the token of the session, and the origin of the
// address. A page of another port, of another site, a sandboxed page and a form of another session have none.
func TestOnlyFormsOfTheSessionChangeSomething(t *testing.T) {
	d := mustDesk(t)
	base, own := d.mustEnter(t)
	d.request("GET", base, nil, with(own))
	token := d.view.Token
	if len(token) < 26 || strings.Contains(base, token) || token == own.Value {
		t.Fatalf("the token is %q", token)
	}
	d.asked = nil
	origin := func(given ...string) func(*http.Request) {
		return func(r *http.Request) { r.Header["Origin"] = given }
	}
	good := url.Values{"token": {token}}
	for what, w := range map[string]*httptest.ResponseRecorder{
		"no token":         d.request("POST", base+"reconnect", nil, with(own)),
		"another token":    d.request("POST", base+"reconnect", url.Values{"token": {token[1:] + "A"}}, with(own)),
		"two tokens":       d.request("POST", base+"reconnect", url.Values{"token": {token, "x"}}, with(own)),
		"in the URL":       d.request("POST", base+"reconnect?token="+token, nil, with(own)),
		"another port":     d.request("POST", base+"reconnect", good, with(own), origin("http://127.0.0.1:1")),
		"another site":     d.request("POST", base+"reconnect", good, with(own), origin("https://evil.example")),
		"a sandbox":        d.request("POST", base+"reconnect", good, with(own), origin("null")),
		"no origin":        d.request("POST", base+"reconnect", good, with(own), origin()),
		"two origins":      d.request("POST", base+"reconnect", good, with(own), origin("http://"+host, "http://"+host)),
		"no cookie":        d.request("POST", base+"reconnect", good),
		"another method":   d.request("DELETE", base+"reconnect", good, with(own)),
		"a large form":     d.request("POST", base+"reconnect", url.Values{"x": {strings.Repeat("x", mostForm)}, "token": {token}}, with(own)),
		"the end, without": d.request("POST", base+"end", nil, with(own)),
	} {
		if w.Code != http.StatusForbidden {
			t.Errorf("%s: %d", what, w.Code)
		}
	}
	if len(d.asked) > 0 {
		t.Errorf("the pages were asked for %q", d.asked)
	}
	if w := d.request("POST", base+"servers/a%2Fb/reconnect", good, with(own)); w.Code != http.StatusOK {
		t.Errorf("the form of the session: %d %s", w.Code, w.Body)
	}
	if want := []string{"POST /servers/a/b/reconnect"}; !slices.Equal(d.asked, want) {
		t.Errorf("the pages were asked for %q, want %q", d.asked, want)
	}
	if w := d.request("POST", base+"end", good, with(own)); w.Code != http.StatusOK || d.sessions.Known(strings.Trim(strings.TrimPrefix(base, Prefix), "/")) {
		t.Errorf("the end: %d", w.Code)
	}
	if w := d.request("GET", base, nil, with(own)); w.Code != http.StatusNotFound {
		t.Errorf("after the end: %d", w.Code)
	}
}

// TestConsoleIsForThisMachine: a reverse proxy and another machine get no page, whatever cookie they have.
func TestConsoleIsForThisMachine(t *testing.T) {
	d := mustDesk(t)
	base, own := d.mustEnter(t)
	for what, change := range map[string]func(*http.Request){
		"another machine": func(r *http.Request) { r.RemoteAddr = "192.0.2.1:1" },
		"a bridge":        func(r *http.Request) { r.RemoteAddr = "172.17.0.1:1" },
		"a proxy":         func(r *http.Request) { r.Header.Set("X-Forwarded-For", "192.0.2.1") },
		"an old proxy":    func(r *http.Request) { r.Proto, r.ProtoMinor = "HTTP/1.0", 0 },
	} {
		if w := d.request("GET", base, nil, with(own), change); w.Code != http.StatusForbidden || strings.Contains(w.Body.String(), "canary") {
			t.Errorf("%s: %d", what, w.Code)
		}
	}
	w := d.request("GET", base, nil, with(own))
	if w.Code != http.StatusOK || !d.view.Owner || d.view.Base != base || !d.view.Lasts() {
		t.Errorf("the owner gets %d and the view %+v", w.Code, d.view)
	}
	// A page of another port has added cookies of the same name.
	if w = d.request("GET", base, nil, with(&http.Cookie{Name: cookie, Value: "x"}), with(own)); w.Code != http.StatusOK {
		t.Errorf("with another cookie before its own: %d", w.Code)
	}
	if w = d.request("POST", EndPath, nil); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), `"sessions":1`) {
		t.Errorf("the end of all: %d %s", w.Code, w.Body)
	}
	if d.view.Lasts() || d.view.Ended.Err() == nil {
		t.Error("a stream goes on after the end of its session")
	}
}

// TestPagesCannotBeFramed: every answer forbids frames, caches and foreign resources.
func TestPagesCannotBeFramed(t *testing.T) {
	d := mustDesk(t)
	_, base, _, own := d.mustOpen(t)
	for _, w := range []*httptest.ResponseRecorder{d.request("GET", base, nil, with(own)), d.request("GET", base+"x", nil),
		d.request("GET", Prefix+"none/", nil), d.request("GET", base+"stage", nil, with(own))} {
		h := w.Header()
		if h.Get("X-Frame-Options") != "DENY" || h.Get("Cache-Control") != "no-store" || h.Get("Cross-Origin-Resource-Policy") != "same-origin" {
			t.Errorf("%d has %v", w.Code, h)
		}
	}
}
