package transport

import (
	"context"
	"errors"
	"net"
	"os"
	"time"
)

// dial opens a connection to a server, as net.Dialer does. The error is a *dialError.
func dial(ctx context.Context, network, address string) (net.Conn, error) {
	d := net.Dialer{Timeout: 10 * time.Second, KeepAlive: 15 * time.Second}
	c, err := d.DialContext(ctx, network, address)
	if err != nil {
		return nil, &dialError{address, err}
	}
	return c, nil
}

// dialError has a short text, because the table of upstreams has little room.
type dialError struct {
	address string
	err     error
}

func (e *dialError) Error() string {
	cause := e.err
	if op, ok := errors.AsType[*net.OpError](cause); ok {
		cause = op.Err
	}
	if call, ok := errors.AsType[*os.SyscallError](cause); ok {
		cause = call.Err
	}
	if name, ok := errors.AsType[*net.DNSError](cause); ok { // the text includes the host
		return name.Error()
	}
	return e.address + ": " + cause.Error()
}

func (e *dialError) Unwrap() error { return e.err }
