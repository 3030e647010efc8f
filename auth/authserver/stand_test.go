package authserver

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"junction/auth"
	"junction/auth/authserver/provider"
	"junction/auth/authtest"
	"junction/auth/seal"
	"junction/auth/store"
)

// stand is an authorization server on loopback, with a scriptable provider.
type stand struct {
	*Server
	idp   *idp
	store *store.Store
	clock *clock
	http  *httptest.Server
	dir   string // of the store
	keys  string // as a ring is written
}

// clock is a clock for a test to move.
type clock struct {
	mu      sync.Mutex
	offset  time.Duration
	stopped time.Time // if it stands still
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.stopped.IsZero() {
		return c.stopped.Add(c.offset)
	}
	return time.Now().Add(c.offset)
}

// stop stops the clock, except for forward.
func (c *clock) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopped = time.Now()
}

func (c *clock) forward(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.offset += d
}

// mustStand starts a server with one provider, sso; change may alter its options.
func mustStand(t testing.TB, change func(*Options)) *stand {
	t.Helper()
	s := &stand{idp: mustIDP(t), clock: &clock{}, dir: t.TempDir(),
		keys: "k1:" + base64.StdEncoding.EncodeToString(seal.NewSecret())}
	ring, err := seal.ParseRing(s.keys)
	if err != nil {
		t.Fatal(err)
	}
	s.idp.now = s.clock.now
	log := authtest.Log(t)
	if s.store, err = store.Open(t.Context(),
		store.Config{DSN: filepath.Join(s.dir, "junction.db"), Keys: ring, Now: s.clock.now, Log: log}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.store.Close() })
	ids := auth.NewRequestIDs()
	s.http = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ids.Stamp(w)
		s.Server.ServeHTTP(w, r)
	}))
	t.Cleanup(s.http.Close)
	o := Options{URL: s.http.URL, Store: s.store, Keys: ring, Now: s.clock.now, Log: log, Config: Config{
		IdentityProviders: []provider.Config{{ID: "sso", Name: "Acme SSO", Issuer: s.idp.URL, ClientID: "junction",
			ClientSecret: "canary-s3cret"}},
	}}
	if change != nil {
		change(&o)
	}
	if problems := o.Config.Validate(); len(problems) > 0 {
		t.Fatal(problems)
	}
	if s.Server, err = New(o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Server.Close)
	return s
}

// idp is an identity provider where ann is always signed in.
type idp struct {
	*authtest.Server
	t testing.TB

	mu      sync.Mutex
	codes   map[string]url.Values              // of the authorization requests
	refresh string                             // the token that is good; "" gives none
	claims  map[string]any                     // instead of its own
	status  int                                // of the token endpoint, if it is not 0
	answer  url.Values                         // of the authorization endpoint, instead of its own
	sign    func(claims map[string]any) string // an ID token, instead of its own way
	renewed int
	now     func() time.Time
	n       int
}

func mustIDP(t testing.TB) *idp {
	p := &idp{Server: authtest.Start(t), t: t, codes: map[string]url.Values{}, claims: map[string]any{},
		refresh: "refresh-token-of-the-provider"}
	p.Answer("/authorize", p.authorize)
	p.Answer("/token", p.token)
	return p
}

func (p *idp) set(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
}

func (p *idp) authorize(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	q := r.URL.Query()
	p.n++
	code := fmt.Sprint("code-of-the-provider-", p.n)
	for _, name := range []string{"state", "nonce"} {
		authtest.Secret("the "+name+" of a sign-in", q.Get(name))
	}
	authtest.Secret("a code of the provider", code)
	p.codes[code] = q
	out := url.Values{"code": {code}, "state": {q.Get("state")}}
	for name, v := range p.answer {
		if out[name] = v; len(v) == 0 {
			out.Del(name)
		}
	}
	http.Redirect(w, r, q.Get("redirect_uri")+"?"+out.Encode(), http.StatusFound)
}

