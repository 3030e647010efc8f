package signon

import (
	"context"
	"errors"
	"fmt"
	"html"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/mark3labs/mcp-go/client/transport"

	"junction/auth/oauth"
	"junction/upstream/sandbox"
)

const callbackPath = "/callback"

// signIn registers at the authorization server, sends the user there, and stores the tokens. Each
// sign-in registers anew, because it has a port of its own.
func (s *SignOn) signIn(ctx context.Context, refused []string) (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("cannot wait for the browser: %w", err)
	}
	defer listener.Close()
	store := transport.NewMemoryTokenStore()
	h := s.handler(store, "", "", "http://"+listener.Addr().String()+callbackPath)
	server, err := authorizationServer(ctx, h)
	if err != nil {
		return "", err
	}
	if err := h.RegisterClient(ctx, "Junction command line"); err != nil {
		return "", fmt.Errorf("register at the authorization server: %w", err)
	}
	verifier, err := transport.GenerateCodeVerifier()
	if err != nil {
		return "", err
	}
	state, err := transport.GenerateState()
	if err != nil {
		return "", err
	}
	where, err := h.GetAuthorizationURL(ctx, state, transport.GenerateCodeChallenge(verifier))
	if err != nil {
		return "", err
	}
	mine := func(q url.Values) bool { return q.Get("state") == state }
	answers, stop := Callback(ctx, listener, callbackPath, mine, "You can close this window.", "Start it again.")
	defer stop()
	s.invite(where)
	others := time.NewTicker(time.Second)
	defer others.Stop()
	for {
		select {
		case answer := <-answers:
			token, err := s.redeem(ctx, h, server, store, answer.Values, state, verifier)
			if answer.Result <- err; err != nil {
				return "", fmt.Errorf("the sign-in failed: %w", err)
			}
			return token, nil
		case <-others.C: // the user may have signed in for another process
			if k, err := s.read(); err == nil && k.usable(refused) {
				return k.Token.AccessToken, nil
			}
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	}
}

// authorizationServer returns the metadata of the authorization server of the endpoint, which the
// handler goes on to use. The endpoint names it, and could name the page of another server to get a
// code of that. So all of it must have one origin; then an answer of another server that names its
// issuer is noticed, too.
func authorizationServer(ctx context.Context, h *transport.OAuthHandler) (*transport.AuthServerMetadata, error) {
	m, err := h.GetServerMetadata(ctx)
	if err != nil {
		return nil, err
	}
	err = oauth.Endpoints{Authorization: m.AuthorizationEndpoint, Token: m.TokenEndpoint}.Check(oauth.Pair{})
	for _, other := range []string{m.Issuer, m.RegistrationEndpoint} {
		if err == nil && other != "" && !oauth.SameOrigin(other, m.TokenEndpoint) {
			err = fmt.Errorf("its authorization server has %q, and the token endpoint %q is at another host", other,
				m.TokenEndpoint)
		}
	}
	if err == nil && m.Issuer == "" {
		err = errors.New("its authorization server does not name its issuer")
	}
	if err != nil {
		return nil, fmt.Errorf("the sign-in was refused: %w; use an API key if the endpoint has them, or add the "+
			"server as an upstream of Junction", err)
	}
	return m, nil
}

// invite starts the browser, and writes the URL for users whose browser does not open.
func (s *SignOn) invite(where string) {
	if s.Open != nil && s.Open(where) == nil {
		fmt.Fprintf(s.Notes, "Sign in to Junction in the browser. If it did not open, visit:\n  %s\n", where)
		return
	}
	fmt.Fprintf(s.Notes, "Sign in to Junction in a browser on this machine:\n  %s\n", where)
}

// redeem exchanges the answer for tokens, and stores them.
func (s *SignOn) redeem(ctx context.Context, h *transport.OAuthHandler, server *transport.AuthServerMetadata,
	store transport.TokenStore, answer url.Values, state, verifier string) (string, error) {
	if code := answer.Get("error"); code != "" {
		return "", fmt.Errorf("%q", code+" "+answer.Get("error_description"))
	}
	if iss, given := answer["iss"]; given && (len(iss) != 1 || iss[0] != server.Issuer) { // RFC 9207
		return "", errors.New("the answer is from another authorization server")
	}
	if err := h.ProcessAuthorizationResponse(ctx, answer.Get("code"), state, verifier); err != nil {
		return "", err
	}
	token, err := store.GetToken(ctx)
	if err != nil {
		return "", err
	}
	unlock, err := s.lock(ctx)
	if err != nil {
		return "", err
	}
	defer unlock()
	return token.AccessToken, s.write(&kept{URL: s.URL, Client: h.GetClientID(), Secret: h.GetClientSecret(),
		Token: token, TokenEndpoint: server.TokenEndpoint})
}

// An Answer is the query with which an authorization server sends the browser back. The receiver
// sends the outcome of the sign-in to Result, and the browser shows it.
type Answer struct {
	Values url.Values
	Result chan error // 1-buffered
}

// Callback serves the answers of a sign-in on this machine: at a path of the listener, until stop.
// mine reports whether an answer belongs to the sign-in; another one is rejected, and the sign-in
// continues. done and again are sentences for the user: what to do after the sign-in, and how to
// begin another one.
func Callback(ctx context.Context, l net.Listener, path string, mine func(url.Values) bool, done, again string) (
	answers chan Answer, stop func()) {
	answers = make(chan Answer)
	routes := chi.NewRouter()
	routes.Get(path, func(w http.ResponseWriter, r *http.Request) {
		a := Answer{r.URL.Query(), make(chan error, 1)}
		if r.Host != l.Addr().String() || !mine(a.Values) {
			Page(w, http.StatusBadRequest, "This answer does not belong to the sign-in that is in progress. "+again)
			return
		}
		select {
		case answers <- a:
		case <-ctx.Done():
			Page(w, http.StatusGone, "The sign-in is over. "+again)
			return
		}
		select {
		case err := <-a.Result:
			if err != nil {
				Page(w, http.StatusBadGateway, "The sign-in failed: "+err.Error())
				return
			}
			Page(w, http.StatusOK, done)
		case <-ctx.Done():
			Page(w, http.StatusGatewayTimeout, "The sign-in took too long. "+again)
		}
	})
	server := &http.Server{Handler: routes, ReadHeaderTimeout: 10 * time.Second}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(l) }) // until Shutdown
	return answers, func() {
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = server.Shutdown(ending) // lets the last page be written
		serving.Wait()
	}
}

// Page writes a page with one sentence.
func Page(w http.ResponseWriter, status int, text string) {
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	fmt.Fprintf(w, "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" "+
		"content=\"width=device-width\">"+
		"<meta name=\"color-scheme\" content=\"light dark\"><title>Junction</title><p>%s</p></html>\n",
		html.EscapeString(text))
}

// OpenBrowser starts the browser of this machine.
func OpenBrowser(where string) error {
	var cmd *exec.Cmd
	switch runtime.GOOS {
	case "darwin":
		cmd = exec.Command("open", where)
	case "windows":
		cmd = exec.Command("rundll32", "url.dll,FileProtocolHandler", where)
	default:
		if os.Getenv("DISPLAY") == "" && os.Getenv("WAYLAND_DISPLAY") == "" && os.Getenv("BROWSER") == "" {
			return errors.New("there is no display")
		}
		cmd = exec.Command("xdg-open", where)
	}
	cmd.Env = sandbox.ForOthers(os.Environ())
	if err := cmd.Start(); err != nil {
		return err
	}
	go func() { _ = cmd.Wait() }()
	return nil
}
