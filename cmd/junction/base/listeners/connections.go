package listeners

import (
	"container/list"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/time/rate"

	"junction/proxy/budget"
)

// This file bounds the connections of clients, so that they do not use up the file descriptors that
// the admin address, the upstreams and the storage need. heads.go bounds the memory of their requests.

// Bounded is a listener that bounds its connections: in total, and by the network of the client.
// At the total, further connections wait in the backlog of the kernel. Beyond its share, a network has
// its connections closed, unless it is loopback or a trusted proxy, behind which others are.
type Bounded struct {
	net.Listener
	log     *slog.Logger
	trusted func() []netip.Prefix
	each    share         // of one network: an IPv4 address, or a /64 of IPv6
	wide    share         // of one /48 of IPv6, which one customer often has
	open    chan struct{} // has an element for each connection
	ended   chan struct{}
	end     func()
	// by what happens to connections; see Figures
	warnings [events]rate.Sometimes
	counts   [events]atomic.Int64
	waiting  atomic.Pointer[queued] // nil if no connection waits

	mu  sync.Mutex
	by  map[netip.Prefix]*use // without exempt connections
	all use
}

// event is something that happens to connections, so that an operator should know of it. Each has a line
// of the log once a minute.
type event int

const (
	full       event = iota // all connections that may be open are
	noFiles                 // no descriptor is left
	tooMany                 // a connection was closed: its network has too many
	unfinished              // a connection was closed: unfinished requests take too much memory
	events
)

// queued is that new connections wait.
type queued struct {
	why          string
	since, until time.Time // until is zero if they wait until one is accepted
}

// acceptAgain is longer than the pause of a server after an error of Accept, so that an error that lasts is
// repeated within it. Without a client, the end of the error shows by nothing else.
const acceptAgain = 3 * time.Second

// Waits returns why new connections wait, and since when; "" if they do not.
func (b *Bounded) Waits() (why string, since time.Time) {
	if q := b.waiting.Load(); q != nil && (q.until.IsZero() || time.Now().Before(q.until)) {
		return q.why, q.since
	}
	return "", time.Time{}
}

// Figures are numbers for package telemetry, which has the same type, so that it does not import
// this package.
type Figures struct {
	Open, Limit int
	Waiting     bool             // new connections wait until another one ends
	Closed      map[string]int64 // connections that were closed because of a limit, by reason
}

// Figures returns the current figures.
func (b *Bounded) Figures() Figures {
	why, _ := b.Waits()
	b.mu.Lock()
	open := b.all.now.conns
	b.mu.Unlock()
	return Figures{Open: open, Limit: cap(b.open), Waiting: why != "",
		Closed: map[string]int64{"too_many": b.counts[tooMany].Load(), "unfinished": b.counts[unfinished].Load()}}
}

// share is what a network may have.
type share struct {
	conns int
	held  int // bytes of unfinished requests
}

// use is what the connections of a network use, or all connections.
type use struct {
	network netip.Prefix
	most    share
	now     share
	holding list.List // of *countedConn, the longest waiting first
}

// leastConns is the bound of connections if the limit of descriptors is very low, or unknown.
const leastConns = 16

// Descriptors for other things than clients. At rest, a process with one command has about 20 open, and
// the admin address 8 in reserve. A reload opens 10 more for a moment, and storage and audit have some.
const (
	ownFiles  = 42
	eachFiles = 6 // of an upstream: a process has two pipes or three, and one that replaces it, too
	// leastFiles is the lowest limit with which Junction starts.
	leastFiles = 64
)

// CheckFiles returns an error if the limit of descriptors is too low for any work. own is how many
// Junction needs for other things than clients.
func CheckFiles(files int64, upstreams int, log *slog.Logger) (own int64, err error) {
	own = ownFiles + eachFiles*int64(upstreams)
	switch least := own + leastConns; {
	case files == 0 || files >= least:
	case files < leastFiles:
		return 0, fmt.Errorf("only %d files may be open at once (ulimit -n), and Junction needs %d; raise the limit",
			files, max(least, leastFiles))
	default:
		log.Warn("few files may be open at once; raise the limit (ulimit -n)", "limit", files, "needed", least)
	}
	return own, nil
}

// Bound bounds a listener of clients to what own descriptors leave, and to three quarters of all;
// a network to a quarter of these, and a /48 of IPv6 to a half. held is the number of bytes that
// unfinished requests may take, with the same shares. Connections of the listener implement http1.Holder.
func Bound(l net.Listener, files, own int64, held int, trusted func() []netip.Prefix, log *slog.Logger) *Bounded {
	total := 1 << 20
	if files > 0 {
		total = int(min(files/4*3, files-own, 1<<20))
	}
	total = max(total, leastConns)
	b := &Bounded{Listener: l, log: log, trusted: trusted,
		each: share{max(total/4, leastConns/2), held / 4}, wide: share{max(total/2, leastConns/2), held / 2},
		open: make(chan struct{}, total), ended: make(chan struct{}),
		by: map[netip.Prefix]*use{}, all: use{most: share{total, held}}}
	for i := range b.warnings {
		b.warnings[i].Interval = time.Minute
	}
	b.end = sync.OnceFunc(func() { close(b.ended) })
	return b
}

