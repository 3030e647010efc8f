package upstream

import (
	"crypto/sha256"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/upstream/bounded"
	"junction/upstream/client"
)

// This file knows the tools, prompts and resources whose calls ask the client on a stream that does not name
// the call. While such a call could be of another window than others on its connection, its questions are
// refused. So the next call of the item has a connection for itself from its start (turn.go): an item costs
// one refusal.

// askers are the known items. The zero value knows none.
type askers struct {
	known atomic.Int32 // the number of items, so that a call asks nothing if there is none
	mu    sync.Mutex
	items map[client.Item]*asker
}

// asker is what is known about an item.
type asker struct {
	definition [sha256.Size]byte // of a tool
	silent     int               // calls since the last question
	asked      time.Time         // the last question
}

// An item is forgotten after mostSilent calls, or a time of silentFor, without a question, and when the
// definition of its tool has changed.
const (
	mostSilent = 20
	silentFor  = 7 * 24 * time.Hour
	mostAskers = 256 // of one upstream
	// mostAskerName is the most bytes of a name. A longer one, such as the URI of a resource, is not known.
	mostAskerName = 1 << 10
)

// learn learns that the server with this catalog has asked during calls of these items.
func (a *askers) learn(items []client.Item, catalog *Catalog) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, item := range items {
		if len(item.Name) > mostAskerName {
			continue
		}
		bounded.Put(&a.items, mostAskers, item, &asker{definition: definitionOf(item, catalog), asked: time.Now()}, nil)
	}
	a.known.Store(int32(len(a.items)))
}

// ask reports whether the item of a call is known to ask, and counts the call.
func (a *askers) ask(c *Call, catalog *Catalog) bool {
	if a.known.Load() == 0 { // nearly always the case
		return false
	}
	item := client.Item{Method: c.Method, Name: c.Name}
	definition := definitionOf(item, catalog)
	a.mu.Lock()
	defer a.mu.Unlock()
	known := a.items[item]
	if known == nil {
		return false
	}
	known.silent++
	if known.silent <= mostSilent && time.Since(known.asked) < silentFor && known.definition == definition {
		return true
	}
	delete(a.items, item)
	a.known.Store(int32(len(a.items)))
	return false
}

// definitionOf returns a digest of the definition of a tool; that of nothing for other items.
func definitionOf(item client.Item, catalog *Catalog) [sha256.Size]byte {
	if item.Method == string(mcp.MethodToolsCall) {
		if tool := catalog.Tool(item.Name); tool != nil {
			return sha256.Sum256(tool.Definition.Text())
		}
	}
	return sha256.Sum256(nil)
}

// names returns the names of the known items, sorted.
func (a *askers) names() (list []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for item := range a.items {
		list = append(list, item.Name)
	}
	slices.Sort(list)
	return slices.Compact(list)
}
