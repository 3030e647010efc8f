//go:build linux

package agents

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// traced returns the address that an agent connects to: that of Junction or, with a folder in
// JUNCTION_AGENTS_TRACE, that of a relay that writes all bytes into a file of the folder.
func traced(t *testing.T, junction string) string {
	t.Helper()
	dir := os.Getenv("JUNCTION_AGENTS_TRACE")
	if dir == "" {
		return junction
	}
	name := strings.NewReplacer("/", ".", " ", "_").Replace(t.Name()) + ".txt"
	file, err := os.Create(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	out := &trace{file: file, begin: time.Now()}
	go func() {
		for i := 1; ; i++ {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go out.relay(i, c, junction)
		}
	}()
	t.Cleanup(func() {
		l.Close()
		file.Close()
	})
	return l.Addr().String()
}

// trace is the file of a relay.
type trace struct {
	mu    sync.Mutex
	file  *os.File
	begin time.Time
}

func (o *trace) print(connection int, direction, text string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	fmt.Fprintf(o.file, "%7.3f #%d %s %s\n", time.Since(o.begin).Seconds(), connection, direction, strings.TrimSpace(text))
}

func (o *trace) relay(connection int, client net.Conn, to string) {
	defer client.Close()
	server, err := net.Dial("tcp", to)
	if err != nil {
		o.print(connection, "!", err.Error())
		return
	}
	defer server.Close()
	var both sync.WaitGroup
	pass := func(direction string, from, to net.Conn) {
		defer to.Close()
		buffer := make([]byte, 64<<10)
		for {
			n, err := from.Read(buffer)
			if n > 0 {
				o.print(connection, direction, string(buffer[:n]))
				if _, err := to.Write(buffer[:n]); err != nil {
					return
				}
			}
			if err != nil {
				if err != io.EOF {
					o.print(connection, direction, err.Error())
				}
				return
			}
		}
	}
	both.Go(func() { pass(">", client, server) })
	both.Go(func() { pass("<", server, client) })
	both.Wait()
}
