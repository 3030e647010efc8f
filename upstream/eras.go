package upstream

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/upstream/client"
	"junction/upstream/jsonrpc"
	"junction/upstream/raw"
)

// This file decides in which era a call is made. Many servers speak both eras, and can send requests
// to a client only in the legacy one. So the calls of legacy clients use a legacy connection beside
// the modern one, as if the client were connected to the server itself. The modern connection reads
// the catalog and has the subscriptions of all clients.
//
// Over HTTP this is the default: both connections end in the same server. A command gets a second
// process, with separate state, if the file says so (Config.bothEras), or if a call has failed because
// there was none (second.go). A call that failed is never repeated.

// bothEras reports whether a server of the modern era may have a legacy connection, too.
func (c *Config) bothEras() bool {
	return c.Questions.Asks() && (c.Era.Both() ||
		c.Era == client.EraAuto && (!c.Kind().Process || c.Questions.OfClients()))
}

// legacySide is the state of the legacy connections beside the modern one. It is guarded by pool.mu.
type legacySide struct {
	met      bool      // one was opened, so the server has a legacy era
	failures int       // attempts since then that failed
	retry    time.Time // no attempt before this time
}

// acquire returns a ready conn for the call. The caller must end the turn.
func (u *Upstream) acquire(ctx context.Context, c *Call) (turn, error) {
	switch {
	case c.Folders != nil:
		u.BringLater(c.Folders)
	case u.NeedsFolder():
		return turn{}, &Error{u.name, client.KindUnavailable, errNoFolder}
	}
	if u.prefersLegacy(c) {
		t, err := u.takeTurn(ctx, u.keyOf(c, true), c)
		if err == nil {
			u.metLegacy()
			return t, nil
		}
		if both := u.config.bothEras(); both && !u.staysModern(ctx, err) || !both && u.needsSecond(c) {
			return turn{}, err
		}
	}
	// nearly always the case; keyOf would copy the key once more
	if c.Folders == nil && len(u.connConfig.ForwardHeaders) == 0 {
		return u.takeTurn(ctx, u.key(c.Profile, c.session(), c.Principal, false), c)
	}
	return u.takeTurn(ctx, u.keyOf(c, false), c)
}

// Warm opens the connection for the calls of a caller, if Config.Warm is set and there is room. It does
// not wait, and ends no other connection. c needs what decides about the connection.
func (u *Upstream) Warm(c *Call) {
	if !u.config.Warm || u.placeless(c) || u.connConfig.Blocked != "" || u.Catalog().Listed.IsZero() ||
		u.config.Isolation.OfSession() && c.session() == "" {
		return
	}
	key := u.keyOf(c, u.prefersLegacy(c))
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.closed && u.links[key] == nil && len(u.links) < u.connConfig.MaxLinks && !u.full(key) {
		u.links[key] = startLink(u.pool, key, key == u.reading(), waiter{cause: c.Trace, folders: c.Folders})
	}
}

