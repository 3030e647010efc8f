//go:build linux

package faults

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"junction/integration/harness"
	"junction/integration/load"
	"junction/upstream/upstreamtest"
)

// names is a DNS server that answers 127.0.0.1 for every name.
type names struct {
	socket net.PacketConn
	fault  atomic.Int32 // noFault, silent or failing
}

const (
	noFault = iota
	silent  // it does not answer
	failing // it answers SERVFAIL
)

// mustNames starts a server on port 53 of an address of this machine.
func mustNames(t *testing.T, address string) *names {
	t.Helper()
	socket, err := net.ListenPacket("udp", address+":53")
	if err != nil {
		t.Fatal(err)
	}
	n := &names{socket: socket}
	served := make(chan struct{})
	go func() {
		defer close(served)
		query := make([]byte, 1500)
		for {
			size, from, err := socket.ReadFrom(query)
			if err != nil {
				return
			}
			if answer := n.answer(query[:size]); answer != nil {
				socket.WriteTo(answer, from)
			}
		}
	}()
	t.Cleanup(func() { socket.Close(); <-served })
	return n
}

// answer returns the answer to a query with one question (RFC 1035, section 4).
func (n *names) answer(query []byte) []byte {
	end := 12
	for end < len(query) && query[end] != 0 {
		end += int(query[end]) + 1
	}
	if end += 5; end > len(query) || n.fault.Load() == silent {
		return nil
	}
	answer := append([]byte{}, query[:end]...)
	answer[2], answer[3] = 0x81, 0x80
	copy(answer[6:12], make([]byte, 6)) // no records but the question
	switch kind := query[end-3]; {
	case n.fault.Load() == failing:
		answer[3] |= 2
	case kind == 1: // an address of IPv4, for no time
		answer[7] = 1
		answer = append(answer, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4, 127, 0, 0, 1)
	}
	return answer
}

// TestFaultNames breaks DNS. Open connections continue. Connections that end are opened again when
// DNS works again.
func TestFaultNames(t *testing.T) {
	harness.WithoutShort(t)
	for i, test := range []struct {
		name  string
		fault int32
	}{{"does not answer", silent}, {"fails", failing}} {
		t.Run(test.name, func(t *testing.T) {
			address := fmt.Sprintf("127.0.53.%d", i+1)
			dns := mustNames(t, address)
			resolv := filepath.Join(t.TempDir(), "resolv.conf")
			text := "nameserver " + address + "\noptions timeout:1 attempts:1\n"
			if err := os.WriteFile(resolv, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			kept, ended := mustNamed(t, "kept.test"), mustNamed(t, "ended.test")
			p := harness.NewProgram(t)
			p.MustConfigure(t, "upstreams: { kept: { url: \""+kept.url+"\" }, ended: { url: \""+ended.url+"\" } }\n")
			cmd := exec.Command("unshare", "--mount", "sh", "-c", "mount --bind "+resolv+` /etc/resolv.conf && exec "$@"`, "sh",
				harness.JunctionBinary(t), "--config", p.File())
			cmd.Env = append(os.Environ(), "GODEBUG=netdns=go", "NO_PROXY=*")
			p.MustStart(t, cmd)
			p.MustReady(t, harness.Patience)
			list := callers(t, p, 4)
			kept.load = load.Start(t, 2, func(ctx context.Context, i, n int) error {
				return load.Call(ctx, list[i], "kept__echo", `{"a":1}`)
			})
			ended.load = load.Start(t, 2, func(ctx context.Context, i, n int) error {
				return load.Call(ctx, list[2+i], "ended__echo", `{"a":1}`)
			})
			kept.load.AwaitCalls(50)
			ended.load.AwaitCalls(50)
			dns.fault.Store(test.fault)
			ended.cut()
			ended.load.AwaitFailures(3)
			kept.load.AwaitCalls(50)
			dns.fault.Store(noFault)
			over := time.Now()
			ended.load.AwaitCalls(50)
			ended.load.Stop()
			mustLoseNothing(t, kept.load)
			report(t, "DNS "+test.name+", and connections end", ended.load.Figures(over))
		})
	}
}

// named is a server behind a name, whose connections can be cut.
type named struct {
	url  string
	cut  func()
	load *load.Load
}

func mustNamed(t *testing.T, name string) *named {
	t.Helper()
	config, _ := harness.MustScripted(t, "http", upstreamtest.Script{})
	u, err := url.Parse(config.URL)
	if err != nil {
		t.Fatal(err)
	}
	r := load.MustRelay(t, u.Host)
	_, port, err := net.SplitHostPort(r.Address)
	if err != nil {
		t.Fatal(err)
	}
	u.Host = net.JoinHostPort(name, port)
	return &named{url: u.String(), cut: r.Cut}
}
