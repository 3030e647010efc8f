package upstream

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/upstream/client"
	"junction/upstream/definition"
	"junction/upstream/jsonrpc"
	"junction/upstream/raw"
	"junction/upstream/transport"
)

// This file reads the lists of a server into a catalog.

const (
	// maxPages limits the pages of one list, because a server can return cursors without end.
	maxPages = 1000
	// otherLists is the time limit for all lists except the tools, together. After it, the tools are
	// offered without the lists that are missing.
	otherLists = 10 * time.Second
)

// read reads all pages of all lists of the server. It never returns a part of a list. It fails if
// the tools cannot be read, or if the connection breaks. If another list cannot be read, or if its
// answer breaks off twice, the catalog gets the list of last, and Left gets the reason.
func (c *catalogs) read(ctx context.Context, from client.Conn, last *Catalog) (*Catalog, error) {
	info := from.Info()
	cat := &Catalog{Era: info.Era, Version: info.Version, Capabilities: info.Capabilities,
		Instructions: info.Instructions, Listed: time.Now(), mirrors: info.Mirrors, proven: info.Proven,
		leases: new(leases)}
	cat.since = cat.Listed
	if c.checks != nil {
		cat.checking = c.checks.begin()
		defer cat.endChecking()
	}
	// some old servers do not declare their tools
	if info.Era == client.EraLegacy || info.Capabilities.HasObject("tools") {
		if err := c.readPart(ctx, cat, from, PartTools); err != nil {
			cat.free()
			return nil, &listError{PartTools.Method(), err}
		}
	}
	limit := otherLists
	if end, ok := ctx.Deadline(); ok {
		limit = min(limit, time.Until(end)/2)
	}
	others, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for part := PartPrompts; part < Parts; part++ {
		if !info.Capabilities.HasObject(part.capability()...) {
			continue
		}
		left, mended := len(cat.Left), len(cat.Mended)
		err := c.readPart(others, cat, from, part)
		if brokeOff(from, err) && ctx.Err() == nil { // once more: the server may have restarted just now
			cat.leases.lists[part].Release()
			*cat.list(part), cat.Left, cat.Mended = nil, cat.Left[:left], cat.Mended[:mended]
			err = c.readPart(others, cat, from, part)
		}
		if err == nil {
			continue
		}
		late := others.Err() != nil && ctx.Err() == nil
		if !late && !brokeOff(from, err) && !ofOneList(err) {
			cat.free()
			return nil, &listError{part.Method(), err}
		}
		if late {
			err = errors.New("no answer in time")
		}
		*cat.list(part), cat.index[part], cat.Fresh[part] = *last.list(part), last.index[part], last.Fresh[part]
		cat.Fresh[part].Has = cat.Fresh[part].Has || part == PartSkills // skills/get may work without the list
		cat.leases.lists[part].Release()
		if cat.leases.lists[part] = nil; last.leases != nil {
			cat.leases.lists[part] = last.leases.lists[part].Share()
		}
		cat.Left = append(cat.Left[:left], LeftOut{part, "", part.Method() + ": " + describe(c.shown(err))})
	}
	return cat, nil
}

// ofOneList reports whether an error of a list concerns no other one. Rejected credentials do, and so does
// the end of a session.
func ofOneList(err error) bool {
	if status, ok := errors.AsType[*transport.StatusError](err); ok {
		return status.Status != http.StatusUnauthorized && status.Status != http.StatusForbidden &&
			!errors.Is(err, transport.ErrSessionGone)
	}
	return errors.As(err, new(*jsonrpc.Error)) || errors.Is(err, transport.ErrInvalid) ||
		errors.As(err, new(*transport.MemoryError))
}

// lacks reports whether the list of a method could not be read to its end.
func (c *Catalog) lacks(method string) bool {
	return slices.ContainsFunc(c.Left, func(l LeftOut) bool { return l.Name == "" && l.Part.Method() == method })
}

// listError is why a list could not be read.
type listError struct {
	method string
	err    error
}

func (e *listError) Error() string { return e.method + ": " + e.err.Error() }
func (e *listError) Unwrap() error { return e.err }

// endChecking ends the checks of a reading. The catalog remembers only whether they are complete.
func (c *Catalog) endChecking() {
	c.checking.end()
	c.Unchecked, c.checking = c.checking.late, nil
}

