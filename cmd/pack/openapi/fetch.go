package openapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"sync"

	"junction/cmd/pack/web"
)

// fetcher fetches a document and what it refers to. The first connection may have any address,
// because the manifest names the URL. A later connection, for a redirect or a reference, has the
// same address, or a public one.
type fetcher struct {
	client http.Client

	mu      sync.Mutex
	from    netip.Addr // of the first connection; guarded by mu
	proxied bool       // a proxy of the environment connects; guarded by mu
}

func newFetcher() *fetcher {
	f := &fetcher{}
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.Proxy = func(r *http.Request) (*url.URL, error) {
		proxy, err := http.ProxyFromEnvironment(r)
		if proxy != nil {
			f.mu.Lock()
			f.proxied = true
			f.mu.Unlock()
		}
		return proxy, err
	}
	t.DialContext = f.dial
	f.client = http.Client{Transport: t, CheckRedirect: func(to *http.Request, via []*http.Request) error {
		if first := via[0].URL; to.URL.Scheme != first.Scheme || to.URL.Host != first.Host {
			return fmt.Errorf("it redirects to another host, %s; name its URL there", to.URL.Host)
		}
		if len(via) > maxRedirects {
			return fmt.Errorf("it redirects more than %d times", maxRedirects)
		}
		return nil
	}}
	return f
}

const maxRedirects = 5

func (f *fetcher) dial(ctx context.Context, network, hostPort string) (net.Conn, error) {
	f.mu.Lock()
	from, proxied := f.from, f.proxied
	f.mu.Unlock()
	reach := web.Reach{Any: proxied || !from.IsValid(), Own: hostPort, At: from}
	conn, err := reach.Dialer(hostPort, nil).DialContext(ctx, network, hostPort)
	if to, parseErr := netip.ParseAddrPort(addressOf(conn)); parseErr == nil && !proxied && !from.IsValid() {
		f.mu.Lock()
		f.from = to.Addr().Unmap()
		f.mu.Unlock()
	}
	return conn, err
}

func addressOf(conn net.Conn) string {
	if conn == nil {
		return ""
	}
	return conn.RemoteAddr().String()
}

// reach returns the addresses that the requests of the fetched document may reach.
func (f *fetcher) reach(document *url.URL) web.Reach {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.proxied {
		return web.Reach{}
	}
	return web.ReachOf(document, f.from)
}

// close closes the connections.
func (f *fetcher) close() { f.client.CloseIdleConnections() }

// get returns a document.
func (f *fetcher) get(ctx context.Context, at string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTime)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return nil, err
	}
	response, err := f.client.Do(req)
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err // without the URL, which may have a secret
	}
	if err != nil {
		return nil, fmt.Errorf("cannot fetch it: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("cannot fetch it: the server answered %s", response.Status)
	}
	text, err := io.ReadAll(io.LimitReader(response.Body, maxDocument+1))
	if err == nil && len(text) > maxDocument {
		err = fmt.Errorf("it has more than %d MiB", maxDocument>>20)
	}
	return text, err
}
