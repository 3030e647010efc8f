//go:build !unix

package http1

import (
	"net"
	"time"
)

// livenessOf returns a function that reports whether an idle connection is still open.
func livenessOf(c net.Conn) func(time.Duration) bool { return livenessByReading(c) }