// prefersLegacy reports whether a call uses a legacy connection to a server of the modern era. A
// client that cannot answer any request loses nothing on the modern connection, and there the server
// knows the capabilities of the client.
func (u *Upstream) prefersLegacy(c *Call) bool {
	if c.Era != client.EraLegacy || c.Continues || !c.Profile.Asks() || u.Catalog().Era != client.EraModern ||
		!u.config.bothEras() && !u.needsSecond(c) {
		return false
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	return !time.Now().Before(u.legacy.retry)
}

// metLegacy notes that a legacy connection is open.
func (p *pool) metLegacy() {
	p.mu.Lock()
	p.legacy = legacySide{met: true}
	p.mu.Unlock()
}

// Time until the next attempt to open a legacy connection. It is modernFor if the server has none.
// After other failures it doubles from modernAtFirst to modernFor.
const (
	modernAtFirst = time.Minute
	modernFor     = time.Hour
)

// staysModern reports whether the calls of legacy clients use the modern connection, because no
// legacy one can be opened (err). A failure of a server whose legacy connection has worked is no
// such reason: the client may have state there.
func (p *pool) staysModern(ctx context.Context, err error) bool {
	_, ours := errors.AsType[*Error](err) // there is no room for a connection, or no turn
	never := errors.Is(err, client.ErrNoLegacySession)
	p.mu.Lock()
	if ctx.Err() != nil || ours || p.legacy.met && !never {
		p.mu.Unlock()
		return false
	}
	wait := modernFor
	if !never {
		wait = min(modernAtFirst<<min(p.legacy.failures, 10), modernFor)
	}
	p.legacy = legacySide{failures: p.legacy.failures + 1, retry: time.Now().Add(wait)}
	p.mu.Unlock()
	p.log.Info("calls of legacy clients use the modern connection of the server", "reason", p.shown(err), "for", wait)
	return true
}

// refusals are the words with which SDKs refuse to send a request to the client in the modern era:
// those for Rust and TypeScript, those for Python, and that for Go. The protocol has no error code
// for it.
var refusals = [][]byte{
	[]byte("server-to-client requests are not a"),
	[]byte("server-initiated requests"),
	[]byte("is not supported by the negotiated protocol version (wire era " + mcp.ProtocolVersion20260728 + ")"),
	[]byte("cannot be sent while serving a request on protocol version " + mcp.ProtocolVersion20260728),
}

// refusedQuestion reports whether a server that failed with this text could not send a request to
// the client. A wrong answer costs only a sentence too many.
func refusedQuestion(text []byte) bool {
	text = bytes.ToLower(text[:min(len(text), 4<<10)])
	for _, words := range refusals {
		if bytes.Contains(text, words) {
			return true
		}
	}
	return false
}

// explainQuestion returns the answer of a server to a call. If the server failed because it cannot
// send requests to the client in the modern era, the answer says whether the next call goes to a second
// process; otherwise it names the line of the file that changes this, and so does Status.
func (u *Upstream) explainQuestion(c *Call, cn client.Conn, r client.Result, err error) (client.Result, error) {
	rpcErr, rejected := err.(*jsonrpc.Error)
	if !rejected && (err != nil || !r.Failed()) || !c.Profile.Asks() || cn.Info().Era != client.EraModern {
		return r, err
	}
	text, whole := failureText(r, err)
	hint, line := secondHint, ""
	if !u.learn(c, text, whole) {
		if refusedQuestion([]byte(text)) {
			line = u.lineToAsk(c, text)
		}
		if line == "" {
			return r, err
		}
		hint = "Junction connects to this server with protocol version " + mcp.ProtocolVersion20260728 +
			", in which the server cannot send requests to the client; to change that, set \"" + line +
			"\" in upstreams." + u.name + " of Junction's configuration"
	}
	if rejected {
		err = rpcErr.WithMessage(rpcErr.Message + " (" + hint + ")")
	} else {
		blocks, _ := r.Elements("content")
		blocks = append(blocks, append(raw.AppendQuote([]byte(`{"type":"text","text":`), hint), '}'))
		content := append(append([]byte{'['}, bytes.Join(blocks, []byte{','})...), ']')
		if r.Object, err = r.With(raw.Edit{Name: "content", Value: content}); err != nil {
			return r, err
		}
	}
	if line != "" {
		u.mu.Lock()
		u.status.Unasked = line
		u.mu.Unlock()
	}
	return r, err
}

// lineToAsk returns the line of the file with which the server could send the request that it could
// not send during a call, which failed with this text; "" if there is none.
func (u *Upstream) lineToAsk(c *Call, text string) string {
	u.mu.Lock()
	met := u.legacy.met
	u.mu.Unlock()
	method, _ := unsentRequest(text, c.Name)
	switch {
	case !u.config.Questions.Asks():
		return ""
	case c.Era == client.EraLegacy && u.secondFailed(u.keyOf(c, true)):
		return "era: legacy" // a second process cannot run
	case c.Era == client.EraLegacy && !u.config.bothEras() && method == mcp.MethodListRoots:
		return "questions: exact" // other connections declare no roots
	case c.Era == client.EraLegacy && !u.config.bothEras():
		return "era: both"
	case c.Era == client.EraModern && (u.config.Kind().Process || met):
		return "era: legacy"
	}
	return ""
}

// failureText returns the text of a call that failed: the message of an error, or the first block of
// content. whole reports whether the failure has no other content.
func failureText(r client.Result, err error) (text string, whole bool) {
	if rpcErr, rejected := err.(*jsonrpc.Error); rejected {
		return rpcErr.Message, true
	}
	blocks, problem := r.Elements("content")
	if err != nil || problem != nil || len(blocks) == 0 {
		return "", false
	}
	block, _ := raw.Parse(blocks[0])
	kind, _ := block.String("type")
	text, _ = block.String("text")
	structured, none := r.Get("structuredContent")
	return text, len(blocks) == 1 && kind == "text" && (none == raw.ErrAbsent || string(structured) == "null")
}
