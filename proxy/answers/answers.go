// Package answers keeps results of tool calls in memory, so that an equal call can be answered
// without the upstream. Core.reusable (proxy/call.go) decides which calls use it: those of tools
// that the configuration names (cache) and that declare themselves read-only and idempotent.
//
// A result belongs to the account of its caller, so that no other user ever gets it. Its key
// contains everything else that may change the result. If the results need more than maxBytes, the
// least recently used ones are dropped.
package answers

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"sync/atomic"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/proxy/canon"
	"junction/upstream/bounded"
	"junction/upstream/raw"
)

// Limits of the memory, in bytes. Each result counts overhead bytes more than its text, so that
// there are at most maxBytes/overhead results.
const (
	maxBytes  = 32 << 20
	maxResult = 1 << 20
	overhead  = 1 << 10
)

// Cache holds results. Its methods may be called concurrently.
type Cache struct {
	room    bounded.Room
	kept    bounded.Cache[Key, *answer]
	cleared atomic.Uint64 // how often Clear was called
}

// New returns an empty cache.
func New() *Cache {
	c := &Cache{}
	c.room.Max = maxBytes
	c.kept.Room = &c.room
	return c
}

// Key identifies calls with the same result. The zero value is no key.
type Key struct {
	cleared uint64
	account any
	source  any
	digest  [sha256.Size]byte
}

// answer is a kept result.
type answer struct {
	text []byte
	ends time.Time
}

// Call contains everything that the result of a call depends on.
type Call struct {
	// Account and Source are the caller and the upstream. They must be comparable, and are never
	// nil.
	Account, Source any
	// Announced is the number of changes of its lists that the upstream has announced.
	Announced  uint64
	Tool       string // the upstream's own name
	Definition []byte
	Client     string     // what the upstream learns about the client
	Params     raw.Object // of the request
}

// Key returns the key of a call. It returns false for calls whose results are not kept: calls with
// requestState, inputResponses or task, and calls with ambiguous JSON.
func (c *Cache) Key(call Call) (Key, bool) {
	for _, member := range []string{"requestState", "inputResponses", "task"} {
		if _, err := call.Params.Get(member); err != raw.ErrAbsent {
			return Key{}, false
		}
	}
	form, ok := params(call.Params)
	if !ok {
		return Key{}, false
	}
	h := sha256.New()
	number := func(n uint64) { h.Write(binary.BigEndian.AppendUint64(nil, n)) }
	number(call.Announced)
	for _, part := range [][]byte{[]byte(call.Tool), call.Definition, []byte(call.Client), form} {
		number(uint64(len(part)))
		h.Write(part)
	}
	return Key{c.cleared.Load(), call.Account, call.Source, [sha256.Size]byte(h.Sum(nil))}, true
}

// params returns the canonical form of those params that an upstream gets, without the name.
func params(o raw.Object) ([]byte, bool) {
	edits := []raw.Edit{{Name: "name"}}
	meta, err := o.Object("_meta")
	if err == nil {
		text, ok := canon.Without(meta, ofHop)
		if !ok {
			return nil, false
		}
		edits = append(edits, raw.Edit{Name: "_meta", Value: text})
	} else if _, err := o.Get("_meta"); err != raw.ErrAbsent {
		return nil, false
	}
	text, err := o.Splice(edits...)
	if err != nil {
		return nil, false
	}
	return canon.Value(text)
}

// ofHop reports whether a member of _meta concerns one request or one hop.
func ofHop(name string) bool {
	switch name {
	case "progressToken", "traceparent", "tracestate", "baggage", mcp.MetaKeyProtocolVersion,
		mcp.MetaKeyClientCapabilities, mcp.MetaKeyClientInfo, mcp.MetaKeyLogLevel:
		return true
	}
	return false
}

// Get returns the result of a key; false if there is none. The text must not be modified.
func (c *Cache) Get(k Key) ([]byte, bool) {
	a, ok := c.kept.Get(k)
	if !ok || k.cleared != c.cleared.Load() || !time.Now().Before(a.ends) {
		return nil, false
	}
	return a.text, true
}

// Put keeps a copy of a result for a duration. It does not keep a result of more than 1 MiB, or one
// whose key was made before Clear.
func (c *Cache) Put(k Key, text []byte, lasts time.Duration) {
	if len(text) > maxResult || k.cleared != c.cleared.Load() {
		return
	}
	c.kept.Put(k, &answer{bytes.Clone(text), time.Now().Add(lasts)}, len(text)+overhead)
}

// Clear drops all results.
func (c *Cache) Clear() {
	c.cleared.Add(1)
	c.room.Mu.Lock()
	defer c.room.Mu.Unlock()
	for _, e := range c.kept.Of {
		e.Leave()
	}
}
