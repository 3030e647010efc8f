package upstream

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"junction/upstream/client"
	"junction/upstream/shell"
	"junction/upstream/transport"
)

// Credentials returns the access tokens for upstreams that users or the operator sign in to. It
// never contains credentials that clients send to Junction.
type Credentials interface {
	// Token returns the access token for a user's requests to an upstream. refused lists the tokens
	// that the upstream has rejected with 401 during one request. After one of them, Token returns
	// another token, and may request a new one. After two, the user has to sign in again. For an
	// upstream of AuthOAuth, user is "", which means the operator. The error is a *SignInError if
	// the user has to sign in, and a *LackError if the operator has to. After any other error the
	// sign-in is unchanged. Token blocks, and may be called by several goroutines at once.
	Token(ctx context.Context, upstream, user string, refused ...string) (string, error)
}

// A Granter is Credentials with a page on which a user grants more scopes.
type Granter interface {
	// GrantURL returns the page on which a user signs in to an upstream for more scopes, in addition to
	// those that the user has granted. It works only for this user.
	GrantURL(upstream, user string, scopes []string) string
}

// SignInError means that a user has to sign in to an upstream before it can be called. Nothing was
// called.
type SignInError struct {
	Upstream string
	URL      string // of Junction's page for the sign-in; it works only for this user
	Again    bool   // the upstream does not accept the earlier sign-in any more
	// The sign-in works, but lacks a scope that this request needs: one of Scopes, which are empty if the
	// server does not name them.
	Lacks  bool     `json:",omitempty"`
	Scopes []string `json:",omitempty"`
}

func (e *SignInError) Error() string {
	if e.Lacks {
		return e.Upstream + " needs more than the person has granted" + inWords(e.Scopes)
	}
	if e.Again {
		return e.Upstream + " has to be connected again by the person"
	}
	return e.Upstream + " is not connected by the person"
}

// LackError means that the operator has to sign in to an upstream (AuthOAuth) before it can be
// called. Nothing was called.
type LackError struct {
	Upstream string
	Again    bool // the earlier sign-in ended, or was revoked
	// The sign-in works, but lacks a scope that this request needs: one of Scopes, which are empty
	// if the server does not name them.
	Lacks  bool
	Scopes []string
}

// Is reports whether target is ErrNoToken.
func (e *LackError) Is(target error) bool { return target == client.ErrNoToken }

func (e *LackError) Error() string {
	if e.Lacks {
		return "the sign-in lacks a scope" + inWords(e.Scopes) + "; run: " + e.Command()
	}
	if e.Again {
		return "the sign-in has ended; run: " + e.Command()
	}
	return "sign-in needed; run: " + e.Command()
}

// inWords returns scopes for a sentence; "" for none.
func inWords(scopes []string) string {
	if len(scopes) == 0 {
		return ""
	}
	return " of " + strings.Join(scopes, ", ")
}

// Command returns the command that signs in, with the scopes that are missing. Clients get it, too, so
// it does not name the configuration file.
func (e *LackError) Command() string {
	words := []string{"junction", "login", e.Upstream}
	for _, scope := range e.Scopes { // the server has chosen them
		words = append(words, "--scope", scope)
	}
	return shell.Join(words...)
}

// lacking returns err as a LackError, or as a SignInError of a user, if the server rejected a request
// because the sign-in lacks a scope. The LackError is nil if err is another error.
func (p *pool) lacking(err error) (*LackError, error) {
	login, _ := errors.AsType[*LackError](err)
	status, ok := errors.AsType[*transport.StatusError](err)
	if !ok || !p.credentialed() {
		return login, err
	}
	scopes, lacks := status.Lacks()
	switch {
	case lacks && p.user != "":
		need := &SignInError{Upstream: p.name, Lacks: true, Scopes: scopes}
		if g, ok := p.options.Credentials.(Granter); ok {
			need.URL = g.GrantURL(p.name, p.user, scopes)
		}
		return nil, need
	case lacks:
		login = &LackError{Upstream: p.name, Lacks: true, Scopes: scopes}
		return login, login
	}
	return login, err
}

// credentialed reports whether requests of the pool need the token of a sign-in.
func (p *pool) credentialed() bool { return p.user != "" || p.connConfig.OperatorSignsIn() }

// token returns the access token for requests of the pool; "" if the upstream needs no sign-in.
func (p *pool) token(ctx context.Context, refused ...string) (string, error) {
	if !p.credentialed() {
		return "", nil
	}
	if p.options.Credentials == nil {
		return "", &transport.TokenError{Err: errors.New("no sign-in is configured (auth.oauth)")}
	}
	token, err := p.options.Credentials.Token(ctx, p.name, p.user, refused...)
	if err != nil && !signIn(err) && ctx.Err() == nil {
		return "", &transport.TokenError{Err: fmt.Errorf("its sign-in service cannot be asked: %w", err)}
	}
	if err == nil {
		p.given.Store(&token)
	}
	return token, err
}
