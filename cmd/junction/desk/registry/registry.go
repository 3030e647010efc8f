// Package registry finds servers in an MCP registry and translates them into entries of Junction's
// configuration.
//
// registry.go sends requests to the API of the registry, version v0.1. server.go has the part of a
// server.json that Junction uses, and entry.go turns one of the ways to run a server into an entry.
//
// The texts of a registry are not trusted. They never become a reference to a variable or file of
// this machine. An entry starts only known programs, with packages of an exact version, and with
// arguments that give a server no more of the machine than such a program usually gets.
package registry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"junction/upstream/loopback"
	"junction/upstream/prose"
)

// Official is the base URL of the official registry.
const Official = "https://registry.modelcontextprotocol.io"

const (
	maxAnswer = 8 << 20 // bytes of an answer
	maxPages  = 20      // of a search
	pageSize  = 100     // the most that the official registry returns at once
)

// ErrNotFound means that the registry does not have the server.
var ErrNotFound = errors.New("the registry has no such server")

// Client asks a registry.
type Client struct {
	base string
	http http.Client
}

// New returns a client for the registry at a base URL: https, or http on this machine.
func New(base string) (*Client, error) {
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" ||
		u.Scheme != "https" && (u.Scheme != "http" || !loopback.Host(u.Hostname())) {
		return nil, fmt.Errorf("%s is no URL of a registry; write it like %s", prose.Quote(base), Official)
	}
	return &Client{base: strings.TrimSuffix(base, "/"), http: http.Client{Timeout: 20 * time.Second}}, nil
}

// answer is a server as the API returns it.
type answer struct {
	Server Server `json:"server"`
	Meta   struct {
		Official struct {
			Status string `json:"status"` // active, deprecated or deleted
		} `json:"io.modelcontextprotocol.registry/official"`
	} `json:"_meta"`
}

func (a *answer) server() *Server {
	if a.Meta.Official.Status != "" {
		a.Server.Status = a.Meta.Official.Status
	}
	return &a.Server
}

// Search returns at most limit servers that have all words in their name, title or description, and
// reports whether there are more. The registry itself looks for the longest word, the official one
// in names only.
func (c *Client) Search(ctx context.Context, words []string, limit int) (list []*Server, more bool, err error) {
	longest := ""
	for _, w := range words {
		if len(w) > len(longest) {
			longest = w
		}
	}
	query := url.Values{"search": {longest}, "version": {"latest"}, "limit": {fmt.Sprint(pageSize)}}
	for range maxPages {
		var page struct {
			Servers  []answer `json:"servers"`
			Metadata struct {
				NextCursor string `json:"nextCursor"`
			} `json:"metadata"`
		}
		if err := c.get(ctx, "/v0.1/servers?"+query.Encode(), &page); err != nil {
			return nil, false, err
		}
		for i := range page.Servers {
			s := page.Servers[i].server()
			if s.Status == "deleted" || !s.has(words) {
				continue
			}
			if len(list) == limit {
				return list, true, nil
			}
			list = append(list, s)
		}
		if page.Metadata.NextCursor == "" {
			return list, false, nil
		}
		query.Set("cursor", page.Metadata.NextCursor)
	}
	return list, true, nil
}

// Get returns the latest version of a server.
func (c *Client) Get(ctx context.Context, name string) (*Server, error) {
	var a answer
	if err := c.get(ctx, "/v0.1/servers/"+url.PathEscape(name)+"/versions/latest", &a); err != nil {
		return nil, err
	}
	s := a.server()
	switch {
	case s.Name != name:
		return nil, fmt.Errorf("the registry %s returned another server than %s", c.base, name)
	case s.Status == "deleted":
		return nil, fmt.Errorf("%s was deleted from the registry", name)
	}
	return s, nil
}

// get reads the answer of the API for a path.
func (c *Client) get(ctx context.Context, path string, into any) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+path, nil)
	if err != nil {
		return err
	}
	r.Header.Set("Accept", "application/json")
	r.Header.Set("User-Agent", "junction")
	resp, err := c.http.Do(r)
	if err != nil {
		if wrapped, ok := errors.AsType[*url.Error](err); ok {
			err = wrapped.Err
		}
		return fmt.Errorf("cannot ask the registry %s: %w; name another one with --registry", c.base, err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case err != nil:
		return fmt.Errorf("cannot read the answer of the registry %s: %w; try again", c.base, err)
	case resp.StatusCode == http.StatusNotFound:
		return ErrNotFound
	case resp.StatusCode != http.StatusOK:
		remedy := "name another one with --registry"
		if resp.StatusCode >= 500 || resp.StatusCode == http.StatusTooManyRequests {
			remedy = "try again later"
		}
		return fmt.Errorf("the registry %s answered %d %s; %s", c.base, resp.StatusCode,
			http.StatusText(resp.StatusCode), remedy)
	case len(text) > maxAnswer:
		return fmt.Errorf("the answer of the registry %s is larger than %d MiB", c.base, maxAnswer>>20)
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("%s is no MCP registry: its answer cannot be read (%w); name another one with --registry",
			c.base, err)
	}
	return nil
}
