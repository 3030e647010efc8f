package oddities

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// This file serves a script over stdio: the command is this test binary, which connects to the test
// through a socket. So the script is decided in the test, and a second process continues it.

const relayRole = "oddity"

// written is one line of the relay: what the process writes, or that it ends.
type written struct {
	Out  []byte `json:"out,omitempty"`
	Err  string `json:"err,omitempty"`
	Ends bool   `json:"ends,omitempty"`
}

// relay is the process of a server: it passes lines between its standard streams and a socket.
func relay(args []string) error {
	c, err := net.Dial("unix", args[0])
	if err != nil {
		return err
	}
	go func() {
		_, _ = io.Copy(c, os.Stdin) // the end is the end
		_ = c.(*net.UnixConn).CloseWrite()
	}()
	for lines := json.NewDecoder(c); ; {
		var w written
		switch err := lines.Decode(&w); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		if _, err := io.WriteString(os.Stderr, w.Err); err != nil {
			return err
		}
		if _, err := os.Stdout.Write(w.Out); err != nil || w.Ends {
			return err
		}
	}
}

// mustServeStdio serves a row for one client, and returns the path of the socket for the relay.
func mustServeStdio(t testing.TB, r *row, kind string) (s *server, socket string) {
	t.Helper()
	s, socket = newServer(r, kind), filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { s.talk(c) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		serving.Wait()
	})
	return s, socket
}

// talk serves one process.
func (s *server) talk(c net.Conn) {
	defer c.Close()
	out, gone := &writer{Encoder: json.NewEncoder(c)}, make(chan struct{})
	var waiting sync.WaitGroup
	defer waiting.Wait()
	defer close(gone)
	lines := bufio.NewScanner(c)
	lines.Buffer(nil, 1<<20)
	if !say(out, s.answer(&ask{on: []string{"start"}, method: "start", values: map[string]string{}})) {
		return
	}
	for lines.Scan() {
		a, err := read(lines.Bytes())
		if err != nil {
			continue
		}
		a.values["wire"] = wireStdio
		if s.take(a) {
			continue
		}
		p := s.answer(a)
		if p.asks != "" {
			answer := p.message
			p.before, p.message = append(p.before, p.asks), ""
			waiting.Go(func() {
				if answer := s.replyTo(p.asks, answer, gone); answer != "" {
					out.write(written{Out: []byte(answer + "\n")})
				}
			})
		}
		if !say(out, p) {
			return
		}
	}
}

// writer writes lines of the relay.
type writer struct {
	*json.Encoder
	mu sync.Mutex
}

// write reports whether the process has got it.
func (o *writer) write(w written) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.Encode(w) == nil
}

// say writes an answer, and reports whether the process lives on.
func say(out *writer, p *reply) bool {
	text := ""
	for _, line := range p.before {
		text += line + "\n"
	}
	switch {
	case p.then == "cut":
		out.write(written{Err: p.stderr, Ends: true}) // the process may be gone
		return false
	case p.then == "hang":
	case p.body != nil:
		text += *p.body
	case p.message != "":
		text += p.message + "\n"
	}
	return out.write(written{Out: []byte(text), Err: p.stderr, Ends: p.then == "close"}) && p.then != "close"
}
