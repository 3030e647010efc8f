package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"time"

	"junction/cmd/junction/config"
	"junction/cmd/junction/prose"
	"junction/cmd/junction/runfile"
)

// errNotRunning means that no process listens on the admin address.
var errNotRunning = errors.New("no junction is running")

// adminAddress returns the admin address: that of --admin, or of the running junction that serves the
// file, or of the file, or the default. It is empty if the file disables it or uses a free port. c is
// nil if the file was not needed.
func adminAddress(flag, file string) (address string, c *config.Config, err error) {
	if flag != "" {
		if u, err := url.Parse(flag); err == nil && u.Host != "" && u.Scheme == "http" {
			flag = u.Host // in the form of the log
		}
		if _, _, err := net.SplitHostPort(flag); err != nil {
			return "", nil, Usagef("--admin %q is no address; write it like 127.0.0.1:8421", flag)
		}
		return flag, nil, nil
	}
	if place, ok := runfile.Find(file); ok && place.Admin != "" {
		return place.Admin, nil, nil
	}
	if c, err = config.LoadForCommand(file); err != nil {
		return "", nil, err
	}
	if strings.HasSuffix(*c.Admin, ":0") {
		return "", c, nil
	}
	return *c.Admin, c, nil
}

// askAdmin reads the answer of the admin address at a path. The error is errNotRunning if no process
// listens there; otherwise it contains the error text of the proxy.
func askAdmin(ctx context.Context, address, path string, query url.Values, limit time.Duration, into any) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("the proxy at %s has not answered within %v", address, limit))
	defer cancel()
	u := url.URL{Scheme: "http", Host: address, Path: path, RawQuery: query.Encode()}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return err
	}
	client := http.Client{Transport: &http.Transport{Proxy: nil, DisableKeepAlives: true}}
	resp, err := client.Do(r)
	switch {
	case err != nil && ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("%w at %s", errNotRunning, address)
	case err != nil:
		if wrapped, ok := errors.AsType[*url.Error](err); ok {
			err = wrapped.Err
		}
		return fmt.Errorf("ask the proxy at %s: %w", address, err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 64<<20))
	switch {
	case err != nil && ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return fmt.Errorf("ask the proxy at %s: %w", address, err)
	case resp.StatusCode == http.StatusNotFound && strings.HasPrefix(string(text), "404 "):
		return fmt.Errorf("what answers at %s is no admin address of a junction of this version", address)
	case resp.StatusCode != http.StatusOK:
		return errors.New(prose.Cut(prose.Flat(string(text)), 400))
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("what answers at %s is no admin address of a junction", address)
	}
	return nil
}
