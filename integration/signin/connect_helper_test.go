package signin

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"junction/auth/authtest"
	"junction/integration/harness"
	"junction/integration/harness/process"
	"junction/upstream/client"
	"junction/upstream/upstreamtest"
)

// This file has a server that each person signs in to themselves, called linear: an MCP server that
// wants a token of its own authorization server, which is elsewhere.

// linear is both servers. What it says and refuses is changed by change.
type linear struct {
	*upstreamtest.Server
	url, issuer string

	// What it says of itself, before it is sent; nil leaves it as it is.
	place, metadata func(map[string]any)
	// where it says what it says of itself; "" is at its own origin
	placeAt string
	// of the answers that browsers bring; "" is the issuer, "-" none
	iss   string
	token func(form url.Values) (status int, answer string) // in place of a token; status 0 gives one
	// the account of a token that it has not given itself; nil knows none
	whose func(token string) string
	// what the MCP server answers 401 to, beside what it does not know
	refused func(token string) bool
	// the scope that a request lacks; nil lacks none
	lacks func(token string, r *http.Request) string

	mu      sync.Mutex
	codes   map[string]url.Values // authorization requests, with the account
	access  map[string]string     // accounts by token
	refresh map[string]string
	clients map[string]bool
	asked   []string // what the authorization server was asked, in a word each
	number  int
}

// mustLinear starts a linear; tools are definitions of its tools, by default those of upstreamtest.
func mustLinear(t testing.TB, tools ...json.RawMessage) *linear {
	t.Helper()
	l := &linear{Server: upstreamtest.New(upstreamtest.Script{Tools: tools}), codes: map[string]url.Values{},
		access: map[string]string{}, refresh: map[string]string{}, clients: map[string]bool{}}
	t.Cleanup(l.Close)
	mux := http.NewServeMux()
	mux.HandleFunc("/.well-known/oauth-protected-resource/mcp", func(w http.ResponseWriter, _ *http.Request) {
		l.mu.Lock()
		defer l.mu.Unlock()
		say(w, map[string]any{"resource": l.url, "authorization_servers": []string{l.issuer},
			"scopes_supported": []string{"read"}}, l.place)
	})
	inner := l.Handler()
	mux.HandleFunc("/mcp", func(w http.ResponseWriter, r *http.Request) {
		token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		l.mu.Lock()
		known := l.access[token] != "" || l.whose != nil && l.whose(token) != ""
		refused := !known || l.refused != nil && l.refused(token)
		lacks := ""
		if !refused && l.lacks != nil {
			lacks = l.lacks(token, r)
		}
		where := strings.TrimSuffix(l.url, "/mcp") + "/.well-known/oauth-protected-resource/mcp"
		if l.placeAt != "" {
			where = l.placeAt
		}
		l.mu.Unlock()
		if refused {
			l.note("401")
			w.Header().Set("WWW-Authenticate", `Bearer resource_metadata="`+where+`"`)
			http.Error(w, "who are you?", http.StatusUnauthorized)
			return
		}
		if lacks != "" {
			w.Header().Set("WWW-Authenticate", `Bearer error="insufficient_scope", scope="`+lacks+`", resource_metadata="`+where+`"`)
			http.Error(w, "you may not", http.StatusForbidden)
			return
		}
		inner.ServeHTTP(w, r)
	})
	at, _ := upstreamtest.Serve(t, "127.0.0.1:0", mux)
	issuer, _ := upstreamtest.Serve(t, "127.0.0.1:0", l.authorizationServer())
	l.change(func() { l.url, l.issuer = at+"/mcp", issuer })
	return l
}

func say(w http.ResponseWriter, document map[string]any, change func(map[string]any)) {
	if change != nil {
		change(document)
	}
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(document)
}

// change changes its fields.
func (l *linear) change(change func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change()
}

func (l *linear) note(what string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked = append(l.asked, what)
}

// count returns how often the authorization server was asked something that begins like this.
func (l *linear) count(what string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, a := range l.asked {
		if strings.HasPrefix(a, what) {
			n++
		}
	}
	return n
}

// give makes tokens of an account. mu is held.
func (l *linear) give(account string) map[string]any {
	l.number++
	access, refresh := fmt.Sprintf("canary-at-%s-%d", account, l.number), fmt.Sprintf("canary-rt-%s-%d", account, l.number)
	l.access[access], l.refresh[refresh] = account, account
	authtest.Secret("an access token of linear", access)
	authtest.Secret("a refresh token of linear", refresh)
	return map[string]any{"access_token": access, "refresh_token": refresh, "token_type": "Bearer", "expires_in": 3600,
		"scope": "read"}
}

