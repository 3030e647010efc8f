package front

import (
	"cmp"
	"context"
	"errors"
	"hash/maphash"
	"io"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/go-chi/chi/v5"
	"github.com/mark3labs/mcp-go/mcp"

	"junction/auth"
	"junction/policy"
	"junction/proxy"
	"junction/proxy/budget"
	"junction/proxy/members"
	"junction/proxy/origin"
	"junction/proxy/scope"
	"junction/upstream"
	"junction/upstream/client"
	"junction/upstream/jsonrpc"
	"junction/upstream/raw"
)

// NothingAt returns the text for a path below which no MCP endpoint can be.
func NothingAt(path string) string {
	if name := strings.Trim(path, "/"); endpointName.MatchString(name) {
		return "Nothing is here; the MCP endpoint is /mcp. The URL of an endpoint called " + name + " ends in /" +
			name + "/mcp."
	}
	return "Nothing is here; the MCP endpoint is /mcp."
}

// route makes the handlers of the endpoints.
func (s *Server) route() {
	r := chi.NewRouter()
	r.Use(s.checkOrigin)
	r.NotFound(func(rw http.ResponseWriter, r *http.Request) {
		http.Error(rw, NothingAt(r.URL.Path), http.StatusNotFound)
	})
	merged := s.at(func(*http.Request) string { return "" })
	r.Handle("/mcp", merged)
	r.Handle("/mcp/{upstream}", s.at(func(r *http.Request) string { return chi.URLParam(r, "upstream") }))
	r.Handle("/{endpoint}/mcp", s.at(func(r *http.Request) string { return chi.URLParam(r, "endpoint") + "/" }))
	s.routes = http.HandlerFunc(func(rw http.ResponseWriter, req *http.Request) { r.ServeHTTP(rw, withoutSlash(req)) })
	s.merged = s.checkOrigin(merged)
}

// request is one HTTP request until its answer. It is the Front of its exchange.
type request struct {
	proxy.Exchange
	server  *Server
	request *http.Request
	reply   reply
	body    *[]byte  // nil until it was read
	session *session // legacy only
	mixed   bool     // it had parts of both eras, and is read as modern (eras.go)
}

// newRequest returns a request whose message was not read yet. Call release at its end.
func (s *Server) newRequest(w http.ResponseWriter, r *http.Request, c scope.Caller) *request {
	x := &request{server: s, request: r}
	s.Prepare(&x.Exchange, x, c, s.grant(c, r))
	x.RequestID, x.Header = auth.RequestID(w), r.Header
	x.reply.init(w, r, &s.limits)
	x.reply.held = &x.Grant
	return x
}

// Begin implements Front.
func (x *request) Begin() { x.reply.begin() }

// Hears implements Front.
func (x *request) Hears() bool { return x.reply.stream }

// Notify implements Front.
func (x *request) Notify(method string, params []byte) bool {
	kind := logged
	switch method {
	case string(mcp.MethodNotificationProgress):
		kind = progressed
	case string(mcp.MethodNotificationCancelled): // of a question; Junction makes it
		kind = lasting
	}
	return x.reply.send(jsonrpc.AppendRequest(nil, "", method, params), kind)
}

// Headers implements Front.
func (x *request) Headers(params raw.Object, tool *upstream.Tool) ([]client.HeaderField, error) {
	return paramHeaders(x.request.Header, params, tool, x.mixed)
}

// endpointName matches the names that endpoints can have. The answer to an unknown path repeats such a
// name, whether or not there is an endpoint.
var endpointName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// Succeed implements Front.
func (x *request) Succeed(r proxy.Result) { x.reply.succeed(x.Msg.ID, r) }

// Fail implements Front.
func (x *request) Fail(e *jsonrpc.Error, reason proxy.Reason, cause error) {
	if own, ok := errors.AsType[*proxy.Refusal](cause); ok && own.Scopes != "" {
		challenge := x.Snapshot.Config.Guard.Resources.StepUp(x.request.URL.Path, strings.Fields(own.Scopes))
		x.reply.w.Header().Set("WWW-Authenticate", challenge)
	}
	retry(x.reply.w, cause)
	x.reply.fail(x.Msg.ID, e, statusOf(cause, reason))
}

