package upstream

import (
	"context"
	"errors"
	"fmt"
)

// Credentials has what each person was given at the upstreams that they sign in to themselves
// (AuthOAuthUser). What we are sent by our own clients is never among it.
type Credentials interface {
	// Token returns the access token for a person's requests to an upstream. refused are the tokens
	// that the upstream has answered 401 to in the course of one request: with one of them another
	// token is wanted, which may have to be got first; with two the person has to sign in again.
	// The error is a *SignInError if the person has to do something; with any other one it could
	// not be found out, and nothing has changed. It may be called by several goroutines at once,
	// and blocks.
	Token(ctx context.Context, upstream, person string, refused ...string) (string, error)
}

// SignInError means that a person has to sign in at an upstream before anything can be called
// there. It is nobody's fault, and nothing was called.
type SignInError struct {
	Upstream string
	URL      string // of the page of ours where they do that; it is of use to that person alone
	Again    bool   // they had done so, and it is not taken any more
}

func (e *SignInError) Error() string {
	if e.Again {
		return e.Upstream + " has to be connected again by the person"
	}
	return e.Upstream + " is not connected by the person"
}

// tokenError means that nobody could say now what a request is authorized with. The request was not
// sent, or was refused.
type tokenError struct{ error }

func (e *tokenError) Unwrap() error { return e.error }

// token is what a request of the pool's person is authorized with; "" where the upstream is
// everybody's.
func (p *pool) token(ctx context.Context, refused ...string) (string, error) {
	if p.person == "" {
		return "", nil
	}
	if p.options.Credentials == nil {
		return "", &tokenError{errors.New("nobody has credentials of people here")}
	}
	token, err := p.options.Credentials.Token(ctx, p.name, p.person, refused...)
	if _, person := errors.AsType[*SignInError](err); err != nil && !person && ctx.Err() == nil {
		return "", &tokenError{fmt.Errorf("its sign-in service cannot be asked: %w", err)}
	}
	return token, err
}