func (l *linear) authorizationServer() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/.well-known/oauth-authorization-server", func(w http.ResponseWriter, _ *http.Request) {
		l.note("metadata")
		l.mu.Lock()
		defer l.mu.Unlock()
		say(w, map[string]any{
			"issuer": l.issuer, "authorization_endpoint": l.issuer + "/authorize", "token_endpoint": l.issuer + "/token",
			"registration_endpoint": l.issuer + "/register",
			"revocation_endpoint":   l.issuer + "/revoke", "code_challenge_methods_supported": []string{"S256"},
			"token_endpoint_auth_methods_supported":          []string{"none", "client_secret_basic"},
			"authorization_response_iss_parameter_supported": true,
		}, l.metadata)
	})
	mux.HandleFunc("POST /register", func(w http.ResponseWriter, _ *http.Request) {
		l.note("register")
		l.mu.Lock()
		defer l.mu.Unlock()
		id := fmt.Sprint("client-", len(l.clients))
		l.clients[id] = true
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, `{"client_id":%q,"token_endpoint_auth_method":"none"}`, id)
	})
	mux.HandleFunc("GET /authorize", func(w http.ResponseWriter, r *http.Request) {
		l.note("authorize " + r.URL.Query().Get("client_id"))
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w,
			`<title>Sign in to linear</title><form method="post" action="%s"><input name="login"><input name="password" `+
				`type="password"><button type="submit">Sign in</button></form>`, html.EscapeString(r.URL.RequestURI()))
	})
	mux.HandleFunc("POST /authorize", func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		q.Set("account", r.PostFormValue("login")+"-linear")
		l.mu.Lock()
		l.number++
		code := fmt.Sprint("canary-code-", l.number)
		l.codes[code] = q
		authtest.Secret("a code of linear", code)
		iss, issuer := l.iss, l.issuer
		l.mu.Unlock()
		back := url.Values{"code": {code}, "state": {q.Get("state")}, "iss": {issuer}}
		if iss != "" {
			back.Set("iss", iss)
		}
		if iss == "-" {
			back.Del("iss")
		}
		http.Redirect(w, r, q.Get("redirect_uri")+"?"+back.Encode(), http.StatusFound)
	})
	mux.HandleFunc("POST /token", func(w http.ResponseWriter, r *http.Request) {
		form := r.FormValue("grant_type")
		l.note("token " + form)
		w.Header().Set("Content-Type", "application/json")
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.token != nil {
			if status, answer := l.token(r.PostForm); status != 0 {
				w.WriteHeader(status)
				fmt.Fprint(w, answer)
				return
			}
		}
		account, problem := "", ""
		client, secret, _ := r.BasicAuth()
		if client == "" {
			client = r.PostForm.Get("client_id")
		} else if secret != "canary-secret" {
			problem = "the secret"
		}
		switch form {
		case "authorization_code":
			q := l.codes[r.PostForm.Get("code")]
			delete(l.codes, r.PostForm.Get("code"))
			sum := sha256.Sum256([]byte(r.PostForm.Get("code_verifier")))
			switch {
			case q == nil:
				problem = "the code"
			case base64.RawURLEncoding.EncodeToString(sum[:]) != q.Get("code_challenge"):
				problem = "the verifier"
			case r.PostForm.Get("redirect_uri") != q.Get("redirect_uri"), r.PostForm.Get("resource") != l.url,
				q.Get("resource") != l.url, client != q.Get("client_id"):
				problem = "the request"
			}
			account = q.Get("account")
		case "refresh_token":
			if account = l.refresh[r.PostForm.Get("refresh_token")]; account == "" || r.PostForm.Get("resource") != l.url {
				problem = "the refresh token"
			}
			delete(l.refresh, r.PostForm.Get("refresh_token")) // each is good once
		}
		if problem != "" {
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprintf(w, `{"error":"invalid_grant","error_description":%q}`, problem)
			return
		}
		json.NewEncoder(w).Encode(l.give(account))
	})
	mux.HandleFunc("POST /revoke",
		func(_ http.ResponseWriter, r *http.Request) { l.note("revoke " + r.PostFormValue("token")) })
	return mux
}

// expire has the MCP server know none of the access tokens that were given out until now.
func (l *linear) expire() {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.access)
}

// accounts returns which account each call of echo was made with, by what was echoed.
func (l *linear) accounts() map[string]string {
	all := map[string]string{}
	for _, r := range l.Received() {
		if r.Message.Method == "tools/call" {
			_, text, _ := strings.Cut(string(r.Body), `"say":"`)
			text, _, _ = strings.Cut(text, `"`)
			all[text] += r.Header.Get("Authorization")
		}
	}
	return all
}

