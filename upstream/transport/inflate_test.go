package transport

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"junction/upstream/jsonrpc"
)

// flusher is a compressor.
type flusher interface {
	io.WriteCloser
	Flush() error
}

// compressor returns the compressor of a Content-Encoding.
func compressor(coding string, w io.Writer) flusher {
	switch coding {
	case "deflate":
		return zlib.NewWriter(w)
	case "raw":
		f, _ := flate.NewWriter(w, 6)
		return f
	}
	return gzip.NewWriter(w)
}

func compressed(coding, text string) string {
	var b bytes.Buffer
	c := compressor(coding, &b)
	io.WriteString(c, text)
	c.Close()
	return b.String()
}

// eachHTTP runs a test over a plain connection, one with TLS, and HTTP/2.
func eachHTTP(t *testing.T, test func(t *testing.T, start func(*httptest.Server))) {
	for name, start := range map[string]func(*httptest.Server){
		"plain": (*httptest.Server).Start,
		"TLS":   (*httptest.Server).StartTLS,
		"HTTP/2": func(s *httptest.Server) {
			s.EnableHTTP2 = true
			s.StartTLS()
		},
	} {
		t.Run(name, func(t *testing.T) { test(t, start) })
	}
}

// TestCompressedAnswers: Junction asks for answers that are not compressed, and reads those that are. It
// names the codings that it does not read.
func TestCompressedAnswers(t *testing.T) {
	const unread = "and Junction reads gzip or deflate alone; turn the compression off at the server"
	for _, row := range []struct {
		name     string
		encoding []string
		status   int
		media    string
		body     string
		err      string
	}{
		{"gzip", []string{"gzip"}, 200, "application/json", compressed("gzip", answer7), ""},
		{"x-gzip", []string{"X-GZIP"}, 200, "application/json", compressed("gzip", answer7), ""},
		{"identity", []string{"identity"}, 200, "application/json", answer7, ""},
		{"the charset", []string{"utf-8"}, 200, "application/json", answer7, ""},
		{"no coding", []string{"none", ""}, 200, "text/event-stream", event("", answer7), ""},
		{"gzip and the charset", []string{"UTF-8, gzip"}, 200, "application/json", compressed("gzip", answer7), ""},
		{"gzip in two members", []string{"gzip"}, 200, "application/json", compressed("gzip", answer7[:9]) + compressed("gzip", answer7[9:]), ""},
		{"gzip and padding", []string{"gzip"}, 200, "application/json", compressed("gzip", answer7) + "\x00\x00\x00\x00", ""},
		{"gzip without its end", []string{"gzip"}, 200, "application/json", strings.TrimSuffix(compressed("gzip", answer7), compressed("gzip", answer7)[len(compressed("gzip", answer7))-8:]), ""},
		{"zlib", []string{"deflate"}, 200, "application/json", compressed("deflate", answer7), ""},
		{"raw deflate", []string{"deflate"}, 200, "application/json", compressed("raw", answer7), ""},
		{"events", []string{"gzip"}, 200, "text/event-stream", compressed("gzip", event("", answer7)), ""},
		{"an error", []string{"gzip"}, 400, "application/json", compressed("gzip", `{"jsonrpc":"2.0","id":7,"error":{"code":-5,"message":"m"}}`),
			"the server answered 400 Bad Request: m (code -5)"},
		{"a page", []string{"gzip"}, 502, "text/html", compressed("gzip", "<title>Bad luck</title>"), "the server answered 502 Bad Gateway: Bad luck"},
		{"nothing", []string{"gzip"}, 202, "", "", "the server answered 202 Accepted and no message"},

		{"brotli", []string{"br"}, 200, "application/json", answer7, `read the answer: invalid answer: the answer has Content-Encoding "br", ` + unread},
		{"events in zstd", []string{"zstd"}, 200, "text/event-stream", event("", answer7), `invalid answer: the answer has Content-Encoding "zstd", ` + unread},
		{"twice", []string{"gzip, gzip"}, 200, "application/json", compressed("gzip", compressed("gzip", answer7)), `read the answer: invalid answer: the answer has Content-Encoding "gzip, gzip", ` + unread},
		{"two fields", []string{"gzip", "deflate"}, 200, "application/json", answer7, `read the answer: invalid answer: the answer has Content-Encoding "gzip, deflate", ` + unread},
		{"an error in brotli", []string{"br"}, 403, "application/json", "x", "the server answered 403 Forbidden"},
		{"not compressed", []string{"gzip"}, 200, "application/json", answer7, "read the answer: invalid answer: the answer with Content-Encoding gzip cannot be inflated: gzip: invalid header"},
		{"damaged", []string{"gzip"}, 200, "application/json", strings.Replace(compressed("gzip", answer7), compressed("gzip", answer7)[12:20], "xxxxxxxx", 1), "read the answer: invalid answer: the answer with Content-Encoding gzip cannot be inflated: "},
		{"half", []string{"gzip"}, 200, "application/json", compressed("gzip", answer7)[:40], "invalid answer: not JSON"},
	} {
		t.Run(row.name, func(t *testing.T) {
			eachHTTP(t, func(t *testing.T, start func(*httptest.Server)) {
				asked := make(chan string, 9)
				srv := startRemote(t, func(w http.ResponseWriter, r *http.Request) {
					asked <- strings.Join(r.Header["Accept-Encoding"], ",")
					w.Header()["Content-Type"] = []string{row.media}
					w.Header()["Content-Encoding"] = row.encoding
					w.WriteHeader(row.status)
					io.WriteString(w, row.body)
				}, start)
				w := mustHTTP(t, HTTPOptions{URL: srv.URL, Pool: trustingPool(t)}, nil)
				m, err := w.Call(short(t), call("7", "tools/call"), nil)
				if got := <-asked; got != "identity" {
					t.Errorf("the request accepts the encoding %q", got)
				}
				if row.err != "" {
					if err == nil || !strings.HasPrefix(err.Error(), row.err) || errors.Is(err, ErrNotSent) {
						t.Errorf("got %v, want %s", err, row.err)
					}
				} else if err != nil || string(m.Append(nil)) != answer7 {
					t.Errorf("got %v, %v", m, err)
				}
			})
		})
	}
}

