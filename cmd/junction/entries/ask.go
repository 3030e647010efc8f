package entries

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"time"

	"junction/cmd/junction/clients"
	"junction/cmd/junction/config"
	"junction/upstream"
	"junction/upstream/transport"
)

const (
	askTime    = 5 * time.Second  // for one server
	askAll     = 20 * time.Second // for all of an import
	askAtOnce  = 8
	askHeaders = 64 << 10 // bytes
)

// A New is a new upstream, and what its server has answered.
type New struct {
	Name  string
	Entry *clients.Entry
	Asked bool   // a request was sent
	Note  string // for a person; "" if there is nothing to say

	Unreached bool // the server gave no answer; Note has the reason
}

// Ask asks the URLs of new entries, once and without credentials, whether they require a sign-in,
// and sets auth of the entries. Entries with a command, a credential or a reference in the URL are
// not asked, and neither are disabled ones. A person must have confirmed the entries before.
func Ask(ctx context.Context, c *config.Config, list []*New) {
	ctx, cancel := context.WithTimeout(ctx, askAll)
	defer cancel()
	client := &http.Client{
		Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, TLSHandshakeTimeout: askTime, DisableKeepAlives: true,
			DisableCompression: true, MaxResponseHeaderBytes: askHeaders, ForceAttemptHTTP2: true,
		},
		CheckRedirect: sameServer,
	}
	slots := make(chan struct{}, askAtOnce)
	var all sync.WaitGroup
	for _, n := range list {
		if !asks(n.Entry) {
			continue
		}
		all.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			n.ask(ctx, client, c.Auth.SignInMode())
		})
	}
	all.Wait()
}

// asks reports whether the URL of an entry is asked.
func asks(e *clients.Entry) bool {
	return len(e.Command) == 0 && e.Pack == "" && e.Auth == "" && !e.Off && e.Anonymous() && e.URL.IsLiteral()
}

// sameServer permits the redirects that a connection follows: they keep the method and the origin.
func sameServer(r *http.Request, via []*http.Request) error {
	was := via[0]
	code := r.Response.StatusCode
	if len(via) > 3 || code != http.StatusTemporaryRedirect && code != http.StatusPermanentRedirect ||
		r.URL.Scheme != was.URL.Scheme || r.URL.Host != was.URL.Host {
		return http.ErrUseLastResponse
	}
	return nil
}

// ask sets Auth and Note by the answer of the server. mode is that for a sign-in.
func (n *New) ask(ctx context.Context, client *http.Client, mode upstream.AuthMode) {
	n.Asked = true
	status, err := answerOf(ctx, client, n.Entry)
	switch {
	case err != nil:
		n.Unreached = true
		n.Note = fmt.Sprintf("%s could not be asked whether it needs a sign-in, because %s; junction status shows it "+
			"later", n.Name, reason(err))
	case status.WantsOAuth() && mode == upstream.AuthNone:
		n.Note = fmt.Sprintf("%s asks for a sign-in; users do not sign in to this Junction (auth.oauth), so all "+
			"callers would act with your account: if they may, set auth: { mode: oauth }", n.Name)
	case status.WantsOAuth() && !n.secure():
		n.Note = fmt.Sprintf("%s asks for a sign-in, which needs an https URL", n.Name)
	case status.WantsOAuth():
		n.Entry.Auth = string(mode)
	case status.Status == http.StatusUnauthorized || status.Status == http.StatusForbidden:
		n.Note = fmt.Sprintf("%s answered %d %s and named no sign-in: it needs a token; set headers", n.Name,
			status.Status, http.StatusText(status.Status))
	case status.Status/100 == 3:
		n.Note = fmt.Sprintf("%s redirects to another address, which was not asked; check url", n.Name)
	case status.Status >= 500:
		n.Note = fmt.Sprintf("%s answered %d, so whether it needs a sign-in is unknown; junction status shows it later",
			n.Name, status.Status)
	}
}

// secure reports whether tokens may be sent to the URL.
func (n *New) secure() bool {
	u, err := url.Parse(n.Entry.URL.Expand(Lookup))
	if err != nil {
		return false
	}
	address, err := netip.ParseAddr(u.Hostname())
	return u.Scheme == "https" || u.Hostname() == "localhost" || err == nil && address.IsLoopback()
}

// reason returns why a server gave no answer, without its URL.
func reason(err error) string {
	if errors.Is(err, context.DeadlineExceeded) {
		return "it did not answer in time"
	}
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err
	}
	return transport.Line([]byte(err.Error()))
}

// discover is the request of a client of the modern era, which needs no session.
const discover = `{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{"_meta":{` +
	`"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},` +
	`"io.modelcontextprotocol/clientInfo":{"name":"junction","version":"0"}}}}`

// answerOf returns status and challenge of a server without reading its body. A server of HTTP+SSE
// answers GET only.
func answerOf(ctx context.Context, client *http.Client, e *clients.Entry) (*transport.StatusError, error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	send := func(method, body string) (*transport.StatusError, error) {
		r, err := http.NewRequestWithContext(ctx, method, e.URL.Expand(Lookup), strings.NewReader(body))
		if err != nil {
			return nil, err
		}
		r.Header.Set("Accept", "application/json, text/event-stream")
		r.Header.Set("User-Agent", "junction")
		if body != "" {
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("Mcp-Protocol-Version", "2026-07-28")
			r.Header.Set("Mcp-Method", "server/discover")
			r.ContentLength = int64(len(body))
		} else {
			r.Header.Set("Accept", "text/event-stream")
			r.Body = http.NoBody
		}
		response, err := client.Do(r)
		if err != nil {
			return nil, err
		}
		_ = response.Body.Close()
		challenge := response.Header.Values("WWW-Authenticate")
		return &transport.StatusError{Status: response.StatusCode, Challenge: challenge}, nil
	}
	if e.SSE {
		return send(http.MethodGet, "")
	}
	status, err := send(http.MethodPost, discover)
	if err == nil && (status.Status == http.StatusNotFound || status.Status == http.StatusMethodNotAllowed) {
		return send(http.MethodGet, "")
	}
	return status, err
}

// SignIns returns the sentences about the sign-ins that new upstreams of the file need.
func SignIns(file string, list []*New) []string {
	var lines []string
	for _, n := range list {
		switch upstream.AuthMode(n.Entry.Auth) {
		case upstream.AuthOAuth:
			lines = append(lines, "Sign in with: "+config.Command(file, "login", n.Name))
		case upstream.AuthOAuthUser:
			lines = append(lines, "Each user signs in to "+n.Name+" in the browser; clients show the tool "+
				n.Name+"__connect until then")
		}
	}
	return lines
}
