package authserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"junction/auth/store"
)

// AuthorizationServer is what we need of one that keeps to OAuth 2.1. It knows no browsers, no
// people and no providers, and what it is made with is nobody's business outside of this file.
type AuthorizationServer interface {
	// BeginAuthorize checks a client's request, of which nothing has been given yet. The error is a
	// *problem to show, a *flaw, which comes with the client and where it is told, or one that kept
	// us from finding out.
	BeginAuthorize(ctx context.Context, r *http.Request) (AuthRequest, error)
	// IssueCode stores the grant, and returns where the browser takes the code for it. The error
	// wraps store.ErrRevoked if the session that it rests on has ended.
	IssueCode(ctx context.Context, request AuthRequest, g store.Grant) (redirect string, err error)
	// Token and Revoke answer clients.
	Token(w http.ResponseWriter, r *http.Request)
	Revoke(w http.ResponseWriter, r *http.Request)
	// Introspect returns what an access token gives access to. The error wraps errBadToken if
	// nothing.
	Introspect(ctx context.Context, token string) (Access, error)
	// RevokeGrant ends a grant and all that came of it.
	RevokeGrant(ctx context.Context, id, why string) error
}

// Access is what an access token gives access to.
type Access struct {
	store.Access
	Scopes []string
}

// server is the AuthorizationServer of a Server.
type server struct {
	f      *Server
	minter minter
}

func newServer(f *Server, secrets [][]byte) *server { return &server{f, minter{secrets}} }

// BeginAuthorize is AuthorizationServer's.
func (s *server) BeginAuthorize(ctx context.Context, r *http.Request) (AuthRequest, error) {
	return s.f.begin(ctx, r.Form)
}

// IssueCode is AuthorizationServer's.
func (s *server) IssueCode(ctx context.Context, request AuthRequest, g store.Grant) (redirect string, err error) {
	err = s.f.store.WithTx(ctx, func(ctx context.Context) error {
		// Locked until the grant is there: whoever ends the session ends the grant too, or has
		// ended the session already.
		if _, err := s.f.store.IDPSession(ctx, g.IDPSession); err != nil {
			return err
		}
		if g, err = s.f.store.AddGrant(ctx, g); err != nil {
			return err
		}
		code, err := s.addCode(ctx, request, g)
		if err != nil {
			return err
		}
		redirect = s.f.answerURL(request.RedirectURI, url.Values{"code": {code}}, request.State)
		return nil
	})
	return redirect, err
}

var errBadToken = errors.New("the token is not good")

// Introspect is AuthorizationServer's.
func (s *server) Introspect(ctx context.Context, token string) (Access, error) {
	signature, ok := s.minter.signature(token, accessPrefix)
	if !ok {
		return Access{}, fmt.Errorf("%w: nobody knows it here", errBadToken)
	}
	a, err := s.f.store.Access(ctx, signature)
	switch {
	case errors.Is(err, store.ErrExpired):
		return Access{}, fmt.Errorf("%w: it is expired", errBadToken)
	case errors.Is(err, store.ErrRevoked):
		return Access{}, fmt.Errorf("%w: it was revoked", errBadToken)
	case isOver(err):
		return Access{}, fmt.Errorf("%w: nobody knows it here", errBadToken)
	case err != nil:
		return Access{}, err
	}
	var r record
	if err := json.Unmarshal(a.Token.Request, &r); err != nil {
		return Access{}, fmt.Errorf("read a token's row: %w", err)
	}
	return Access{a, r.Granted}, nil
}

// RevokeGrant is AuthorizationServer's.
func (s *server) RevokeGrant(ctx context.Context, id, why string) error {
	_, err := s.f.store.RevokeGrant(ctx, id, why)
	if err == nil {
		s.f.forget(id)
	}
	return err
}
