package upstream

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"junction/auth/authtest"
	"junction/upstream/client"
	"junction/upstream/upstreamtest"
)

// TestForeignOwnCatalogGoesWithItsConnection: the catalog of one user's connection is theirs alone,
// and ends with the connection.
func TestForeignOwnCatalogGoesWithItsConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, legacyScript, Config{Isolation: IsolationPrincipal}, func(o *Options) { o.Refresh = time.Hour })
		synctest.Wait()
		mustCall(t, r.Upstream, toolCall("echo", `{}`, user("one")))
		settle(time.Minute) // it has listed once more by then, since it listens
		own := &Catalog{Era: client.EraLegacy, Listed: time.Now()}
		r.lists.publishOwn(r.key(client.Profile{}, "", "one", false), own)
		if r.CatalogFor(client.Profile{}, "", "one") != own || r.CatalogFor(client.Profile{}, "", "two") != r.Catalog() {
			t.Error("the catalog of one user is not theirs alone")
		}
		settle(ownIdle + time.Minute)
		if r.CatalogFor(client.Profile{}, "", "one") != r.Catalog() {
			t.Error("the catalog has outlived its connection")
		}
	})
}

// TestSessionsWithRootsGetTheirListAtOnce: a server may offer more tools to a client with roots. With
// isolation: session, the connection of such a session is opened before its first list.
func TestSessionsWithRootsGetTheirListAtOnce(t *testing.T) {
	for _, tt := range []struct {
		name    string
		config  Config
		profile client.Profile
		session string
		links   int // with the one that reads the shared catalog
	}{
		{"roots", Config{Isolation: IsolationSession}, client.Everything(), "s", 2},
		{"no roots", Config{Isolation: IsolationSession}, client.Profile{Form: true}, "s", 1},
		{"no session", Config{Isolation: IsolationSession}, client.Everything(), "", 1},
		{"a folder", Config{Isolation: IsolationSession}, client.Everything(), WindowIn("/a"), 1},
		{"questions: false", Config{Isolation: IsolationSession, Questions: QuestionsOff}, client.Everything(), "s", 1},
		{"isolation: principal", Config{Isolation: IsolationPrincipal}, client.Everything(), "s", 1},
		{"isolation: shared", Config{Isolation: IsolationShared}, client.Everything(), "s", 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, legacyScript, tt.config)
				synctest.Wait()
				waited := r.Prepare(t.Context(), tt.profile, tt.session, "one")
				if n := r.Status().Links; n != tt.links || waited != (n > 1) {
					t.Errorf("Prepare = %t, and there are %d links, want %d", waited, n, tt.links)
				}
			})
		})
	}
}

// TestForeignHolderOfState: the callers that share the connections of a server share its state. The state
// ends with the connection: when it is idle, or when it is discarded.
func TestForeignHolderOfState(t *testing.T) {
	yes, no := true, false
	for _, tt := range []struct {
		name     string
		config   Config
		session  string
		stateful bool
		holder   string
	}{
		{"unset", Config{Isolation: IsolationPrincipal}, "s", false, ""},
		{"false", Config{Isolation: IsolationPrincipal, Stateful: &no}, "s", false, ""},
		{"principal", Config{Isolation: IsolationPrincipal, Stateful: &yes}, "s", true, "principal one"},
		{"shared", Config{Isolation: IsolationShared, Stateful: &yes}, "s", true, ""},
		{"one user", Config{Stateful: &yes}, "s", true, ""},
		{"several users", Config{Stateful: &yes, Separate: true}, "", true, "principal one"},
		{"session", Config{Isolation: IsolationSession, Stateful: &yes}, "s", false, ""},
		{"no session", Config{Isolation: IsolationSession, Stateful: &yes}, "", true, "principal one"},
		{"a folder", Config{Isolation: IsolationSession, Stateful: &yes}, WindowIn("/a"), true, "folder /a\x00one"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, legacyScript, tt.config)
				synctest.Wait()
				holder, ok := r.Holder(Window{Session: tt.session, Principal: "one"})
				if ok != tt.stateful || holder != tt.holder {
					t.Fatalf("Holder = %q, %t; want %q, %t", holder, ok, tt.holder, tt.stateful)
				}
				if !ok {
					return
				}
				in := func(c *Call) {
					if c.Session = tt.session; isWindow(tt.session) {
						c.Session, c.Window = "", tt.session
					}
				}
				first := sessionOf(t, r.Upstream, user("one"), in)
				if !r.Keeps(holder) || holder != "" && r.Keeps("principal two") {
					t.Error("the wrong callers have a state")
				}
				if again := sessionOf(t, r.Upstream, user("one"), in); again != first {
					t.Error("a second call has another state")
				}
				r.Discard("principal two")
				synctest.Wait()
				if again := sessionOf(t, r.Upstream, user("one"), in); again != first {
					t.Error("the state of another caller was discarded, and this one has ended")
				}
				r.Discard(holder)
				synctest.Wait()
				if again := sessionOf(t, r.Upstream, user("one"), in); again == first {
					t.Error("a discarded state is still there")
				}
				if settle(ownIdle + time.Minute); r.Keeps(holder) != (holder == "") { // that of all reads the catalog
					t.Errorf("Keeps = %t after an idle time", r.Keeps(holder))
				}
			})
		})
	}
}

