package deploy

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"junction/integration/harness"
	"junction/upstream/client"
)

// This file attacks the listener for TLS from one address, which has no key.

// calls measures how long small calls of a client with a key take until stop; at least 20 are made.
func calls(t *testing.T, c *harness.Client, stop func() bool) (middle, longest time.Duration) {
	t.Helper()
	var took []time.Duration
	for len(took) < 20 || !stop() {
		begin := time.Now()
		harness.WantEcho(t, c.Tool(t, "up__echo", `{}`))
		if took = append(took, time.Since(begin)); t.Failed() {
			break
		}
	}
	slices.Sort(took)
	return took[len(took)/2], took[len(took)-1]
}

// TestOperateTLSUnderAttack: a client with a key is served, over https and over the plain address, while strangers
// hold thousands of connections whose handshake does not go on, and while they make as many handshakes as they can.
// The connections are closed at limits.read_timeout.
func TestOperateTLSUnderAttack(t *testing.T) {
	harness.Long(t)
	harness.WithoutShort(t)
	harness.Alone(t, "it uses thousands of descriptors, and all processors")
	m := newTeam(t, "")
	text, err := os.ReadFile(m.File())
	if err != nil {
		t.Fatal(err)
	}
	m.MustWrite(t, string(text)+"limits: { read_timeout: 20s }\n")
	m.MustServe(t)
	m.MustReady(t, harness.Patience)
	address := m.secure(t)
	over := map[string]*harness.Client{
		"https": (&stack{public: "https://" + host, key: m.key, http: m.http(t, m.roots())}).client(t, client.EraModern),
		"plain": (&stack{public: m.Origin(), key: m.key, http: http.DefaultClient}).client(t, client.EraModern),
	}
	begun := func() bool { return true }
	for name, c := range over {
		middle, longest := calls(t, c, begun)
		t.Logf("at rest, %s: a call takes %v, at most %v", name, middle, longest)
	}
	before := m.Peak(t)

	var held []net.Conn
	for range 10_000 {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Logf("after %d connections: %v", len(held), err)
			break
		}
		// the header of a record of 1000 bytes, and the beginning of a ClientHello
		c.Write(append([]byte{22, 3, 1, 3, 232, 1, 0, 3, 228, 3, 3}, make([]byte, 500)...))
		held = append(held, c)
	}
	for name, c := range over {
		middle, longest := calls(t, c, begun)
		t.Logf("beside %d slow handshakes, %s: a call takes %v, at most %v", len(held), name, middle, longest)
		if longest > 5*time.Second {
			t.Errorf("%s: a call took %v", name, longest)
		}
	}
	fresh, err := tls.Dial("tcp", address, &tls.Config{RootCAs: m.roots(), ServerName: host})
	if err != nil {
		t.Errorf("a handshake beside slow ones: %v", err)
	} else {
		fresh.Close()
	}
	if grown := m.Peak(t) - before; grown > 400<<20 {
		t.Errorf("%d slow handshakes take %d MiB", len(held), grown>>20)
	} else {
		t.Logf("%d slow handshakes take %d MiB", len(held), grown>>20)
	}
	for _, c := range held {
		c.SetReadDeadline(time.Now().Add(harness.Patience))
		if _, err := c.Read(make([]byte, 1)); err == nil {
			t.Fatal("a slow handshake is answered")
		} else if timeout, is := errors.AsType[net.Error](err); is && timeout.Timeout() {
			t.Fatal("a slow handshake is not ended")
		}
		c.Close()
	}

	var flood sync.WaitGroup
	var stop atomic.Bool
	var made atomic.Int64
	for range 32 {
		flood.Go(func() {
			for !stop.Load() {
				c, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true, ServerName: host})
				if err == nil {
					made.Add(1)
					c.Close()
				}
			}
		})
	}
	end := time.Now().Add(3 * time.Second)
	for name, c := range over {
		middle, longest := calls(t, c, func() bool { return time.Now().After(end) })
		t.Logf("beside handshakes of 32 clients, %s: a call takes %v, at most %v", name, middle, longest)
		if middle > time.Second {
			t.Errorf("%s: a call takes %v", name, middle)
		}
		end = time.Now().Add(3 * time.Second)
	}
	stop.Store(true)
	flood.Wait()
	t.Logf("%d handshakes were made", made.Load())
}

// TestOperateTLSOffersNothingElse: a client cannot negotiate again, cannot send data before the handshake, and gets
// with a wrong name, or with none, the one certificate and then 403.
func TestOperateTLSOffersNothingElse(t *testing.T) {
	harness.Waits(t)
	openssl := program(t, "openssl")
	m := newTeam(t, "")
	m.MustServe(t)
	address := m.secure(t)
	run := func(in string, args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(harness.Patient(t), openssl, append([]string{"s_client", "-connect", address, "-servername", host}, args...)...)
		keep, err := cmd.StdinPipe() // stays open until the server has ended the connection
		if err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		io.WriteString(keep, in)
		cmd.Wait() // the exit code differs among versions
		return out.String()
	}
	// R at the beginning of a line negotiates again
	if out := run("R\n", "-tls1_2"); !strings.Contains(out, "RENEGOTIATING") || !strings.Contains(out, "error") {
		t.Errorf("a second negotiation was not refused:\n%s", out)
	}
	session, early := filepath.Join(t.TempDir(), "session"), filepath.Join(t.TempDir(), "early")
	request := "GET /mcp HTTP/1.1\r\nHost: " + host + "\r\nConnection: close\r\n\r\n"
	if err := os.WriteFile(early, []byte(request), 0o600); err != nil {
		t.Fatal(err)
	}
	run(request, "-tls1_3", "-sess_out", session, "-ign_eof")
	out := run(request, "-tls1_3", "-sess_in", session, "-early_data", early, "-ign_eof")
	if strings.Contains(out, "Early data was accepted") || !strings.Contains(out, "Reused, TLSv1.3") {
		t.Errorf("with early data:\n%s", out)
	}
	for _, name := range []string{"other.example.com", ""} {
		c, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true, ServerName: name})
		if err != nil {
			t.Errorf("the name %q: %v", name, err)
			continue
		}
		if !slices.Contains(c.ConnectionState().PeerCertificates[0].DNSNames, host) {
			t.Errorf("the name %q gets another certificate", name)
		}
		fmt.Fprintf(c, "POST /mcp HTTP/1.1\r\nHost: other.example.com\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
		if answer, err := io.ReadAll(c); err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 403 ") {
			t.Errorf("the name %q: %.200s, %v", name, answer, err)
		}
		c.Close()
	}
}
