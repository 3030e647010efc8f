package signon

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/go-chi/chi/v5"

	"junction/auth/oauth"
	"junction/cmd/junction/ops/pages/frame"
	"junction/upstream/prose"
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
	flow, err := s.client.Start(ctx, endpoint, "http://"+listener.Addr().String()+callbackPath)
	if err != nil {
		return "", fmt.Errorf("the sign-in was refused: %w; use an API key if the endpoint has them, or add the "+
			"server as an upstream of Junction", err)
	}
	where, err := flow.URL()
	if err != nil {
		return "", err
	}
	answers, stop, err := Callback(ctx, listener, callbackPath, flow.Mine, "You can close this window.",
		"Start it again.")
	if err != nil {
		return "", err
	}
	defer stop()
	s.invite(where)
	others := time.NewTicker(time.Second)
	defer others.Stop()
	for {
		select {
		case answer := <-answers:
			token, err := s.redeem(ctx, flow, answer.Values)
			if answer.Result <- err; err != nil {
				return "", fmt.Errorf("the sign-in failed: %w", err)
			}
			return token, nil
		case <-others.C: // the user may have signed in for another process
			if k, err := s.read(); err == nil && k.usable(refused) {
				return k.Access, nil
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
func (s *SignOn) redeem(ctx context.Context, flow *oauth.Flow, answer url.Values) (string, error) {
	g, err := flow.Redeem(ctx, answer)
	if err != nil {
		return "", err
	}
	unlock, err := s.lock(ctx)
	if err != nil {
		return "", err
	}
	defer unlock()
	return g.Access, s.write(&kept{s.URL, g})
}

// An Answer is the query with which an authorization server sends the browser back. The receiver
// sends the outcome of the sign-in to Result, and the browser shows it.
type Answer struct {
	Values url.Values
	Result chan error // 1-buffered
}

// Callback serves the answers of a sign-in on this machine: at a path of the listener, until stop.
// expected reports whether an answer belongs to the sign-in; another one is rejected, and the sign-in
// continues. done and again are sentences for the user: what to do after the sign-in, and how to
// begin another one.
func Callback(ctx context.Context, l net.Listener, path string, expected func(url.Values) bool, done, again string) (
	answers chan Answer, stop func(), err error) {
	page, err := frame.New(outcomePage, "outcome", "form-action 'none'")
	if err != nil {
		return nil, nil, err
	}
	failed := func(w http.ResponseWriter, status int, text string) {
		page.Serve(w, slog.Default(), status, outcome{"Not signed in", text, true})
	}
	answers = make(chan Answer)
	routes := chi.NewRouter()
	routes.Get(path, func(w http.ResponseWriter, r *http.Request) {
		a := Answer{r.URL.Query(), make(chan error, 1)}
		if r.Host != l.Addr().String() || !expected(a.Values) {
			failed(w, http.StatusBadRequest, "This answer does not belong to the sign-in that is in progress. "+again)
			return
		}
		select {
		case answers <- a:
		case <-ctx.Done():
			failed(w, http.StatusGone, "The sign-in is over. "+again)
			return
		}
		select {
		case err := <-a.Result:
			if err != nil {
				why := strings.TrimSuffix(prose.Cut(prose.Flat(err.Error()), 600), ".")
				failed(w, http.StatusBadGateway, "The sign-in failed: "+why+". "+again)
				return
			}
			page.Serve(w, slog.Default(), http.StatusOK, outcome{"Signed in", done, false})
		case <-ctx.Done():
			failed(w, http.StatusGatewayTimeout, "The sign-in took too long. "+again)
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
	}, nil
}

//go:embed outcome.html
var outcomePage embed.FS

// outcome is the data of the page that ends a sign-in.
type outcome struct {
	Title, Text string
	Failed      bool
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
