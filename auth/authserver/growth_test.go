package authserver

import (
	"context"
	"database/sql"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

type ctx = context.Context

// query reads the file of the store directly.
func (s *stand) query(t *testing.T, query string) (n int) {
	t.Helper()
	db, err := sql.Open("sqlite", filepath.Join(s.dir, "junction.db")+"?_pragma=busy_timeout(10000)")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := db.QueryRowContext(t.Context(), query).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func (s *stand) rows(t *testing.T, table string) int {
	return s.query(t, "SELECT count(*) FROM "+table)
}

// TestStoreStaysSmall begins and approves sign-ins with the largest parameters, and opens
// pages that require a sign-in. After a while the file of the store stops growing.
func TestStoreStaysSmall(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it makes many thousand requests, one after the other")
	}
	s, _ := mustNet(t, behindProxy(t))
	for _, g := range []*rateLimit{s.limits.begin, s.limits.finish} {
		g.open() // it is not the pace that bounds the store
	}
	s.connector = connectable{}
	redirect := "https://a.example/" + strings.Repeat("r", 400)
	id, err := s.registrar.seal(sealedClient{Name: strings.Repeat("ä", 80), Redirects: []string{redirect}})
	if err != nil {
		t.Fatal(err)
	}
	a := app{s, id, strings.Repeat("v", 43), redirect}
	do := func(method, where, body, cookie string) *httptest.ResponseRecorder {
		t.Helper()
		r := httptest.NewRequest(method, where, strings.NewReader(body))
		r.RemoteAddr = "127.0.0.1:1234"
		r.Header.Set("X-Forwarded-For", "198.51.100.7")
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		if cookie != "" {
			r.AddCookie(&http.Cookie{Name: bindingCookie, Value: cookie})
		}
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		return w
	}
	where := strings.TrimPrefix(a.asks("redirect_uri", redirect, "state", strings.Repeat("s", maxState)), s.url)
	attack := func(n int) {
		t.Helper()
		for i := range n {
			s.clock.forward(100 * time.Millisecond)
			w := do("GET", where, "", "")
			if w.Code != http.StatusOK {
				t.Fatalf("%d %s", w.Code, w.Body)
			}
			approve := fill(page{body: w.Body.String()}, "idp:sso").Encode()
			if w = do("POST", "/oauth/consent", approve, w.Result().Cookies()[0].Value); w.Code != http.StatusOK {
				t.Fatalf("approve: %d %s", w.Code, w.Body)
			}
			do("GET", fmt.Sprint("/connect/up?t=", strings.Repeat("t", 4000), i), "", "")
			do("GET", "/account", "", "")
		}
	}
	attack(210)
	first := s.query(t, "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size")
	attack(210)
	last := s.query(t, "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size")
	t.Logf("%d bytes after 840 requests, %d after 1,680", first, last)
	if n := s.rows(t, "auth_requests"); n > 400 {
		t.Errorf("%d requests of one address are stored", n)
	}
	if last > first+first/4 {
		t.Errorf("the store grows from %d to %d bytes", first, last)
	}
	// A person at another address began before that, and can go on.
	b := newBrowserAt(t, "203.0.113.9")
	p := b.once(http.MethodGet, s.mustApp(t).asks(), nil)
	attack(60)
	if p := b.follow(b.press(p, "idp:sso")); p.url.Query().Get("code") == "" {
		t.Errorf("%d %s", p.status, p.body)
	}
}

// connectable is a Connector with an unreachable upstream.
type connectable struct{ Connector }

// Upstreams implements Connector.
func (connectable) Upstreams() []string { return []string{"up"} }