// mustLinearCompany starts the program over a linear; auth are further members of its section, such
// as ", client_id: us".
func mustLinearCompany(t testing.TB, l *linear, auth, config string, more ...string) *company {
	t.Helper()
	return mustCompanyOver(t, process.FreePort(t),
		fmt.Sprintf(`{ linear: { url: %q, auth: { mode: oauth_user%s } } }`, l.url, auth), "",
		"outbound: { allow_private: [127.0.0.0/8] }\n"+config, more...)
}

// worker is a person, and an app that works for them.
type worker struct {
	*person
	app    oauthApp
	tokens tokenPair
	c      *company
}

func mustWorker(t testing.TB, c *company, name string) *worker {
	t.Helper()
	w := &worker{person: newPerson(t, name), app: mustRegister(t, c, appRedirect), c: c}
	w.tokens = w.app.mustSignIn(t, w.person)
	return w
}

// talk begins to talk to the merged endpoint as the worker's app.
func (w *worker) talk(t *testing.T, era client.Era, capabilities string) *harness.Talker {
	t.Helper()
	return (&harness.Talker{URL: w.c.URL, Era: era, Version: "2025-11-25", Capabilities: capabilities,
		Key: w.tokens.Access}).Start(t)
}

// toolNames are the names of the tools that a client sees.
func toolNames(t *testing.T, c *harness.Talker) (names []string) {
	t.Helper()
	var list struct{ Tools []struct{ Name string } }
	if err := json.Unmarshal(c.Must(t, "tools/list", ""), &list); err != nil {
		t.Fatal(err)
	}
	for _, tool := range list.Tools {
		names = append(names, tool.Name)
	}
	slices.Sort(names)
	return names
}

// connectURL is the link that a call offers in words.
func connectURL(t *testing.T, c *harness.Talker, tool string) string {
	t.Helper()
	m := c.Call(t, tool, `{}`)
	where := harness.Member(m.Result, "structuredContent", "connect_url")
	var link string
	if m.Error != nil || json.Unmarshal([]byte(where), &link) != nil || link == "" {
		t.Fatalf("%s = %s, want an offer to connect", tool, m.Append(nil))
	}
	return link
}

// connect follows a link to the end, agreeing to everything, and returns the last page.
func (p *person) connect(where string) page { return p.connectUntil("", where) }

// connectUntil does so until a page of that title.
func (p *person) connectUntil(title, where string) page {
	p.t.Helper()
	g := p.open(where)
	for range 10 {
		m := htmlForm.FindStringSubmatch(g.body)
		switch {
		case m == nil || g.title() == title || g.title() == "Your account":
			return g
		case strings.Contains(g.body, `name="login"`):
			g = p.press(g, url.Values{"login": {p.name}, "password": {"anything"}})
		default:
			fields := url.Values{}
			if b := htmlButton.FindStringSubmatch(g.body); b != nil {
				fields.Set("action", b[1])
			}
			g = p.press(g, fields)
		}
	}
	p.t.Fatalf("it does not end: %q", p.seen)
	return g
}

// mustConnect has the worker connect linear.
func (w *worker) mustConnect(t testing.TB) {
	t.Helper()
	if g := w.connect(w.c.origin + "/connect/linear"); !strings.Contains(g.body, "linear is connected") {
		t.Fatalf("it ends at %s (%d):\n%s", g.url, g.status, g.body)
	}
}

var disconnectForm = regexp.MustCompile(
	`(?s)<form method="post" action="/connect/(\w+)/disconnect"><input type="hidden" name="csrf" value="([^"]*)"`)

// disconnect has the worker disconnect a server on their account page, and returns that.
func (w *worker) disconnect(t testing.TB, name string) page {
	t.Helper()
	m := disconnectForm.FindStringSubmatch(w.open(w.c.origin + "/account").body)
	if m == nil || m[1] != name {
		t.Fatalf("there is no %s to disconnect", name)
	}
	return w.follow(w.do(http.MethodPost, w.c.origin+"/connect/"+name+"/disconnect",
		url.Values{"csrf": {html.UnescapeString(m[2])}}))
}

// title is that of a page, as a person reads it.
func (g page) title() string {
	m := htmlTitle.FindStringSubmatch(g.body)
	if m == nil {
		return ""
	}
	title, _, _ := strings.Cut(html.UnescapeString(m[1]), " · ")
	return title
}
