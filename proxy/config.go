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
	// Of one request. Default 16MiB.
	Body upstream.Size `yaml:"body"`
	// Shared, also with upstreams: requests in progress, also those that another replica answers,
	// answers in writing, and large handshakes and lists of upstreams. At least twice body. The
	// default is less where memory is limited: a quarter of GOMEMLIMIT, which is 80 % of a
	// container's limit by default. Default 256MiB.
	Bodies upstream.Size `yaml:"bodies"`
	// Of one request. Unfinished headers together may hold an eighth of bodies, beside them; those
	// of one address a quarter of that. Default 64KiB.
	Header upstream.Size `yaml:"header"`
	// Of arrays and objects in one message. Default 256.
	Nesting int `yaml:"nesting"`
	// One message from an upstream; the pages of one of its lists together. Default 64MiB.
	Message upstream.Size `yaml:"message"`
	// Shared: legacy sessions in memory. Default 10000.
	//
	// Beyond its share, a caller loses its longest idle session.
	Sessions int `yaml:"sessions"`
	// Shared: event streams open at once. Default 1000.
	//
	// GET of the legacy era, and subscriptions/listen.
	Streams int `yaml:"streams"`
	// Shared: requests in progress, without streams. A call continues when its client hangs up, and
	// counts. Default 2000.
	Requests int `yaml:"requests"`
	// Notifications of a call that wait for a slow client, whose bytes count, too. Default 64.
	Queue int `yaml:"queue"`
	// Items on one page of a list. Default 1000.
	Page int `yaml:"page"`
	// Items that one upstream may list. Default 10000.
	Items int `yaml:"items"`

	// Calls of one user that wait for its answer to a server request. Default 32.
	Parked int `yaml:"parked"`

	// For a user to answer a server request. Default 10m.
	Patience time.Duration `yaml:"patience"`
	// For a client to send its request. Default 30s.
	ReadTimeout time.Duration `yaml:"read_timeout"`
	// For a client to take what Junction writes. Default 30s.
	WriteTimeout time.Duration `yaml:"write_timeout"`
}

// CatalogConfig is the catalog section.
type CatalogConfig struct {
	// Keep the items of a vanished upstream listed while it reconnects. Default 30s.
	Grace time.Duration `yaml:"grace"`
	// How long tools/list waits for servers that start for the first time; later their last catalog
	// is listed at once. The list of a legacy session waits at least 5s for servers that list nothing
	// without its folder. Default 1s.
	//
	// Some clients, such as Codex, continue without tools if the list takes longer than the
	// default.
	FirstWait time.Duration `yaml:"first_wait"`
	// How often the lists of a server are read again; half as often if the server declares that it
	// announces changes. Default 5m.
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