// TestCompressedEventsAreReadAtOnce: an event that the server has flushed arrives before more of the
// stream.
func TestCompressedEventsAreReadAtOnce(t *testing.T) {
	for _, coding := range []string{"gzip", "deflate", "raw"} {
		t.Run(coding, func(t *testing.T) {
			eachHTTP(t, func(t *testing.T, start func(*httptest.Server)) {
				read := make(chan struct{})
				srv := startRemote(t, func(w http.ResponseWriter, r *http.Request) {
					w.Header().Set("Content-Type", "text/event-stream")
					w.Header().Set("Content-Encoding", strings.Replace(coding, "raw", "deflate", 1))
					c := compressor(coding, w)
					for range 3 {
						io.WriteString(c, event("", `{"jsonrpc":"2.0","method":"notifications/message"}`))
						c.Flush()
						w.(http.Flusher).Flush()
						select {
						case <-read:
						case <-r.Context().Done():
							return
						}
					}
					io.WriteString(c, event("", answer7))
					c.Close()
				}, start)
				w := mustHTTP(t, HTTPOptions{URL: srv.URL, Pool: trustingPool(t)}, nil)
				m, err := w.Call(short(t), call("7", "tools/call"), func(*jsonrpc.Message) { read <- struct{}{} })
				if err != nil || string(m.Append(nil)) != answer7 {
					t.Errorf("got %v, %v", m, err)
				}
			})
		})
	}
}

// TestCompressedConnectionIsUsedAgain: the connection of a compressed answer takes the next request.
func TestCompressedConnectionIsUsedAgain(t *testing.T) {
	for _, coding := range []string{"gzip", "deflate", "raw"} {
		srv := newRemote(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Content-Encoding", strings.Replace(coding, "raw", "deflate", 1))
			c := compressor(coding, w)
			io.WriteString(c, answer7)
			c.Flush()
			w.(http.Flusher).Flush() // the end of the body comes later
			c.Close()
		})
		w := mustHTTP(t, HTTPOptions{URL: srv.URL}, nil)
		for range 5 {
			if _, err := w.Call(short(t), call("7", "tools/call"), nil); err != nil {
				t.Fatal(err)
			}
		}
		if n := srv.conns.Load(); n != 1 {
			t.Errorf("%s: %d connections for 5 requests", coding, n)
		}
	}
}