// Accept implements net.Listener.
func (b *Bounded) Accept() (net.Conn, error) {
	for {
		if err := b.slot(); err != nil {
			return nil, err
		}
		c, err := b.Listener.Accept()
		if err != nil {
			<-b.open
			if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
				now := time.Now()
				_, since := b.Waits()
				if since.IsZero() {
					since = now
				}
				b.waiting.Store(&queued{tooManyFiles, since, now.Add(acceptAgain)})
				b.warn(noFiles, tooManyFiles, "error", err)
			}
			return nil, err
		}
		b.waiting.Store(nil)
		counted := &countedConn{in: b}
		limit := b.enter(counted, c.RemoteAddr())
		if limit > 0 {
			<-b.open
			c.Close()
			b.warn(tooMany, "connections are closed: too many from one address. If it is a reverse proxy, add it to "+
				"auth.trusted_proxies", "address", c.RemoteAddr(), "limit", limit)
			continue
		}
		counted.boundConn = boundConn{c, sync.OnceFunc(func() {
			b.leave(counted)
			<-b.open
		})}
		return counted, nil
	}
}

// slot waits until there may be another connection.
func (b *Bounded) slot() error {
	select {
	case b.open <- struct{}{}:
		return nil
	default:
	}
	b.waiting.Store(&queued{why: allOpen, since: time.Now()})
	b.warn(full, allOpen, "limit", cap(b.open))
	select {
	case b.open <- struct{}{}:
		b.waiting.Store(nil)
		return nil
	case <-b.ended:
		return net.ErrClosed
	}
}

const (
	tooManyFiles = "new connections wait: too many files are open; raise the limit of open files (ulimit -n)"
	allOpen      = "new connections wait: all that the limit of open files allows are open"
)

// warn counts an event, and logs at most one line of each kind in a minute.
func (b *Bounded) warn(e event, text string, attrs ...any) {
	b.counts[e].Add(1)
	b.warnings[e].Do(func() { b.log.Warn(text, attrs...) })
}

// enter counts a connection for all, and for its networks: for none if its address is exempt. If one of
// them has too many connections, the connection is not counted, and limit is the limit of the network.
func (b *Bounded) enter(c *countedConn, from net.Addr) (limit int) {
	networks := b.networks(from)
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, n := range networks {
		if u := b.by[n]; u != nil && u.now.conns >= u.most.conns {
			return u.most.conns
		}
	}
	for i, n := range networks {
		u := b.by[n]
		if u == nil {
			u = &use{network: n, most: []share{b.each, b.wide}[i]}
			b.by[n] = u
		}
		c.uses = append(c.uses, u)
	}
	c.uses = append(c.uses, &b.all)
	for _, u := range c.uses {
		u.now.conns++
	}
	return 0
}

// networks returns the networks that an address counts for: none for exempt addresses.
func (b *Bounded) networks(from net.Addr) []netip.Prefix {
	address, err := netip.ParseAddrPort(from.String())
	if err != nil {
		return nil
	}
	ip := address.Addr().Unmap().WithZone("")
	within := func(p netip.Prefix) bool { return p.Contains(ip) }
	if ip.IsLoopback() || slices.ContainsFunc(b.trusted(), within) {
		return nil
	}
	near := budget.Network(ip)
	networks := []netip.Prefix{netip.PrefixFrom(near, near.BitLen())}
	if ip.Is6() {
		networks = append(networks, netip.PrefixFrom(ip, 48).Masked())
	}
	return networks
}

// leave removes a connection that was counted.
func (b *Bounded) leave(c *countedConn) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c.drop()
	c.closed = true
	for _, u := range c.uses {
		if u.now.conns--; u.now.conns == 0 {
			delete(b.by, u.network)
		}
	}
}

// Close implements net.Listener.
func (b *Bounded) Close() error {
	b.end()
	return b.Listener.Close()
}

// boundConn gives its place back when it is closed.
type boundConn struct {
	net.Conn
	release func()
}

// Close implements net.Conn.
func (c *boundConn) Close() error {
	defer c.release()
	return c.Conn.Close()
}

// CloseWrite closes the side for writing, as *net.TCPConn does. http.Server calls it, so that a client
// reads an answer that came before the end of its request.
func (c *boundConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

// reserved is a listener with descriptors in reserve: if no other is left, it accepts with one of
// them. Operators ask the admin address above all when something is wrong.
type reserved struct {
	net.Listener
	mu    sync.Mutex
	spare []io.Closer
}

// spareFiles is enough for a probe, a scrape and a command at once.
const spareFiles = 8

// Reserve returns a listener with descriptors in reserve.
func Reserve(l net.Listener) net.Listener {
	r := &reserved{Listener: l}
	r.fill()
	return r
}

// fill opens descriptors up to the reserve, as far as there are any.
func (r *reserved) fill() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.spare) < spareFiles {
		f, err := os.Open(os.DevNull)
		if err != nil {
			return
		}
		r.spare = append(r.spare, f)
	}
}

// give closes a descriptor of the reserve, and reports whether there was one.
func (r *reserved) give() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := len(r.spare)
	if n == 0 {
		return false
	}
	r.spare[n-1].Close()
	r.spare = r.spare[:n-1]
	return true
}

// Accept implements net.Listener.
func (r *reserved) Accept() (net.Conn, error) {
	for {
		c, err := r.Listener.Accept()
		if (errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)) && r.give() {
			continue
		}
		if err != nil {
			return nil, err
		}
		return &boundConn{c, r.fill}, nil
	}
}

// Close implements net.Listener.
func (r *reserved) Close() error {
	for r.give() {
	}
	return r.Listener.Close()
}