// brokeOff reports whether an answer ended too early on a stream of its own. The others of the server are
// not concerned.
func brokeOff(c client.Conn, err error) bool {
	return err != nil && c.Child() == nil && client.KindOf(err) == client.KindLost &&
		!errors.As(err, new(*jsonrpc.Error)) && !errors.Is(err, context.DeadlineExceeded)
}

// readPart reads one list of a server into the catalog.
func (c *catalogs) readPart(ctx context.Context, cat *Catalog, from client.Conn, part Part) error {
	cat.leases.lists[part] = transport.NewLease(c.account).Limit(int64(c.options.MessageLimit),
		"its pages together have more than %s (limits.message)")
	return cat.read(ctx, from, part, c.options.Items)
}

// read reads all pages of one list. An item that an earlier page has is dropped: the list may have changed
// in between, or the server ignores cursors.
func (c *Catalog) read(ctx context.Context, from client.Conn, p Part, maxItems int) error {
	c.index[p] = map[string]int{}
	left := len(c.Left)
	seen := map[[sha256.Size]byte]bool{} // a cursor may be long
	var cursor []byte
	for page := 1; ; page++ {
		result, err := from.List(ctx, p.Method(), cursor, c.leases.lists[p])
		if err != nil {
			rpcErr, ok := errors.AsType[*jsonrpc.Error](err)
			if page == 1 && ok && rpcErr.Code == mcp.METHOD_NOT_FOUND {
				if p == PartSkills { // then the server has no skills/get either
					c.Left = append(c.Left, LeftOut{p, "", "the server declares skills, and has no " + p.Method()})
				}
				return nil // the server does not have the list, although it may declare it
			}
			return err
		}
		list, err := result.Get(p.Member())
		if err != nil {
			return fmt.Errorf("%w: no %s on page %d", transport.ErrInvalid, p.Member(), page)
		}
		var items [][]byte
		if string(list) != "null" { // an empty list of some servers
			items, err = raw.ElementsWithin(list, maxItems)
		}
		earlier := c.Items(p)
		switch {
		case err == raw.ErrMany:
		case err != nil:
			return fmt.Errorf("%w: %s are no array on page %d", transport.ErrInvalid, p.Member(), page)
		default:
			c.Fresh[p].take(result, page == 1)
			for _, item := range items {
				c.add(p, item, earlier)
			}
		}
		if err == raw.ErrMany || c.Items(p)+len(c.Left)-left > maxItems {
			return fmt.Errorf("%w: more than %d items (limits.items)", transport.ErrInvalid, maxItems)
		}
		if cursor, err = result.Get("nextCursor"); err == raw.ErrAbsent || err == nil && string(cursor) == "null" {
			return nil
		} else if err != nil {
			return fmt.Errorf("%w: nextCursor: %w", transport.ErrInvalid, err)
		}
		if _, err := raw.String(cursor); err != nil {
			return fmt.Errorf("%w: nextCursor is no string", transport.ErrInvalid)
		}
		endless := ""
		switch {
		case seen[sha256.Sum256(cursor)]:
			endless = fmt.Sprintf("the list never ends, page %d has the cursor of an earlier one", page)
		case page == maxPages:
			endless = fmt.Sprintf("more than %d pages", maxPages)
		}
		if endless != "" { // such servers are in use, and their first page has everything
			c.Left = append(c.Left, LeftOut{p, "", p.Method() + ": " + endless + "; what was read is offered"})
			return nil
		}
		seen[sha256.Sum256(cursor)] = true
	}
}

// take adds the caching information of a page: the shortest time and the narrowest scope of all
// pages count (2026-07-28, server/utilities/caching).
func (f *Freshness) take(result raw.Object, first bool) {
	ttl := time.Duration(0)
	if v, err := result.Get("ttlMs"); err == nil {
		if ms, ok := definition.WholeNumber(v); ok {
			ttl = min(time.Duration(ms), 24*60*60*1000) * time.Millisecond
		}
	}
	scope, _ := result.String("cacheScope")
	if first {
		*f = Freshness{true, ttl, scope == "public"}
		return
	}
	f.TTL, f.Public = min(f.TTL, ttl), f.Public && scope == "public"
}
