package client

import "time"

// This file keeps a connection for one window while its server asks, or is known to ask, on a stream that
// does not identify the call.

// Item is what a call asks a server for.
type Item struct {
	Method string
	Name   string // of the tool or prompt, or the URI of the resource; "" for other methods
}

// learn reports the items of the calls that may have caused a server request: that of f, or, if f is nil,
// those of all calls in flight.
func (b *base) learn(f *flight) {
	if b.hooks.Asked == nil {
		return
	}
	var items []Item
	if f != nil {
		items = append(items, f.item)
	} else {
		b.mu.Lock()
		for _, f := range b.flights {
			items = append(items, f.item)
		}
		b.mu.Unlock()
	}
	if len(items) > 0 {
		b.hooks.Asked(items)
	}
}

// turn is what a call waits for: see Taken.
type turn struct {
	window window
	alone  bool
}

// Taken implements Conn.
func (b *base) Taken(c *Call, alone bool) <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.wait(turn{c.window(), alone})
}

// Reserve implements Conn.
func (b *base) Reserve(c *Call) (done func(), taken <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	w := c.window()
	if taken := b.wait(turn{w, true}); taken != nil {
		return nil, taken
	}
	if b.reserved == nil {
		b.reserved = map[*window]struct{}{}
	}
	b.reserved[&w] = struct{}{}
	b.exclusive++
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.reserved, &w)
		b.exclusive--
		b.ease()
	}, nil
}

// wait returns a channel that ease closes; nil if the turn is free now. b.mu is held.
func (b *base) wait(t turn) <-chan struct{} {
	if !b.taken(t) {
		return nil
	}
	if b.waiting == nil {
		b.waiting = map[turn]chan struct{}{}
	}
	if b.waiting[t] == nil {
		b.waiting[t] = make(chan struct{})
	}
	return b.waiting[t]
}

// ease wakes the calls whose turn is free now. b.mu is held.
func (b *base) ease() {
	for t, free := range b.waiting {
		if !b.taken(t) {
			close(free)
			delete(b.waiting, t)
		}
	}
}

// doubted reports whether a question could be of a call of another window that was given up. b.mu is held.
func (b *base) doubted(w window) bool {
	b.forgetDoubts()
	for _, d := range b.doubts {
		if !d.window.is(w) {
			return true
		}
	}
	return time.Now().Before(b.doubtful)
}

// taken reports whether calls of other windows keep the conn from a call. b.mu is held.
func (b *base) taken(t turn) bool {
	if b.exclusive == 0 && !t.alone { // nearly always the case
		return false
	}
	for _, f := range b.flights {
		if (f.exclusive || t.alone) && !f.window.is(t.window) {
			return true
		}
	}
	for w := range b.reserved {
		if !w.is(t.window) {
			return true
		}
	}
	return t.alone && b.doubted(t.window)
}
