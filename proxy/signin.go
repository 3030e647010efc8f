package proxy

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/policy"
	"junction/proxy/sealed"
	"junction/proxy/view"
	"junction/upstream"
	"junction/upstream/client"
	"junction/upstream/jsonrpc"
	"junction/upstream/raw"
)

// connecting returns the connect tool if a call of name should offer the sign-in to the upstream;
// nil otherwise. t is the tool of that name, nil for none. The names of tools that an upstream had
// before its user was signed out also return the connect tool.
func (x *Exchange) connecting(t *view.Target, name string) *view.Target {
	if t != nil {
		if t.Connects {
			return t
		}
		return nil
	}
	bare := x.Subject.View.Bare
	for st := range x.Subject.Sight().Stocks() {
		c := st.Connect(bare)
		if c == nil {
			continue
		}
		begin := x.Snapshot.Config.Names.Full(view.PrefixOf(c.Backend), "")
		if c.Exposed == name || c.Backend.Catalog().SignIn && (bare || begin != "" && strings.HasPrefix(name, begin)) {
			return c
		}
	}
	return nil
}

// connectRounds bounds the time for which a call waits for a user who is connecting the upstream:
// about half a minute.
const connectRounds = 18

// connect answers a call of the connect tool, which is x.target.
func (s *Core) connect(ctx context.Context, x *Exchange) (Result, error) {
	t := x.target
	x.Info.Upstream, x.Info.Own, x.Info.Verdict = t.Backend.Name(), t.Name, policy.Allow.String()
	x.front.Begin()
	var st sealed.State
	if x.Era == client.EraModern {
		var err error
		if st, err = s.openState(x, x.upstreamCall(t)); err != nil {
			return Result{}, err
		}
	}
	err := t.Backend.SignedIn(ctx)
	for round := 0; st.Kind == sealed.Connect && round < connectRounds && needsSignIn(err) != nil; round++ {
		if err := pause(ctx, round); err != nil {
			return Result{}, err
		}
		err = t.Backend.SignedIn(ctx)
	}
	if need := needsSignIn(err); need != nil {
		return s.offer(x, need)
	}
	if err != nil {
		return Result{}, err
	}
	return s.toolText(x, t.Backend.Name()+" is connected. Its tools are in the list now.", ""), nil
}

// needsSignIn returns the error if the user must sign in to the upstream before the call; nil for
// other errors.
func needsSignIn(err error) *upstream.SignInError {
	need, _ := err.(*upstream.SignInError) // (*upstream.Upstream).Call and SignedIn do not wrap it
	return need
}

// offer answers a call that needs the user's sign-in to an upstream, in the best form that the
// client supports: a URL to open, or text.
func (s *Core) offer(x *Exchange, need *upstream.SignInError) (Result, error) {
	x.Info.Outcome = Unavailable
	message := signInMessage(need)
	if need.URL != "" && x.Who.Profile.URL && (x.Era == client.EraModern &&
		mcp.MCPMethod(x.Msg.Method) != mcp.MethodCompletionComplete ||
		x.Era == client.EraLegacy && x.Session.Version >= mcp.ProtocolVersion20251125) {
		data := fmt.Appendf(nil,
			`{"elicitations":[{"mode":"url","elicitationId":"junction-%s","url":%s,"message":%s}]}`,
			rand.Text(), raw.Quote(need.URL), raw.Quote(message))
		if x.Era == client.EraModern {
			return s.openURLs(x, &jsonrpc.Error{Code: mcp.URL_ELICITATION_REQUIRED, Message: message, Data: data})
		}
		return Result{}, &Refusal{code: mcp.URL_ELICITATION_REQUIRED, text: message, Data: data,
			Outcome: Unavailable}
	}
	if need.URL != "" {
		message += ": open " + need.URL + " in your browser, and then try again."
	}
	if mcp.MCPMethod(x.Msg.Method) != mcp.MethodToolsCall {
		e := failure(need.Upstream, signInKind(need), message)
		return Result{}, &Refusal{code: e.Code, text: e.Message, Data: e.Data,
			Outcome: Unavailable}
	}
	more := isError + `,"structuredContent":{"code":"` + signInKind(need) + `"`
	if need.URL != "" {
		more += `,"connect_url":` + string(raw.Quote(need.URL))
	}
	return s.toolText(x, message, more+"}"), nil
}

// Kinds of errors for calls that need a sign-in: the first sign-in, and a repeated one, also for more
// scopes.
const (
	kindNotConnected = "upstream_not_connected"
	kindReconnect    = "upstream_needs_reconnect"
)

func signInKind(need *upstream.SignInError) string {
	if need.Again || need.Lacks {
		return kindReconnect
	}
	return kindNotConnected
}

func signInMessage(need *upstream.SignInError) string {
	row, scopes := need.Row(), ""
	if len(need.Scopes) > 0 {
		scopes = " (" + strings.Join(need.Scopes, ", ") + ")"
	}
	switch {
	case need.Lacks:
		return row.About(row.Advice.Lacks, need.Upstream) + scopes
	case need.Again && need.Reason != "":
		return need.Reason + "; " + row.About(row.Advice.Broken, need.Upstream)
	case need.Again:
		return row.About(row.Advice.Broken, need.Upstream)
	}
	return row.About(row.Advice.Absent, need.Upstream)
}
