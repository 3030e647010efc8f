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
	"time"

	"github.com/mark3labs/mcp-go/client/transport"
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
	answers := make(chan url.Values)
	server := &http.Server{Handler: callback(ctx, listener.Addr().String(), state, answers),
		ReadHeaderTimeout: 10 * time.Second}
	served := make(chan struct{})
	go func() { // until Shutdown
		defer close(served)
		_ = server.Serve(listener)
	}()
	defer func() {
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = server.Shutdown(ending) // lets the page be written
		<-served
	}()
	s.invite(where)
	others := time.NewTicker(time.Second)
	defer others.Stop()
	for {
		select {
		case answer := <-answers:
			return s.redeem(ctx, h, store, answer, state, verifier)
		case <-others.C: // the user may have signed in for another process
			if k, err := s.read(); err == nil && k.usable(refused) {
				return k.Token.AccessToken, nil
			}
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	}
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
func (s *SignOn) redeem(
	ctx context.Context, h *transport.OAuthHandler, store transport.TokenStore, answer url.Values, state,
	verifier string,
) (string, error) {
	if code := answer.Get("error"); code != "" {
		return "", fmt.Errorf("the sign-in failed: %q", code+" "+answer.Get("error_description"))
	}
	metadata, err := h.GetServerMetadata(ctx)
	if err != nil {
		return "", err
	}
	if iss := answer.Get("iss"); iss != "" && iss != metadata.Issuer { // RFC 9207
		return "", errors.New("the sign-in failed: the answer is from another authorization server")
	}
	if err := h.ProcessAuthorizationResponse(ctx, answer.Get("code"), state, verifier); err != nil {
		return "", fmt.Errorf("the sign-in failed: %w", err)
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
		Token: token})
}

// callback accepts the first answer with the state of this sign-in.
func callback(ctx context.Context, host, state string, answers chan<- url.Values) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+callbackPath, func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		if r.Host != host || q.Get("state") != state {
			Page(w, http.StatusBadRequest, "This answer does not belong to the sign-in that is in progress.")
			return
		}
		select {
		case answers <- q:
			Page(w, http.StatusOK, "You can close this window.")
		case <-ctx.Done():
			Page(w, http.StatusGone, "The sign-in is over. Start it again.")
		case <-r.Context().Done():
		}
	})
	return mux
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
	if err := cmd.Start(); err != nil {
		return err
	}
	go func() { _ = cmd.Wait() }()
	return nil
}