func (p *idp) token(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	refuse := func(code string) {
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprintf(w, `{"error":%q}`, code)
	}
	if p.status != 0 {
		w.WriteHeader(p.status)
		return
	}
	if err := r.ParseForm(); err != nil {
		refuse("invalid_request")
		return
	}
	id, secret, _ := r.BasicAuth()
	if id == "" {
		id, secret = r.PostForm.Get("client_id"), r.PostForm.Get("client_secret")
	}
	if id != "junction" || secret != "canary-s3cret" {
		refuse("invalid_client")
		return
	}
	if r.PostForm.Get("resource") != "" {
		refuse("invalid_target") // as Entra does
		return
	}
	claims := map[string]any{"client_id": nil, "email": "Ann@Acme.example", "email_verified": true,
		"groups": []string{"engineering"}, "name": "Ann", "exp": p.now().Add(time.Hour).Unix()}
	switch r.PostForm.Get("grant_type") {
	case "authorization_code":
		q := p.codes[r.PostForm.Get("code")]
		delete(p.codes, r.PostForm.Get("code"))
		sum := sha256.Sum256([]byte(r.PostForm.Get("code_verifier")))
		if q == nil || q.Get("code_challenge") != base64.RawURLEncoding.EncodeToString(sum[:]) ||
			q.Get("redirect_uri") != r.PostForm.Get("redirect_uri") {
			refuse("invalid_grant")
			return
		}
		claims["nonce"] = q.Get("nonce")
	case "refresh_token":
		if p.refresh == "" || r.PostForm.Get("refresh_token") != p.refresh {
			refuse("invalid_grant")
			return
		}
		p.renewed++
		p.refresh = fmt.Sprint("renewed-refresh-token-of-the-provider-", p.renewed)
	}
	for name, v := range p.claims {
		claims[name] = v
	}
	sign := p.sign
	if sign == nil {
		sign = func(claims map[string]any) string { return p.Token(p.t, claims, map[string]any{"typ": "JWT"}) }
	}
	idToken := sign(p.Claims("junction", claims))
	const theirs = "access-token-of-the-provider"
	for kind, token := range map[string]string{"the provider's access token": theirs,
		"the provider's refresh token": p.refresh, "an ID token": idToken,
		"our secret at the provider": "canary-s3cret"} {
		authtest.Secret(kind, token)
	}
	authtest.Secret("our verifier", r.PostForm.Get("code_verifier"))
	out := map[string]any{"access_token": theirs, "token_type": "Bearer", "expires_in": 300, "id_token": idToken}
	if p.refresh != "" {
		out["refresh_token"] = p.refresh
	}
	text, err := json.Marshal(out)
	if err != nil {
		p.t.Error(err)
	}
	w.Write(text)
}

// browser keeps cookies, also secure ones, since loopback counts as secure.
type browser struct {
	t       *testing.T
	cookies map[string]map[string]string // by host
	header  http.Header                  // added to each request
}

func newBrowser(t *testing.T) *browser {
	return &browser{t: t, cookies: map[string]map[string]string{}, header: http.Header{}}
}

// page is the current page of a browser, or the redirect URI that it was sent to.
type page struct {
	status int
	header http.Header
	url    *url.URL
	body   string
}

func (b *browser) once(method, where string, form url.Values) page {
	b.t.Helper()
	var body io.Reader
	if form != nil {
		body = strings.NewReader(form.Encode())
	}
	r, err := http.NewRequestWithContext(b.t.Context(), method, where, body)
	if err != nil {
		b.t.Fatal(err)
	}
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Sec-Fetch-Site", "same-origin")
		r.Header.Set("Origin", "null")
	}
	for name, values := range b.header {
		r.Header[name] = values
	}
	for name, value := range b.cookies[r.URL.Host] {
		r.AddCookie(&http.Cookie{Name: name, Value: value})
		authtest.Secret("a cookie", value)
	}
	authtest.Secret("the token of a form", form.Get("csrf"))
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Timeout: time.Minute}
	resp, err := client.Do(r)
	if err != nil {
		b.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	for _, c := range resp.Cookies() {
		if b.cookies[r.URL.Host] == nil {
			b.cookies[r.URL.Host] = map[string]string{}
		}
		if b.cookies[r.URL.Host][c.Name] = c.Value; c.MaxAge < 0 {
			delete(b.cookies[r.URL.Host], c.Name)
		}
	}
	return page{resp.StatusCode, resp.Header, r.URL, string(text)}
}

const clientAt = "http://localhost:61802/callback"

// follow follows pages up to the client.
func (b *browser) follow(p page) page {
	b.t.Helper()
	for range 10 {
		next := p.header.Get("Location")
		if _, after, ok := strings.Cut(p.header.Get("Refresh"), "url="); ok {
			next = after
		}
		if next == "" {
			return p
		}
		to, err := p.url.Parse(next)
		if err != nil {
			b.t.Fatal(err)
		}
		if !strings.HasPrefix(to.Host, "127.0.0.1:") {
			return page{url: to, body: p.body, status: p.status, header: p.header}
		}
		p = b.once(http.MethodGet, to.String(), nil)
	}
	b.t.Fatal("the pages lead nowhere")
	return p
}

var hidden = regexp.MustCompile(`<input type="hidden" name="([a-z]+)" value="([^"]*)">`)

// press presses a button of the page.
func (b *browser) press(p page, action string) page {
	b.t.Helper()
	return b.once(http.MethodPost, p.url.Scheme+"://"+p.url.Host+"/oauth/consent", fill(p, action))
}