// TestForeignFoldersInPlaceOfSessions: with isolation: session, the calls of a client without a session share the
// connection of the folder that the client names, or without one that of their user. Other words of isolation do not
// look at the folder.
func TestForeignFoldersInPlaceOfSessions(t *testing.T) {
	for _, tt := range []struct {
		isolation Isolation
		want      string // a letter for each session of the server, in the order of the calls
	}{
		{IsolationSession, "abacdde"}, {IsolationPrincipal, "aaaabba"}, {IsolationShared, "aaaaaaa"},
	} {
		t.Run(string(tt.isolation), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, legacyScript, Config{Isolation: tt.isolation})
				synctest.Wait()
				seen, got := map[string]string{}, ""
				for _, c := range []struct{ user, window, session string }{
					{"one", WindowIn("/a"), ""}, {"one", WindowIn("/b"), ""}, {"one", WindowIn("/a"), ""},
					{"one", "", ""}, {"two", WindowIn("/a"), ""}, {"two", WindowIn("/a"), ""}, {"one", "", "s"},
				} {
					id := sessionOf(t, r.Upstream, user(c.user), func(call *Call) { call.Window, call.Session = c.window, c.session })
					if seen[id] == "" {
						seen[id] = string(rune('a' + len(seen)))
					}
					got += seen[id]
				}
				if got != tt.want {
					t.Errorf("the calls used the sessions %s, want %s", got, tt.want)
				}
			})
		})
	}
}

// TestForeignHolderOfAPersonalState: at a server that each user signs in to, each user has a state of their
// own, also with isolation: shared, which concerns the connections of that user.
func TestForeignHolderOfAPersonalState(t *testing.T) {
	yes := true
	var s Set
	defer s.Close()
	s.Apply(map[string]Config{"up": {URL: "http://127.0.0.1:1/mcp", Auth: Auth{Mode: AuthOAuthUser}, Stateful: &yes,
		Isolation: IsolationShared}}, Options{Credentials: &nobodySignedIn{}, Log: authtest.Log(t)}, nil)
	for _, user := range []string{"ann", "ben"} {
		if holder, ok := s.Of(user, anyMode)[0].Holder(Window{Session: "s", Principal: user}); !ok || holder != "principal "+user {
			t.Errorf("the holder of the state of %s is %q, %t", user, holder, ok)
		}
	}
}