// at returns a handler for the endpoint that name returns for a request. Unauthenticated clients
// learn nothing, not even which endpoints exist. An endpoint does not exist for callers that may
// use none of its items.
func (s *Server) at(name func(*http.Request) string) http.HandlerFunc {
	return func(rw http.ResponseWriter, r *http.Request) {
		if s.answerMember(rw, r) {
			return
		}
		w := s.Snapshot()
		c := scope.Caller{Snapshot: w, Principal: w.Config.Guard.Authenticate(rw, r)}
		if c.Principal == nil {
			return
		}
		c.Stricter = members.Rules(r.Context())
		at := name(r)
		w.AwaitPersonal(r.Context(), c.Principal)
		switch rights := c.Enter(at); {
		case rights.None():
			s.forbid(rw, r, c, at)
			return
		case c.Endpoint == nil, c.Hidden():
			s.noEndpoint(rw, r, c, at)
			return
		}
		joinVersion(r.Header)
		x := s.newRequest(rw, r, c)
		defer s.release(x)
		if s.members != nil && (s.serveMember(x) || s.forwardSession(x)) {
			return
		}
		var err error
		switch r.Method {
		case http.MethodPost:
			err = s.post(x)
		case http.MethodGet, http.MethodDelete:
			switch {
			case x.Endpoint.Eras == scope.ErasModern:
				rw.Header().Set("Allow", "POST")
				http.Error(rw, "Use POST: this endpoint has no sessions (eras: modern).", http.StatusMethodNotAllowed)
			case r.Method == http.MethodGet:
				err = legacyFront{s}.get(x)
			default:
				err = legacyFront{s}.delete(x)
			}
		default:
			rw.Header().Set("Allow", "POST, GET, DELETE")
			http.Error(rw, "Use POST.", http.StatusMethodNotAllowed)
		}
		if err != nil {
			s.reject(x, "", err)
		}
	}
}

// answer serves a request.
func (s *Server) answer(ctx context.Context, x *request) {
	defer s.finish(x) // in any case, so that no goroutine writes to a finished request
	s.Serve(ctx, &x.Exchange)
}

// finish ends the reply, and reports the notifications that were dropped.
func (s *Server) finish(x *request) {
	x.reply.finish()
	x.reply.mu.Lock()
	progress, messages := x.reply.waiting.dropped[progressed], x.reply.waiting.dropped[logged]
	x.reply.mu.Unlock()
	if progress+messages == 0 {
		return
	}
	s.ReportDropped(&x.Exchange, progress, messages)
	if s.observer != nil {
		s.observer.Dropped(progress, messages)
	}
}

// release returns what the request holds, when it is answered.
func (s *Server) release(x *request) {
	x.Grant.Release()
	if x.body != nil && !x.Outlived {
		s.bodies.Put(x.body)
	}
}

// forbid answers a caller to whom no policy grants anything. The request is not parsed. The answer is
// an HTTP error, as for an invalid token, and not an MCP error.
func (s *Server) forbid(rw http.ResponseWriter, r *http.Request, c scope.Caller, at string) {
	err := refuse(http.StatusForbidden, 0, "%s; no policy grants access (policies)", identityText(c.Principal))
	auth.Deny(rw, err.Error())
	s.refused("policy", http.StatusForbidden, 0)
	s.reportRefused(rw, r, c, proxy.CallInfo{Endpoint: at, Verdict: policy.Deny.String(), Outcome: proxy.Denied,
		Err: err})
}

// noEndpoint answers a request for an endpoint that does not exist, or that the caller cannot see.
func (s *Server) noEndpoint(rw http.ResponseWriter, r *http.Request, c scope.Caller, at string) {
	outcome := proxy.Invalid
	if c.Endpoint != nil {
		outcome = proxy.Denied
	}
	s.refused("endpoint", http.StatusNotFound, 0)
	s.reportRefused(rw, r, c, proxy.CallInfo{Endpoint: at, Outcome: outcome, Err: errNoEndpoint})
	text := "There is no such endpoint."
	if merged := (scope.Caller{Snapshot: c.Snapshot, Principal: c.Principal}); at != "" && !merged.Enter("").None() &&
		!merged.Hidden() {
		text = "There is no such upstream; the merged endpoint is /mcp."
	}
	http.Error(rw, text, http.StatusNotFound)
}

