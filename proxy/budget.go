package proxy

import "sync"

// budget bounds the bytes of all request bodies in progress. Nothing waits for it: a body that gets no share of it is refused at once, so that clients that send
// slowly delay no other client. The zero value has no bytes to give.
type budget struct {
	mu    sync.Mutex
	total int64
	used  int64
	of    map[string]int64 // the part of used that a principal has
}

// grant is the share of a budget that one request has. It is not for use by several goroutines at once.
type grant struct {
	budget    *budget
	principal string
	bytes     int64
}

// take adds n bytes to the share, and reports whether they were free. One principal has at most half of what the others leave.
func (g *grant) take(n int64) bool {
	b := g.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	its := b.of[g.principal]
	if left := b.total - (b.used - its); its+n > left/2 {
		return false
	}
	if b.of == nil {
		b.of = map[string]int64{}
	}
	b.of[g.principal] = its + n
	b.used += n
	g.bytes += n
	return true
}

// release gives the share back.
func (g *grant) release() {
	b := g.budget
	if g.bytes == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used -= g.bytes
	if b.of[g.principal] -= g.bytes; b.of[g.principal] == 0 {
		delete(b.of, g.principal)
	}
	g.bytes = 0
}