// TestWarmConnectionIsThereBeforeTheFirstCall: with warm, the connection of a user begins when the user
// lists tools. It takes only room that is free.
func TestWarmConnectionIsThereBeforeTheFirstCall(t *testing.T) {
	for _, tt := range []struct {
		name   string
		config Config
		before func(*rig)
		links  int // with the one that reads the shared catalog
	}{
		{"warm", Config{Separate: true, Isolation: IsolationPrincipal, Warm: true}, nil, 2},
		{"not warm", Config{Separate: true, Isolation: IsolationPrincipal}, nil, 1},
		{"shared", Config{Isolation: IsolationShared, Warm: true}, nil, 1},
		{"no session", Config{Isolation: IsolationSession, Warm: true}, nil, 1},
		{"no room", Config{Separate: true, Isolation: IsolationPrincipal, Warm: true, MaxLinks: 2}, func(r *rig) {
			mustCall(r.t, r.Upstream, toolCall("echo", `{}`, user("other")))
		}, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, legacyScript, tt.config)
				synctest.Wait()
				if tt.before != nil {
					tt.before(r)
				}
				c := &Call{Call: client.Call{Principal: "one", Profile: client.Everything()}, Era: client.EraLegacy}
				r.Warm(c)
				r.Warm(c)
				settle(time.Minute)
				if n := r.Status().Links; n != tt.links {
					t.Errorf("there are %d links before the first call, want %d", n, tt.links)
				}
				opened := r.count("initialize")
				mustCall(t, r.Upstream, toolCall("echo", `{}`, user("one")))
				if n := r.count("initialize"); tt.name == "warm" && n != opened {
					t.Error("the first call opened a connection, although the user had a warm one")
				}
			})
		})
	}
}

// TestCallTellsThatItWaitsForAConnection: the client of a call that waits for a connection of one user gets
// a log message after a second, and the error says what was not ready.
func TestCallTellsThatItWaitsForAConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		script := legacyScript
		script.Rules = []upstreamtest.Rule{{Method: "initialize", Hang: true, Skip: 1, Times: 1}}
		r := newRig(t, script, Config{Isolation: IsolationPrincipal, Era: client.EraLegacy, Timeout: 3 * time.Second,
			ConnectTimeout: time.Minute})
		synctest.Wait()
		peer := &listener{}
		call := func() <-chan result {
			return begun(r.Upstream, toolCall("echo", `{}`, user("one"), func(c *Call) { c.Peer = peer }))
		}
		first := call()
		settle(900 * time.Millisecond)
		if heard := peer.take(); heard != nil {
			t.Errorf("the client got %s within a second", heard)
		}
		mustFail(t, <-first, client.KindUnavailable)
		const want = `notifications/message {"level":"info","logger":"junction","data":"the call waits: Junction connects to ` +
			`up for this user alone; the next call does not wait"}`
		if heard := peer.take(); len(heard) != 1 || heard[0] != want {
			t.Errorf("the client got %s, want one message: %s", heard, want)
		}
		settle(5 * time.Minute)
		peer.take()
		if res := <-call(); res.err != nil {
			t.Errorf("a call over a fast connection: %v", res.err)
		}
		if heard := peer.take(); heard != nil {
			t.Errorf("the client of a call over a fast connection got %s", heard)
		}
	})
}

// listener is the client of one call, which keeps the notifications that it got.
type listener struct {
	quietClient
	mu    sync.Mutex
	heard []string // guarded by mu
}

func (l *listener) Notify(method string, params []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.heard = append(l.heard, method+" "+string(params))
}

// take returns what the client got since the last take.
func (l *listener) take() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer func() { l.heard = nil }()
	return l.heard
}

// TestErrorNamesTheProcessOfOneUser: the reason of a call without a connection tells a process of one user
// from that of all users.
func TestErrorNamesTheProcessOfOneUser(t *testing.T) {
	command := &pool{connConfig: Config{Command: []string{"server"}}}
	for _, tt := range []struct {
		key  linkKey
		pool *pool
		want string
	}{
		{linkKey{holder: "principal one"}, command, "a process for this user alone is still starting"},
		{linkKey{}, command, "still connecting"},
		{linkKey{holder: "principal one"}, &pool{connConfig: Config{URL: "https://x"}}, "still connecting"},
	} {
		if got := (&link{key: tt.key, pool: tt.pool}).connecting(); got != tt.want {
			t.Errorf("%+v: %q, want %q", tt.key, got, tt.want)
		}
	}
}