// reportRefused reports a request that was refused before its body was read. Only a client of the modern era repeats
// the method and the name in headers.
func (s *Server) reportRefused(rw http.ResponseWriter, r *http.Request, c scope.Caller, info proxy.CallInfo) {
	info.Method = r.Header.Get("Mcp-Method")
	info.Name, _ = mcp.DecodeHeaderValue(r.Header.Get("Mcp-Name"))
	info.RequestID, info.Principal, info.Person = auth.RequestID(rw), c.Principal.ID, c.Principal.Name
	info.KeyID = c.Principal.KeyID
	info.Email, info.Kind, info.Address = c.Principal.Email, string(c.Principal.Kind), c.Principal.Address
	s.Report(&info)
}

// identityText tells a rejected caller its identity: the verified email address, or else the ID.
func identityText(p *auth.Principal) string {
	if p.Kind == auth.KindUser {
		return "signed in as " + cmp.Or(p.Email, p.ID)
	}
	return "connected as " + p.ID
}

// checkOrigin rejects requests of foreign web pages. MCP requires a check of Origin on every
// request, because DNS rebinding can point a page's host name at this server (2026-07-28,
// streamable-http#security--endpoint). Comparing Origin with Host is no protection, because the
// attacker controls both.
func (s *Server) checkOrigin(next http.Handler) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w := s.Snapshot()
		if given := r.Header["Origin"]; len(given) > 1 || len(given) == 1 && !originAllowed(w, given[0]) {
			s.deny(rw, "origin", origin.Text(given))
			return
		}
		if !s.checkWay(w, rw, r) {
			return
		}
		if from := header(r.Header, "Origin"); from != "" && origin.CORS(rw, r, from) {
			return
		}
		next.ServeHTTP(rw, r)
	})
}

// checkWay reports whether a request came on an allowed way: with an allowed Host header, and, without
// authentication, through no proxy. If not, it has answered the request.
func (s *Server) checkWay(w *scope.Snapshot, rw http.ResponseWriter, r *http.Request) bool {
	if w.Direct {
		if shown := origin.Proxied(r); shown != "" {
			s.deny(rw, "proxy", origin.ProxiedText(shown))
			return false
		}
	}
	if !s.hostAllowed(w, r.Host) {
		s.deny(rw, "host", origin.HostText(r.Host))
		return false
	}
	return true
}

// CheckWay reports whether a request came on an allowed way: with an allowed Host header
// (allowed_hosts), and, without authentication, through no proxy. If not, it has answered the request.
// Other handlers on the same address need this check, against DNS rebinding and accidental publishing.
func (s *Server) CheckWay(rw http.ResponseWriter, r *http.Request) bool {
	if w := s.Snapshot(); w != nil {
		return s.checkWay(w, rw, r)
	}
	s.deny(rw, "host", origin.HostText(r.Host))
	return false
}

// allowedHost is a host that a snapshot with these AllowedHosts allows.
type allowedHost struct {
	host  string
	hosts []string
}

func (s *Server) hostAllowed(w *scope.Snapshot, host string) bool {
	hosts := w.Config.AllowedHosts
	if last := s.host.Load(); last != nil && last.host == host && slices.Equal(last.hosts, hosts) {
		return true
	}
	if !origin.HostIn(strings.ToLower(host), hosts) {
		return false
	}
	// a substring would keep the header with its tokens in memory
	s.host.Store(&allowedHost{strings.Clone(host), hosts})
	return true
}

// post reads the message of a request and passes it to the front of its era. The error is for a
// request without a message.
func (s *Server) post(x *request) error {
	if !isJSON(x.request.Header["Content-Type"]) {
		return refuse(http.StatusUnsupportedMediaType, mcp.INVALID_REQUEST, "Content-Type must be application/json")
	}
	if x.body == nil {
		var err error
		if x.body, err = s.readBody(x); err != nil {
			return err
		}
	}
	body := x.body
	x.Size = len(*body)
	end, err := s.Turn(x.request.Context(), &x.Exchange)
	if err != nil {
		return err
	}
	m, err := jsonrpc.Parse(*body, s.limits.Nesting)
	end()
	if err != nil {
		batch := errors.Is(err, jsonrpc.ErrInvalid) && jsonrpc.IsBatch(*body)
		if batch && x.Endpoint.Eras != scope.ErasModern {
			return legacyFront{s}.batch(x, jsonrpc.WithoutMark(*body))
		}
		s.reject(x, m.ID, proxy.Malformed(err))
		return nil
	}
	if err := s.Read(&x.Exchange, m); err != nil {
		s.reject(x, m.ID, err)
	} else if s.members == nil || !s.forwardParked(x, *body) {
		s.frontFor(x).post(x)
	}
	return nil
}