func fill(p page, action string) url.Values {
	form := url.Values{"action": {action}}
	for _, m := range hidden.FindAllStringSubmatch(p.body, -1) {
		form.Set(m[1], html.UnescapeString(m[2]))
	}
	return form
}

// app is a registered client with its PKCE verifier.
type app struct {
	s            *stand
	id, verifier string
	redirect     string
}

func (s *stand) mustApp(t *testing.T) app {
	t.Helper()
	status, body := s.post(t, "/oauth/register", "application/json",
		`{"client_name":"Claude Code (junction)","redirect_uris":["http://localhost:3118/callback"]}`)
	if status != http.StatusCreated {
		t.Fatal(status, body)
	}
	return app{s, member(t, body, "client_id"), strings.Repeat("v", 43), clientAt}
}

func member(t *testing.T, body, name string) string {
	t.Helper()
	var m map[string]any
	if err := json.Unmarshal([]byte(body), &m); err != nil {
		t.Fatalf("%v in %s", err, body)
	}
	v, _ := m[name].(string)
	return v
}

func (s *stand) post(t *testing.T, path, media, body string) (int, string) {
	t.Helper()
	resp, err := http.Post(s.url+path, media, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if got := resp.Header.Get("Cache-Control"); got != "no-store" {
		t.Errorf("%s: Cache-Control: %s", path, got)
	}
	return resp.StatusCode, string(text)
}

// asks returns the app's authorization URL; changes are name, value pairs, and "" removes a
// parameter.
func (a app) asks(changes ...string) string {
	sum := sha256.Sum256([]byte(a.verifier))
	q := url.Values{
		"response_type": {"code"}, "client_id": {a.id}, "redirect_uri": {a.redirect}, "state": {"the state"},
		"scope":    {"mcp offline_access"},
		"resource": {a.s.url + "/mcp"}, "code_challenge": {base64.RawURLEncoding.EncodeToString(sum[:])},
		"code_challenge_method": {"S256"},
	}
	for i := 0; i < len(changes); i += 2 {
		if q.Set(changes[i], changes[i+1]); changes[i+1] == "" {
			q.Del(changes[i])
		}
	}
	return a.s.url + "/oauth/authorize?" + q.Encode()
}

// mustCode signs ann in, and returns the code.
func (a app) mustCode(t *testing.T, b *browser) string {
	t.Helper()
	p := b.once(http.MethodGet, a.asks(), nil)
	action := "idp:sso"
	if strings.Contains(p.body, `value="allow"`) {
		action = "allow"
	}
	p = b.follow(b.press(p, action))
	if p.url.Host != "localhost:61802" || p.url.Query().Get("code") == "" ||
		p.url.Query().Get("state") != "the state" || p.url.Query().Get("iss") != a.s.url {
		t.Fatalf("the client was answered at %s\n%s", p.url, p.body)
	}
	authtest.Secret("a code", p.url.Query().Get("code"))
	return p.url.Query().Get("code")
}

// exchange calls the token endpoint.
func (a app) exchange(t *testing.T, changes ...string) (int, map[string]any) {
	t.Helper()
	q := url.Values{"client_id": {a.id}, "resource": {a.s.url + "/mcp"}}
	for i := 0; i < len(changes); i += 2 {
		if q.Set(changes[i], changes[i+1]); changes[i+1] == "" {
			q.Del(changes[i])
		}
	}
	for _, name := range []string{"code", "code_verifier", "client_assertion", "refresh_token"} {
		authtest.Secret("what an app sends: "+name, q.Get(name))
	}
	status, body := a.s.post(t, "/oauth/token", "application/x-www-form-urlencoded", q.Encode())
	var m map[string]any
	if err := json.Unmarshal([]byte(body), &m); err != nil {
		t.Fatalf("%d %s", status, body)
	}
	for _, name := range []string{"access_token", "refresh_token"} {
		token, _ := m[name].(string)
		authtest.Secret("an app's "+name, token)
	}
	return status, m
}

func (a app) redeem(t *testing.T, code string, changes ...string) (int, map[string]any) {
	t.Helper()
	return a.exchange(t, append([]string{"grant_type", "authorization_code", "code", code, "code_verifier", a.verifier,
		"redirect_uri", a.redirect}, changes...)...)
}

func (a app) refresh(t *testing.T, token any, changes ...string) (int, map[string]any) {
	t.Helper()
	return a.exchange(t, append([]string{"grant_type", "refresh_token", "refresh_token", fmt.Sprint(token)},
		changes...)...)
}

// mustSignIn returns the tokens of a whole sign-in.
func (a app) mustSignIn(t *testing.T, b *browser) map[string]any {
	t.Helper()
	status, m := a.redeem(t, a.mustCode(t, b))
	if status != http.StatusOK {
		t.Fatal(status, m)
	}
	return m
}
