package proxy

import (
	"cmp"
	"time"

	"junction/upstream"
)

// Endpoint is one entry of the file's endpoints section: a URL of its own, /NAME/mcp, with some of
// the upstreams, merged, and its own policies.
type Endpoint struct {
	// Upstreams are the names of those that it offers. Default: all.
	Upstreams []string `yaml:"upstreams"`
	// Surface is what policies match it by, such as cli, web or chat. Default: the endpoint's name.
	Surface string `yaml:"surface"`
}

// Limits is the file's limits section: how much one client, or all of them, may ask of us. Beyond
// each limit a request is refused or a stream is cut off.
//
// Callers share Bodies, Sessions, Streams and Requests: each gets at most half of what the others
// leave. A caller is a principal. Without authentication it is a program on this machine, by its
// User-Agent; behind a proxy that authenticates (auth.none) it is an address, or a /64 network of
// IPv6.
type Limits struct {
	Body upstream.Size `yaml:"body"` // one request's body. Default 16MiB.
	// bytes held for all callers: bodies of requests in progress, answers being written. Default
	// 256MiB, at least twice body.
	Bodies upstream.Size `yaml:"bodies"`
	Header upstream.Size `yaml:"header"` // one request's header. Default 64KiB.
	// of arrays and objects in one message, of clients and upstreams. Default 256.
	Nesting int           `yaml:"nesting"`
	Message upstream.Size `yaml:"message"` // one message from an upstream. Default 64MiB.
	// legacy sessions held in memory; beyond its share a caller loses its longest idle one. Default
	// 10000.
	Sessions int `yaml:"sessions"`
	Streams  int `yaml:"streams"`  // event streams open at once, GET and subscriptions/listen. Default 1000.
	Requests int `yaml:"requests"` // requests in progress at once, streams not counted. Default 2000.
	// notifications waiting for one slow client; it misses those beyond. Default 64.
	Queue int `yaml:"queue"`
	Page  int `yaml:"page"`  // items on one page of a list. Default 1000.
	Items int `yaml:"items"` // items that one upstream may list. Default 10000.

	Parked int `yaml:"parked"` // calls of one user that wait for its answer to a question. Default 32.

	Patience     time.Duration `yaml:"patience"`      // for a person to answer a question. Default 10m.
	ReadTimeout  time.Duration `yaml:"read_timeout"`  // for a client to send its request. Default 30s.
	WriteTimeout time.Duration `yaml:"write_timeout"` // for a client to take what we write. Default 30s.
}

// Sessions is the file's sessions section: the sessions of legacy clients. An id carries what was
// negotiated, sealed, so that it outlives our restart.
type Sessions struct {
	// KeyFile holds the key that seals session ids and cursors; it is made when it does not exist.
	// Several replicas share one file. Default: junction/key in the user's state directory; where
	// none can be written, a key of this process alone, and a warning.
	KeyFile string `yaml:"key_file"`
	// Idle frees what is held in memory for a session without a request or stream; the session goes
	// on when its client comes back. Default 30m.
	Idle time.Duration `yaml:"idle"`
	// MaxAge ends a session for good. Default 720h.
	MaxAge time.Duration `yaml:"max_age"`
}

// CatalogConfig is the file's catalog section.
type CatalogConfig struct {
	// Grace keeps the items of a vanished upstream listed while it reconnects. Default 30s.
	Grace time.Duration `yaml:"grace"`
	// FirstWait is how long tools/list waits for servers that are starting and of which no earlier
	// catalog is stored. Default 1s: Codex goes on without any tool if its list takes longer.
	FirstWait time.Duration `yaml:"first_wait"`
	// Refresh re-reads the lists of upstreams that cannot tell of changes. Default 5m.
	Refresh time.Duration `yaml:"refresh"`
}

// WithDefaults fills in what the section leaves out.
func (l Limits) WithDefaults() Limits {
	l.Body = cmp.Or(l.Body, 16<<20)
	l.Bodies = max(cmp.Or(l.Bodies, 256<<20), 2*(l.Body+1)) // half of it must be enough for one body
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

func (c Sessions) withDefaults() Sessions {
	c.Idle = cmp.Or(c.Idle, 30*time.Minute)
	c.MaxAge = cmp.Or(c.MaxAge, 720*time.Hour)
	return c
}