// bomb is an endless compressed stream of one text.
func bomb(w http.ResponseWriter, text string) {
	w.Header().Set("Content-Encoding", "gzip")
	c, _ := gzip.NewWriterLevel(w, 9)
	block := []byte(strings.Repeat(text, 1<<16/len(text)))
	for {
		if _, err := c.Write(block); err != nil {
			return
		}
	}
}

// TestCompressionBomb: bytes count as they are inflated, for the limit of a message and for the memory of
// the caller. A stream whose small events never end as a message is given up, too.
func TestCompressionBomb(t *testing.T) {
	for _, row := range []struct{ name, media, text, err string }{
		{"a document", "application/json", " ", "invalid answer: the answer is larger than limits.message of 1 MiB; raise limits.message, or request less"},
		{"an event", "text/event-stream", "data: " + strings.Repeat("x", 1<<10), "invalid answer: the answer is larger than limits.message of 1 MiB"},
		{"a stream of comments", "text/event-stream", ":\n\n", "invalid answer: the compressed answer becomes more than 200 times as large"},
		{"a stream of empty events", "text/event-stream", "event: x\n\n", "invalid answer: the compressed answer becomes more than 200 times as large"},
		{"a page", "text/html", " ", "the server answered 200 OK with text/html and no message"},
	} {
		t.Run(row.name, func(t *testing.T) {
			srv := newRemote(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", row.media)
				bomb(w, row.text)
			})
			w := mustHTTP(t, HTTPOptions{URL: srv.URL, MessageLimit: 1 << 20}, nil)
			if _, err := w.Call(short(t), call("7", "tools/call"), nil); err == nil || !strings.HasPrefix(err.Error(), row.err) {
				t.Errorf("got %v, want %s", err, row.err)
			}
		})
	}
	t.Run("memory", func(t *testing.T) {
		srv := newRemote(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			bomb(w, " ")
		})
		w := mustHTTP(t, HTTPOptions{URL: srv.URL}, nil)
		req := call("7", "tools/call")
		req.Memory = &thrifty{left: 3 << 20}
		if _, err := w.Call(short(t), req, nil); !errors.As(err, new(*MemoryError)) {
			t.Errorf("got %v, want a MemoryError", err)
		}
	})
}

// TestEndlessCompressedNothing: compressed data that never become a byte are given up. Otherwise the call
// would read and inflate them until its timeout.
func TestEndlessCompressedNothing(t *testing.T) {
	for _, row := range []struct{ name, coding, head, endless string }{
		{"empty members", "gzip", "", compressed("gzip", "")},
		{"empty blocks", "gzip", compressed("gzip", "")[:10], "\x00\x00\x00\xff\xff"},
		{"empty blocks of zlib", "deflate", "\x78\x9c", "\x00\x00\x00\xff\xff"},
	} {
		for _, media := range []string{"application/json", "text/event-stream"} {
			t.Run(row.name+" as "+media, func(t *testing.T) {
				srv := newRemote(t, func(w http.ResponseWriter, r *http.Request) {
					w.Header().Set("Content-Type", media)
					w.Header().Set("Content-Encoding", row.coding)
					io.WriteString(w, row.head)
					block := strings.Repeat(row.endless, 1<<10)
					for sent := 0; sent < 16*mostEmpty; sent += len(block) {
						if _, err := io.WriteString(w, block); err != nil {
							return
						}
					}
				})
				w := mustHTTP(t, HTTPOptions{URL: srv.URL}, nil)
				const want = "the compressed answer has 1 MiB without content"
				if _, err := w.Call(short(t), call("7", "tools/call"), nil); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), want) {
					t.Errorf("got %v, want %s", err, want)
				}
			})
		}
	}
}

// TestCompressedLongStream: a stream of normal text may become much longer than one message.
func TestCompressedLongStream(t *testing.T) {
	srv := newRemote(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		w.Header().Set("Content-Encoding", "gzip")
		c := gzip.NewWriter(w)
		for range 2000 {
			io.WriteString(c, event("", `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"working"}}`))
			c.Flush()
		}
		io.WriteString(c, event("", answer7))
		c.Close()
	})
	w := mustHTTP(t, HTTPOptions{URL: srv.URL, MessageLimit: 4 << 10}, nil)
	heard := 0
	if _, err := w.Call(short(t), call("7", "tools/call"), func(*jsonrpc.Message) { heard++ }); err != nil || heard != 2000 {
		t.Errorf("got %d messages, %v", heard, err)
	}
}
