package safety

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"

	"junction/integration/harness"
	"junction/upstream"
	"junction/upstream/client"
	"junction/upstream/upstreamtest"
)

// answerTwice starts a proxy before an HTTP server, and returns its URL. The proxy writes each answer to
// a request with the word a second time, before the next answer on the connection.
func answerTwice(t *testing.T, server, word string) string {
	t.Helper()
	to, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	transport := &http.Transport{}
	var serving sync.WaitGroup
	serve := func(c net.Conn) {
		defer c.Close()
		defer context.AfterFunc(ctx, func() { c.Close() })()
		var surplus []byte
		for in := bufio.NewReader(c); ; {
			r, err := http.ReadRequest(in)
			if err != nil {
				return
			}
			body, _ := io.ReadAll(r.Body)
			r.URL.Scheme, r.URL.Host, r.RequestURI, r.Body = to.Scheme, to.Host, "", io.NopCloser(bytes.NewReader(body))
			resp, err := transport.RoundTrip(r.WithContext(ctx))
			if err != nil {
				return
			}
			c.Write(surplus)
			surplus = nil
			var text bytes.Buffer
			if bytes.Contains(body, []byte(word)) {
				resp.Write(&text)
				surplus = text.Bytes()
				_, err = c.Write(surplus)
			} else {
				err = resp.Write(c)
			}
			resp.Body.Close()
			if err != nil {
				return
			}
		}
	}
	serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { serve(c) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		cancel()
		serving.Wait()
		transport.CloseIdleConnections()
	})
	return "http://" + l.Addr().String() + to.Path
}

// TestSurplusAnswersReachNoOtherUser: a server writes each answer to one user twice. No other user reads
// one of them. If the users do not share a session of the server, the other one has no error either.
func TestSurplusAnswersReachNoOtherUser(t *testing.T) {
	harness.Waits(t)
	guard, keys := harness.Keyring(t, "ann", "bob")
	for _, clientEra := range harness.Eras {
		for _, up := range harness.Eras {
			harness.RunPair(t, clientEra, up, "http", func(t *testing.T, p harness.Pair) {
				s := p.Serve(t, upstreamtest.Script{JSONAnswers: true})
				s.Config.Separate = true
				s.Config.URL = answerTwice(t, s.Config.URL, "for ann")
				j := harness.Start(t, p, harness.Setup{Upstreams: map[string]upstream.Config{"up": s.Config}, Guard: guard})
				j.Offers(t, "up")
				ann, bob := j.As(t, keys["ann"]), j.As(t, keys["bob"])
				call := func(c *harness.Talker, who string) (failed bool) {
					m := c.Call(t, "up__echo", `{"text":"for `+who+`"}`)
					if m.Error == nil && !strings.Contains(string(m.Result), "for "+who) {
						t.Errorf("%s is answered %s", who, m.Append(nil))
					}
					return m.Error != nil
				}
				errors := 0
				for range 20 {
					call(ann, "ann")
					if call(bob, "bob") {
						errors++
					}
				}
				if errors > 0 && up == client.EraLegacy {
					t.Errorf("the other user had %d errors", errors)
				}
			})
		}
	}
}