// reject answers a message that is not dispatched with an error. id is "" if it is unknown.
func (s *Server) reject(x *request, id jsonrpc.ID, err error) {
	e, reason := proxy.RPCError(err, "")
	status := statusOf(err, reason)
	s.refused(refusedFor(err), status, e.Code)
	retry(x.reply.w, err)
	if err == errReleased && members.Forwarded(x.request.Context()) {
		x.reply.w.Header().Set(members.HeaderReleased, "1")
	}
	x.reply.fail(id, e, status)
}

// readBody reserves a request in progress and reads the body, of at most limits.body bytes. It
// reserves the bytes before it allocates them. The ReadTimeout of the http.Server applies until the
// body was read; a call may take longer. The buffer returns to s.bodies with release.
func (s *Server) readBody(x *request) (*[]byte, error) {
	rw, r, held := x.reply.w, x.request, &x.Grant
	limit := int64(s.limits.Body)
	if r.ContentLength > limit {
		return nil, tooLarge(rw, limit)
	}
	room := int(min(max(r.ContentLength, 511), 1<<20)) + 1 // one more, to detect the end of the body without growing
	if err := held.ReserveAll([budget.Quotas]int64{budget.Requests: 1, budget.Bytes: int64(room)}); err != nil {
		return nil, tooMuch(rw, err)
	}
	body := s.bodies.Get()
	b := (*body)[:0]
	if cap(b) < room {
		b = make([]byte, 0, room)
	}
	for {
		if int64(len(b)) > limit {
			return nil, tooLarge(rw, limit)
		}
		if len(b) == room {
			more := min(len(b), int(limit)+1-len(b))
			// a quarter of the body has arrived, so trust Content-Length for the rest
			if rest := int(r.ContentLength) + 1 - len(b); r.ContentLength >= 0 && rest <= 3*len(b) {
				more = rest
			}
			if err := held.Reserve(budget.Bytes, int64(more)); err != nil {
				return nil, tooMuch(rw, err)
			}
			room += more
			b = slices.Grow(b, more)
		}
		n, err := r.Body.Read(b[len(b):room])
		b = b[:len(b)+n]
		if err == io.EOF {
			*body = b
			r.Body.Close() // else the server reads more of it when the answer is written
			clearReadDeadline(rw)
			return body, nil
		}
		if err != nil {
			var timeout net.Error
			if errors.As(err, &timeout) && timeout.Timeout() {
				return nil, refuse(http.StatusRequestTimeout, mcp.INVALID_REQUEST,
					"the body did not arrive in time (limits.read_timeout)")
			}
			return nil, refuse(http.StatusBadRequest, mcp.INVALID_REQUEST, "the body did not arrive whole")
		}
	}
}

func tooLarge(rw http.ResponseWriter, limit int64) error {
	rw.Header().Set("Connection", "close")
	return refuse(http.StatusRequestEntityTooLarge, mcp.INVALID_REQUEST, "the body is larger than %s (limits.body)",
		proxy.BytesText(limit))
}

// tooMuch returns the error for a request without a share of the budget. The rest of its body is
// not read.
func tooMuch(rw http.ResponseWriter, err error) error {
	rw.Header().Set("Connection", "close")
	return proxy.OveruseError(err)
}

// originAllowed reports whether pages of the origin may send requests. With authentication, all
// loopback origins are allowed, because a page does not have the key. Without, only AllowedOrigins
// are.
func originAllowed(w *scope.Snapshot, from string) bool {
	if slices.Contains(w.Config.AllowedOrigins, from) {
		return true
	}
	return !w.Open() && origin.Loopback(from)
}

// grant returns an empty grant for a request.
func (s *Server) grant(c scope.Caller, r *http.Request) budget.Grant {
	a, agent := accountOf(c, r), ""
	if a.Program != 0 {
		agent = header(r.Header, "User-Agent")
	}
	return s.Grant(a, agent)
}

// accountOf returns the account of a request.
func accountOf(c scope.Caller, r *http.Request) budget.Account {
	a := budget.Account{Principal: c.Principal.ID}
	switch {
	case c.Principal.Kind != auth.KindLocal:
	case c.Snapshot.Direct:
		if agent := header(r.Header, "User-Agent"); agent != "" {
			a.Program = maphash.String(programs, agent)
		}
	default:
		a.From = budget.Network(c.Principal.Address)
	}
	return a
}

var programs = maphash.MakeSeed()

var errNoEndpoint = errors.New("there is no such endpoint for the caller")
