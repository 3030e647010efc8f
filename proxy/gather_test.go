package proxy

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"junction/upstream"
)

// TestGatherWritesAnswersWhole: answers of all sizes arrive as they are, one after the other on one connection.
func TestGatherWritesAnswersWhole(t *testing.T) {
	for _, size := range []int{1, 1000, 1950, 2048, 3000, 3900, 4000, 4096, 4200, 8100, 10_000, 60_000, 65_400, 65_536, 70_000, 1 << 20} {
		s := mustServer(t, cannedBackend(t, 1, size))
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		server := &http.Server{Handler: s}
		go server.Serve(Gather(server, l))
		defer server.Close()
		id, _ := s.sessions.open("2025-11-25", "test", "local", upstream.Profile{})
		client := &http.Client{Transport: &http.Transport{MaxConnsPerHost: 1}}
		for i := range 3 {
			body := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"up__tool0","arguments":{}}}`, i)
			r, _ := http.NewRequest("POST", "http://"+l.Addr().String()+"/mcp", strings.NewReader(body))
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("Mcp-Session-Id", id)
			resp, err := client.Do(r)
			if err != nil {
				t.Fatalf("%d bytes: %v", size, err)
			}
			got, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if want := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":"%s"}]}}`, i, strings.Repeat("x", size)); err != nil || string(got) != want {
				t.Fatalf("%d bytes: %d arrived, %v; want %d", size, len(got), err, len(want))
			}
			if resp.ContentLength != int64(len(got)) {
				t.Errorf("%d bytes have the length %d", len(got), resp.ContentLength)
			}
		}
		client.CloseIdleConnections()
	}
}

// TestGatherHoldsBackOneWrite: what is held back is neither lost nor late.
func TestGatherHoldsBackOneWrite(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	theirs, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	accepted, err := gatherListener{l, new(buffers)}.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer accepted.Close()
	c := accepted.(*gathering)
	var want []byte
	write := func(n int, held bool) {
		t.Helper()
		b := bytes.Repeat([]byte{byte('a' + len(want)%26)}, n)
		want = append(want, b...)
		if k, err := c.Write(b); k != n || err != nil {
			t.Errorf("Write of %d bytes = %d, %v", n, k, err)
		}
		clear(b) // as a buffer that is used again
		if held != (c.held != nil) {
			t.Errorf("after a write of %d bytes something is held back: %v, want %v", n, !held, held)
		}
	}
	write(100, false)
	c.together(&nowhere{header: http.Header{}}, func() {
		write(gatherSize, true)
		write(6000, false)
		write(1, true)
	})
	if c.held != nil || c.on {
		t.Error("something is held back when the answer is written")
	}
	write(10, false)
	got := make([]byte, len(want))
	if _, err := io.ReadFull(theirs, got); err != nil || !bytes.Equal(got, want) {
		t.Errorf("other bytes arrived than were written: %v", err)
	}
}
