package listeners

import (
	"errors"
	"net"
	"sync"
)

// This file makes one listener of the plain address and of the one for TLS, so that both have one bound of
// connections, and one server.

// Join returns a listener that accepts the connections of both. Its address is that of plain. Secured speaks
// TLS on the connections of secure. Join takes ownership of both listeners.
func Join(plain, secure net.Listener) net.Listener {
	j := &joined{Listener: plain, secure: secure, accepted: make(chan accepted), ended: make(chan struct{})}
	j.end = sync.OnceFunc(func() { close(j.ended) })
	j.running.Go(func() { j.accept(plain, false) })
	j.running.Go(func() { j.accept(secure, true) })
	return j
}

// joined is what Join returns.
type joined struct {
	net.Listener // the plain one
	secure       net.Listener
	accepted     chan accepted
	ended        chan struct{}
	end          func()
	running      sync.WaitGroup
}

// accepted is the result of Accept of one listener.
type accepted struct {
	conn net.Conn
	err  error
}

// accept passes on what a listener accepts, until it is closed. One connection more than the bound allows may
// wait here.
func (j *joined) accept(l net.Listener, secure bool) {
	for {
		c, err := l.Accept()
		if err == nil && secure {
			c = entered{c}
		}
		select {
		case j.accepted <- accepted{c, err}:
		case <-j.ended:
			if err == nil {
				c.Close()
			}
			return
		}
		if errors.Is(err, net.ErrClosed) {
			return
		}
	}
}

// Accept implements net.Listener.
func (j *joined) Accept() (net.Conn, error) {
	select {
	case a := <-j.accepted:
		return a.conn, a.err
	case <-j.ended:
		return nil, net.ErrClosed
	}
}

// Close closes both listeners, and waits for the goroutines of Join.
func (j *joined) Close() error {
	j.end()
	err := errors.Join(j.Listener.Close(), j.secure.Close())
	j.running.Wait()
	return err
}

// entered marks a connection of the listener for TLS.
type entered struct{ net.Conn }

// CloseWrite closes the side for writing.
func (e entered) CloseWrite() error {
	if half, ok := e.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}
