package upstream

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"junction/auth/authtest"
	"junction/upstream/client"
	"junction/upstream/raw"
	"junction/upstream/upstreamtest"
)

// memory is a Store.
type memory struct {
	mu    sync.Mutex
	texts map[[2]string][]byte
}

func (m *memory) Load(entry, user string) []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.texts[[2]string{entry, user}]
}

func (m *memory) Save(entry, user string, text func() []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.texts[[2]string{entry, user}] = text()
}

func (m *memory) Delete(entry, user string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.texts, [2]string{entry, user})
}

// waitingCredentials has no token for any user before the upstream ends.
type waitingCredentials struct{}

func (waitingCredentials) Apply(ctx context.Context, _ Caller, _ ...string) (Credential, error) {
	<-ctx.Done()
	return Credential{}, context.Cause(ctx)
}

// TestForeignStoredCatalogText: a catalog that is written and read again is the same, byte for
// byte.
func TestForeignStoredCatalogText(t *testing.T) {
	definition := []byte(`{ "name" : "a\u0062", "inputSchema":{"type":"object","x":1.50e3 },"_meta":{"é":"\ud83d\ude00"}}`)
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, upstreamtest.Script{Era: "modern", TTLMs: 5000, CacheScope: "public", Prompts: tools("p"), Resources: []json.RawMessage{[]byte(`{"uri":"file:///r","name":"r"}`)}}, Config{})
		broken := json.RawMessage(`{"name":"d","inputSchema":{"type":"object","properties":{"a":{"type":"nonsense"}}}}`)
		r.server.SetTools(append(tools("b", "c"), broken, definition))
		settle(minRefresh * 2)
		before := r.Catalog()
		after, err := parseCatalog(before.text(nil), raw.DefaultDepth, 100, nil)
		if err != nil {
			t.Fatal(err)
		}
		if !after.equal(before) || !after.Stored || after.Listed.Unix() != before.Listed.Unix() || after.Tool("c") == nil {
			t.Errorf("after  %+v\nbefore %+v", after, before)
		}
		if loose := after.Tool("d").Loose; loose != "inputSchema.properties.a.type is no type" {
			t.Errorf("the repaired schema may be used to check arguments (%q)", loose)
		}
		if last := after.Tools[len(after.Tools)-1].Definition.Text(); !bytes.Equal(last, definition) {
			t.Errorf("definition = %s, want %s", last, definition)
		}
	})
	for _, text := range []string{``, `{}`, `[]`, `{"v":2}`, `{"v":1,"era":"odd","listed":1}`, `{"v":1,"era":"legacy"}`, `{"v":1,"era":"legacy","listed":1,"tools/list":{}}`} {
		if c, err := parseCatalog([]byte(text), raw.DefaultDepth, 100, nil); err == nil {
			t.Errorf("%s is the catalog %+v", text, c)
		}
	}
}

// TestForeignStoredCatalogOfAPerson: the stored catalog of a person is shown to that person alone,
// and is deleted when they have signed out.
func TestForeignStoredCatalogOfAPerson(t *testing.T) {
	config := Config{URL: "http://127.0.0.1:1/mcp", Auth: Auth{Mode: AuthOAuthUser}}
	hers := &Catalog{Era: client.EraLegacy, Listed: time.Now()}
	hers.index[PartTools] = map[string]int{}
	hers.add(PartTools, tools("hers")[0], 0)
	store := &memory{texts: map[[2]string][]byte{{config.Entry("linear"), "ann"}: hers.text(nil)}}
	signedOut := &nobodySignedIn{}
	var s Set
	defer s.Close()
	changed := make(chan string, 10)
	s.Apply(map[string]Config{"linear": config}, Options{Credentials: waitingCredentials{}, Store: store, Log: authtest.Log(t),
		Hooks: Hooks{OwnChanged: func(name string) { changed <- name }}}, nil)
	u := s.Of("ann", anyMode)[0]
	<-changed
	if u.Catalog().Tool("hers") == nil {
		t.Errorf("she has %+v, want what was stored for her", u.Catalog())
	}
	if u := s.Of("bob", anyMode)[0]; len(u.Catalog().Tools) > 0 {
		t.Errorf("he has %+v, want nothing", u.Catalog())
	}
	var out Set
	defer out.Close()
	out.Apply(map[string]Config{"linear": config}, Options{Credentials: signedOut, Store: store, Log: authtest.Log(t)}, nil)
	u = out.Of("ann", anyMode)[0]
	<-u.Met()
	if !u.Catalog().SignIn || store.Load(config.Entry("linear"), "ann") != nil {
		t.Errorf("signed out, she has %+v, and what was stored is still there", u.Catalog())
	}
	// What she has connected anew may be another account.
	store.Save(config.Entry("linear"), "ann", func() []byte { return hers.text(nil) })
	s.Renew("ann", "linear")
	if store.Load(config.Entry("linear"), "ann") != nil {
		t.Error("the catalog of the account before is still stored")
	}
}

