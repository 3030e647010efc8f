package proxy

import (
	"cmp"
	"runtime/debug"
	"time"

	"junction/upstream"
)

// Limits is the limits section: the resources that one client, or all clients together, may use.
// Beyond a limit, Junction rejects the request or ends the stream.
//
// Callers share Bodies, Sessions, Streams and Requests: each caller gets at most half of the
// capacity that the others leave. A caller is a principal. Without authentication, a caller is a
// local program, identified by its User-Agent. Behind an authenticating proxy (auth.none), a caller
// is an IPv4 address or an IPv6 /64 network.
type Limits struct {
	Body upstream.Size `yaml:"body"` // one request's body. Default 16MiB.
	// bytes held for all callers and upstreams: request bodies and answers in progress, and large
	// handshakes and lists of upstreams. Default 256MiB, or a quarter of the Go runtime's memory limit
	// (GOMEMLIMIT) if that is less; at least twice body.
	Bodies upstream.Size `yaml:"bodies"`
	Header upstream.Size `yaml:"header"` // one request's header. Default 64KiB.
	// depth of arrays and objects in one message, of clients and upstreams. Default 256.
	Nesting int `yaml:"nesting"`
	// one message from an upstream, and all pages of one of its lists together. Default 64MiB.
	Message upstream.Size `yaml:"message"`
	// legacy sessions in memory; beyond its share, a caller loses its longest idle session. Default
	// 10000.
	Sessions int `yaml:"sessions"`
	Streams  int `yaml:"streams"`  // event streams open at once, GET and subscriptions/listen. Default 1000.
	Requests int `yaml:"requests"` // requests in progress, without streams. Default 2000.
	// notifications of a call that wait for a slow client; their bytes count for its account. Default 64.
	Queue int `yaml:"queue"`
	Page  int `yaml:"page"`  // items on one page of a list. Default 1000.
	Items int `yaml:"items"` // items that one upstream may list. Default 10000.

	Parked int `yaml:"parked"` // calls of one user that wait for the user's response. Default 32.

	Patience     time.Duration `yaml:"patience"`      // time for a user to respond. Default 10m.
	ReadTimeout  time.Duration `yaml:"read_timeout"`  // time for a client to send its request. Default 30s.
	WriteTimeout time.Duration `yaml:"write_timeout"` // time for a client to read each write. Default 30s.
}

// CatalogConfig is the catalog section.
type CatalogConfig struct {
	// Grace keeps the items of a vanished upstream listed while it reconnects. Default 30s.
	Grace time.Duration `yaml:"grace"`
	// FirstWait is the time for which tools/list waits for starting servers without a stored
	// catalog. Default 1s: Codex continues without tools if the list takes longer.
	FirstWait time.Duration `yaml:"first_wait"`
	// Refresh is the interval for reading the lists of upstreams without change notifications. The
	// lists of other upstreams are read half as often. Default 5m.
	Refresh time.Duration `yaml:"refresh"`
}

// WithDefaults returns l with defaults for its zero fields.
func (l Limits) WithDefaults() Limits {
	l.Body = cmp.Or(l.Body, 16<<20)
	// SetMemoryLimit(-1) only reads the limit. A held byte takes about two bytes of memory.
	l.Bodies = cmp.Or(l.Bodies, min(256<<20, upstream.Size(debug.SetMemoryLimit(-1)/4)))
	l.Bodies = max(l.Bodies, 2*(l.Body+1)) // half of it must hold one body
	l.Header = cmp.Or(l.Header, 64<<10)
	l.Nesting = cmp.Or(l.Nesting, 256)
	l.Message = cmp.Or(l.Message, 64<<20)
	l.Sessions = cmp.Or(l.Sessions, 10000)
	l.Streams = cmp.Or(l.Streams, 1000)
	l.Requests = cmp.Or(l.Requests, 2000)
	l.Queue = cmp.Or(l.Queue, 64)
	l.Page = cmp.Or(l.Page, 1000)
	l.Items = cmp.Or(l.Items, 10000)
	l.Parked = cmp.Or(l.Parked, 32)
	l.Patience = cmp.Or(l.Patience, 10*time.Minute)
	l.ReadTimeout = cmp.Or(l.ReadTimeout, 30*time.Second)
	l.WriteTimeout = cmp.Or(l.WriteTimeout, 30*time.Second)
	return l
}

// Heads returns how many bytes of memory unfinished requests may take that no handler has. l has its
// defaults. The share of one address, a quarter, is enough for several headers.
func (l Limits) Heads() int { return int(max(l.Bodies/8, 16*l.Header)) }
