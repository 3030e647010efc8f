package upstream

import (
	"context"
	"errors"
	"fmt"

	"junction/upstream/client"
	"junction/upstream/transport"
)

// Credentials are the sources of the credentials of all modes but AuthNone. They never contain
// credentials that clients send to Junction.
type Credentials interface {
	// Apply returns what belongs on a request of a caller. refused lists the tokens that the upstream has
	// rejected with 401 during one request. After one of them, Apply returns another token, and may
	// request a new one; it returns the same token if there is no other one. After two, which may be the
	// same, the owner has to act. The error is a *SignInError if the caller has to act, and a *LackError
	// if the operator has to. After any other error the credential is unchanged.
	//
	// After such an error, a mode with a sign-in (Mode.SignIn) returns no token until the owner has signed
	// in: Junction asks for it every few seconds, and connects with it. The other modes may return the
	// token again. Junction sends the same token at most once in 30 seconds, and another one within
	// seconds.
	//
	// Apply blocks, and may be called by several goroutines at once.
	Apply(ctx context.Context, c Caller, refused ...string) (Credential, error)
}

// ErrNoSource means that the program has no source for the mode of an upstream.
var ErrNoSource = errors.New("there is no source for credentials of this mode")

// Caller is whose credential for an upstream is asked for.
type Caller struct {
	Upstream string
	Mode     AuthMode // of the upstream
	User     string   // the ID of the subject; "" if all callers use one credential
}

// Credential is what belongs on one request.
type Credential struct {
	// Token is of the header that Auth.Carrier names. Another form, such as a signature, is a new field, which
	// pool.token, client.Options.Token and transport.HTTPOptions pass on.
	Token string
}

// CredentialState is the state of the credential of an upstream, for people.
type CredentialState struct {
	Lacks   []string // scopes that calls needed, and the credential does not have
	Refused string   // why the last sign-in was refused; "" if it was not
	Notes   string   // what is unusual about the issuer; "" if there is nothing
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
	Mode     AuthMode `json:",omitempty"`
	URL      string   // of Junction's page for the sign-in; it works only for this user
	Again    bool     // the upstream does not accept the earlier sign-in any more
	Reason   string   `json:",omitempty"` // why, if Again is set; "" if that is not known
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

// Row returns the row of the mode. A process of an earlier release does not name the mode.
func (e *SignInError) Row() Mode {
	if row := e.Mode.Row(); row.Owner == OwnerSubject {
		return row
	}
	return SignInMode(OwnerSubject).Row()
}

// LackError means that an upstream cannot be called because the credential that all callers use is
// missing, has ended or lacks a scope. Nothing was called.
type LackError struct {
	Upstream string
	Mode     AuthMode
	Again    bool   // there was a credential, which ended or was revoked
	Reason   string // why, if Again is set; "" if that is not known
	// The credential works, but lacks a scope that this request needs: one of Scopes, which are empty
	// if the server does not name them.
	Lacks  bool
	Scopes []string
}

// Is reports whether target is ErrNoToken.
func (e *LackError) Is(target error) bool { return target == client.ErrNoToken }

func (e *LackError) Error() string { return e.text(e.Mode.Row().Advice) }

// text returns the text of the error with the advice of a row.
func (e *LackError) text(a Advice) string {
	text := a.Absent
	if e.Lacks {
		text = a.Lacks
	} else if e.Again {
		text = a.Broken
		if e.Reason != "" {
			return e.Reason + "; " + fill(text, e.Upstream, e.Scopes)
		}
	}
	return fill(text, e.Upstream, e.Scopes)
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
		need := &SignInError{Upstream: p.name, Mode: p.connConfig.Auth.Mode, Lacks: true, Scopes: scopes}
		if g, ok := p.options.Credentials.(Granter); ok {
			need.URL = g.GrantURL(p.name, p.user, scopes)
		}
		return nil, need
	case lacks:
		login = &LackError{Upstream: p.name, Mode: p.connConfig.Auth.Mode, Lacks: true, Scopes: scopes}
		return login, login
	}
	return login, err
}

// credentialed reports whether requests of the pool need a credential of Options.Credentials.
func (p *pool) credentialed() bool { return p.user != "" || p.connConfig.Auth.Mode.Row().Shared() }

// token returns the access token for requests of the pool; "" if the mode of the upstream has none.
func (p *pool) token(ctx context.Context, refused ...string) (string, error) {
	if !p.credentialed() {
		return "", nil
	}
	mode := p.connConfig.Auth.Mode
	got, err := Credential{}, ErrNoSource
	if p.options.Credentials != nil {
		got, err = p.options.Credentials.Apply(ctx, Caller{Upstream: p.name, Mode: mode, User: p.user}, refused...)
	}
	if errors.Is(err, ErrNoSource) {
		return "", &transport.TokenError{Err: errors.New(mode.Row().Advice.Without)}
	}
	if err != nil && !signIn(err) && ctx.Err() == nil {
		return "", &transport.TokenError{Err: fmt.Errorf("%s: %w", mode.Row().Advice.Down, err)}
	}
	if err == nil {
		p.given.Store(&got.Token)
	}
	return got.Token, err
}