// TestProvenEraIsAskedFirstAfterARestart: the next process of Junction begins with the handshake of the
// era that the server has proven. A provisional era is not stored, and a proof of before is forgotten
// when the server contradicts it twice.
func TestProvenEraIsAskedFirstAfterARestart(t *testing.T) {
	const (
		discover, initialize, initialized = "server/discover", "initialize", "notifications/initialized"
	)
	refuses := func(method string) upstreamtest.Rule {
		return upstreamtest.Rule{Method: method, Error: []byte(`{"code":-32601,"message":"Method not found"}`)}
	}
	for _, tt := range []struct {
		name          string
		first, second upstreamtest.Script // of the same server, before and after the restart
		want          []string            // handshakes after the restart
		era           client.Era
	}{
		{"legacy", upstreamtest.Script{Era: "legacy"}, upstreamtest.Script{Era: "legacy"}, []string{initialize, initialized}, client.EraLegacy},
		{"modern, and now away for a moment", upstreamtest.Script{}, upstreamtest.Script{Rules: []upstreamtest.Rule{status(discover, 503, 2)}},
			[]string{discover, discover, discover}, client.EraModern},
		{"provisional", upstreamtest.Script{Era: "legacy", DiscoverFails: "403"}, upstreamtest.Script{Era: "legacy", DiscoverFails: "403"},
			[]string{discover, initialize, initialized}, client.EraLegacy},
		{"silent", upstreamtest.Script{Era: "legacy", DiscoverFails: "silence"}, upstreamtest.Script{}, []string{discover}, client.EraModern},
		{"legacy, and now modern alone", upstreamtest.Script{Era: "legacy"}, upstreamtest.Script{Era: "modern"},
			[]string{initialize, initialize, discover}, client.EraModern},
		{"legacy, and now modern alone behind a gateway", upstreamtest.Script{Era: "legacy"},
			upstreamtest.Script{Era: "modern", Rules: []upstreamtest.Rule{status(initialize, 410, 0)}},
			[]string{initialize, initialize, discover}, client.EraModern},
		{"modern, and now legacy alone", upstreamtest.Script{Era: "modern"}, upstreamtest.Script{Era: "legacy", Rules: []upstreamtest.Rule{refuses(discover)}},
			[]string{discover, discover, initialize, initialized}, client.EraLegacy},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &memory{texts: map[[2]string][]byte{}}
				keep := func(o *Options) { o.Store = store }
				before := newRig(t, tt.first, Config{}, keep)
				settle(10 * time.Second)
				before.Upstream.Close()
				after := newRig(t, tt.second, Config{}, keep)
				settle(10 * time.Second)
				var asked []string
				for _, method := range after.server.Methods() {
					if method == discover || method == initialize || method == initialized {
						asked = append(asked, method)
					}
				}
				if !slices.Equal(asked, tt.want) || after.Catalog().Era != tt.era || after.Status().State != StateReady {
					t.Errorf("after the restart the server was asked %q and is %v in the era %q; want %q, ready, %q", asked,
						after.Status().State, after.Catalog().Era, tt.want, tt.era)
				}
			})
		})
	}
}

// TestProofIsOfOneEntry: a reload with another address asks the other server without a guess.
func TestProofIsOfOneEntry(t *testing.T) {
	old := &Catalog{Era: client.EraLegacy, Listed: time.Now(), Stored: true, proven: true}
	s, url := upstreamtest.Start(t, upstreamtest.Script{Era: "modern"})
	u := start("up", "", Config{URL: url}.resolve(Defaults{}), Options{Log: authtest.Log(t), Store: &memory{texts: map[[2]string][]byte{}}}.withDefaults(), old)
	defer u.Close()
	<-u.Met()
	if methods := s.Methods(); len(methods) == 0 || methods[0] != "server/discover" {
		t.Errorf("the server was asked %q", methods)
	}
}

// TestEntryStaysTheSameAcrossVersions: an entry that has none of the keys of later versions keeps its text. So
// a program finds the catalogs that another version has stored, after an upgrade and after a rollback.
func TestEntryStaysTheSameAcrossVersions(t *testing.T) {
	const want = `{"Name":"up","Command":["server"],"Env":null,"Dir":"","URL":"","Headers":null,"Auth":{"Mode":"",` +
		`"Scopes":null,"ClientID":"","ClientSecret":"","Issuer":"","AuthorizationEndpoint":"","TokenEndpoint":""},` +
		`"Transport":"","Era":"","Questions":""}`
	if got := (Config{Command: []string{"server"}}).Entry("up"); got != want {
		t.Errorf("Entry = %s\nwant %s; a new key needs omitempty", got, want)
	}
	with := Config{Auth: Auth{Resource: "api://x", Params: map[string]string{"access_type": "offline"}}}
	if with.Entry("up") == (Config{}).Entry("up") {
		t.Error("the keys of a later version do not count")
	}
}
