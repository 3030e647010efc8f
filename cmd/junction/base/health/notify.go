package health

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"junction/upstream/pace"
)

// Supervisor is systemd, if it has started this process and asks for its state (sd_notify(3),
// Type=notify in a unit). The methods of a nil Supervisor do nothing.
type Supervisor struct {
	socket string
	every  time.Duration // between two signs of life; 0 if the unit has no WatchdogSec
	log    *slog.Logger
}

// NewSupervisor returns the Supervisor that the environment names, or nil.
func NewSupervisor(getenv func(string) (string, bool), log *slog.Logger) *Supervisor {
	socket, ok := getenv("NOTIFY_SOCKET")
	if !ok || !strings.HasPrefix(socket, "/") && !strings.HasPrefix(socket, "@") {
		return nil
	}
	s := &Supervisor{socket: socket, log: log}
	limit, _ := getenv("WATCHDOG_USEC")
	pid, named := getenv("WATCHDOG_PID")
	if n, err := strconv.ParseInt(limit, 10, 64); err == nil && n > 0 && (!named || pid == strconv.Itoa(os.Getpid())) {
		s.every = time.Duration(n) * time.Microsecond / 3
	}
	return s
}

// Ready tells that the process serves, also after a reload.
func (s *Supervisor) Ready(status string) { s.send("READY=1\nSTATUS=" + status) }

// Reloading tells that the process reads its configuration again. Ready must follow.
func (s *Supervisor) Reloading() { s.send("RELOADING=1") }

// Waiting tells that the start waits, for the limit at most.
func (s *Supervisor) Waiting(limit time.Duration) {
	s.send(fmt.Sprintf("STATUS=waiting until another process has ended\nEXTEND_TIMEOUT_USEC=%d", limit.Microseconds()))
}

// Stopping tells that the process ends, within the limit.
func (s *Supervisor) Stopping(limit time.Duration) {
	s.send(fmt.Sprintf("STOPPING=1\nSTATUS=stopping\nEXTEND_TIMEOUT_USEC=%d", limit.Microseconds()))
}

// Watch tells that the process is alive, each time that alive returns, until ctx ends. If alive does not
// return, systemd kills the process and starts it again.
func (s *Supervisor) Watch(ctx context.Context, alive func()) {
	if s == nil || s.every <= 0 {
		return
	}
	for pace.Sleep(ctx, s.every, nil) {
		alive()
		s.send("WATCHDOG=1")
	}
}

// sendLimit is how long sending a state may take.
const sendLimit = 5 * time.Second

// send sends a state. An error is logged: systemd then kills the process after the limit of its unit.
func (s *Supervisor) send(state string) {
	if s == nil {
		return
	}
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: s.socket, Net: "unixgram"})
	if err == nil {
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(sendLimit)) // systemd may read nothing
		_, err = c.Write([]byte(state))
	}
	if err != nil {
		s.log.Warn("systemd cannot be told the state of the process", "error", err)
	}
}
