package http1

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// responses are answers of servers, good and bad; FuzzResponse begins with them. taken is whether
// they are taken, and whole whether another may follow them on the same connection.
var responses = []struct {
	text         string
	taken, whole bool
}{
	{"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Type: application/json\r\n\r\n{}", true, true},
	{"HTTP/1.1 200 OK\nContent-Length: 2\n\n{}", true, true},
	{"HTTP/1.1 200\r\ncontent-length:2\r\nmcp-session-id:\t a b \t\r\n\r\n{}", true, true},
	{"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\nX: 1\r\nx: 2\r\n\r\n{}", true, true},
	{"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n", true, true},
	{"HTTP/1.1 204 No Content\r\n\r\n", true, true},
	{"HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n", true, true},
	{"HTTP/1.1 204 No Content\r\nContent-Length: 2\r\n\r\n{}", true, false},
	{"HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", true, false},
	{"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\n\r\n", true, true}, // and the transport reads on
	{"HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n", true, false},
	{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", true, true},
	{"HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\nTrailer: X\r\n\r\n2;a=b\r\n{}\r\n0\r\nX: 1\r\n\r\n", true, true},
	{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n0\r\n\r\n", true, false},
	{"HTTP/1.1 200 OK\r\nConnection: a, CLOSE\r\nContent-Length: 2\r\n\r\n{}", true, false},
	{"HTTP/1.1 200 OK\r\n\r\n{}", true, false},
	{"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n{}", true, false},
	{"HTTP/1.0 200 OK\r\nContent-Length: 2\r\nConnection: keep-alive\r\n\r\n{}", true, true},
	{"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n", true, true},
	// and the transport sees what is left
	{"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}HTTP/1.1 200 OK\r\n\r\n", true, true},

	{"HTTP/1.1 100 Continue\r\nContent-Length: 2\r\n\r\n{}", false, false},
	{"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", false, false},
	{"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}", false, false},
	{"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 02\r\n\r\n{}", false, false},
	{"HTTP/1.1 200 OK\r\nContent-Length: 2, 2\r\n\r\n{}", false, false},
	{"HTTP/1.1 200 OK\r\nContent-Length: +2\r\n\r\n{}", false, false},
	{"HTTP/1.1 200 OK\r\nContent-Length: 0x2\r\n\r\n{}", false, false},
	{"HTTP/1.1 200 OK\r\nContent-Length: \r\n\r\n{}", false, false},
	{"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n{}", false, false},
	{"HTTP/1.1 200 OK\r\nContent-Length: 9223372036854775808\r\n\r\n{}", false, false},
	{"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", false, false},
	{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n", false, false},
	{"HTTP/1.1 200 OK\r\nTransfer-Encoding: identity\r\n\r\n{}", false, false},
	{"HTTP/1.1 200 OK\r\nTransfer-Encoding: \vchunked\r\n\r\n0\r\n\r\n", false, false},
	{"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", false, false},
	{"HTTP/1.1 200 OK\r\nX: a\r\n b\r\n\r\n", false, false},
	{"HTTP/1.1 200 OK\r\n X: a\r\n\r\n", false, false},
	{"HTTP/1.1 200 OK\r\nX : a\r\n\r\n", false, false},
	{"HTTP/1.1 200 OK\r\nX\r\n\r\n", false, false},
	{"HTTP/1.1 200 OK\r\n: a\r\n\r\n", false, false},
	{"HTTP/1.1 200 OK\r\nX: a\x00b\r\n\r\n", false, false},
	{"HTTP/1.1 200 OK\r\nX: a\rY: b\r\n\r\n", false, false},
	{"HTTP/1.1 200 OK\r\nÄ: a\r\n\r\n", false, false},
	{"HTTP/2.0 200 OK\r\n\r\n", false, false},
	{"HTTP/1.1 20 OK\r\n\r\n", false, false},
	{"HTTP/1.1 2000 OK\r\n\r\n", false, false},
	{"HTTP/1.1 -20 OK\r\n\r\n", false, false},
	{"HTTP/1.1 099 OK\r\n\r\n", false, false},
	{"HTTP/1.1  200 OK\r\n\r\n", false, false},
	{"\r\nHTTP/1.1 200 OK\r\n\r\n", false, false},
	{"ICY 200 OK\r\n\r\n", false, false},
	{"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n", false, false},
	{"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n{}", false, false},
	{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n", false, false},
	{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n", false, false},
	{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n X: 1\r\n\r\n", false, false},
	{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\n", false, false},
	{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n{}\r\n0\r\n\r\n", false, false},
	{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n{}\r\n0\r\n\r\n", false, false},
}

// readResponse reads a response and its body, as the transport does.
func readResponse(r *bufio.Reader) (*http.Response, []byte, error) {
	var scratch []byte
	resp := new(http.Response)
	fields, err := readResponseHead(r, &scratch, resp, nil)
	if err != nil {
		return nil, nil, err
	}
	resp.Header = headerOf(fields)
	c := contentOf(resp, r)
	body, err := io.ReadAll(&c)
	return resp, body, err
}

func TestResponse(t *testing.T) {
	for _, test := range responses {
		r := bufio.NewReader(strings.NewReader(test.text))
		resp, body, err := readResponse(r)
		if (err == nil) != test.taken {
			t.Errorf("%q: %v", test.text, err)
		} else if err == nil && resp.Close == test.whole {
			t.Errorf("%q: another response may follow: %v, want %v", test.text, !resp.Close, test.whole)
		}
		if _, ends := strings.CutSuffix(test.text, "{}"); err == nil && ends && resp.StatusCode == 200 && string(body) != "{}" {
			t.Errorf("%q has the body %q", test.text, body)
		}
	}
	many := "HTTP/1.1 200 OK\r\n" + strings.Repeat("X: "+strings.Repeat("x", 1000)+"\r\n", 70) + "\r\n"
	if _, _, err := readResponse(bufio.NewReader(strings.NewReader(many))); err != errHeaderTooLarge {
		t.Errorf("many fields: %v, want %v", err, errHeaderTooLarge)
	}
	long := "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 60000) + "\r\nContent-Length: 0\r\n\r\n"
	if resp, _, err := readResponse(bufio.NewReaderSize(strings.NewReader(long), 16)); err != nil || len(resp.Header.Get("X")) != 60000 {
		t.Errorf("a long field: %v", err)
	}
	trailer := "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n" + strings.Repeat("X: 1\r\n", 20000) + "\r\n"
	if _, _, err := readResponse(bufio.NewReader(strings.NewReader(trailer))); err != errHeaderTooLarge {
		t.Errorf("a large trailer: %v, want %v", err, errHeaderTooLarge)
	}
}

// FuzzResponse holds what is taken against net/http: the same status, fields and body, the same
// bytes left for the next response, and no connection used again that net/http would close. What is
// refused must be refused by net/http, too, or for one of our reasons.
func FuzzResponse(f *testing.F) {
	for _, r := range responses {
		f.Add([]byte(r.text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		r, oracle := bufio.NewReader(bytes.NewReader(text)), bufio.NewReader(bytes.NewReader(text))
		resp, body, err := readResponse(r)
		theirs, theirErr := http.ReadResponse(oracle, &http.Request{Method: http.MethodPost})
		var theirBody []byte
		if theirErr == nil {
			theirBody, theirErr = io.ReadAll(theirs.Body)
		}
		if err != nil {
			if theirErr == nil && !errors.Is(err, errNotHTTP) {
				t.Fatalf("%q: %v; net/http takes it", text, err)
			}
			return
		}
		if theirErr != nil {
			if len(resp.Header["Trailer"]) > 0 {
				return // which we do not read
			}
			t.Fatalf("%q is taken; net/http says %v", text, theirErr)
		}
		if resp.StatusCode != theirs.StatusCode || !bytes.Equal(body, theirBody) || !resp.Close && theirs.Close {
			t.Fatalf("%q: status %d, close %v, body %q; net/http has %d, %v, %q", text, resp.StatusCode, resp.Close, body, theirs.StatusCode, theirs.Close, theirBody)
		}
		if resp.ContentLength != theirs.ContentLength {
			t.Fatalf("%q: length %d; net/http has %d", text, resp.ContentLength, theirs.ContentLength)
		}
		// which net/http takes out, or leaves in once
		for _, name := range []string{"Content-Length", "Transfer-Encoding", "Trailer", "Connection"} {
			delete(resp.Header, name)
			delete(theirs.Header, name)
		}
		if !maps.EqualFunc(resp.Header, theirs.Header, slices.Equal) {
			t.Fatalf("%q: header %q; net/http has %q", text, resp.Header, theirs.Header)
		}
		if resp.Close {
			return
		}
		left, _ := io.ReadAll(r)
		theirLeft, _ := io.ReadAll(oracle)
		if !bytes.Equal(left, theirLeft) {
			t.Fatalf("%q: %q is left; net/http leaves %q", text, left, theirLeft)
		}
	})
}

// BenchmarkResponse is the head of a common answer.
func BenchmarkResponse(b *testing.B) {
	const text = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nMcp-Session-Id: 0123456789abcdef\r\nDate: Sat, 21 Nov 2026 04:08:53 GMT\r\nContent-Length: 2\r\n\r\n{}"
	source := strings.NewReader(text)
	r := bufio.NewReader(source)
	b.Run("ours", func(b *testing.B) {
		var scratch []byte
		resp := new(http.Response)
		var few [8]Field
		b.ReportAllocs()
		for b.Loop() {
			source.Reset(text)
			r.Reset(source)
			*resp = http.Response{}
			if _, err := readResponseHead(r, &scratch, resp, few[:0]); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("net/http", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			source.Reset(text)
			r.Reset(source)
			if _, err := http.ReadResponse(r, nil); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// TestRequestHeader: fields of a request replace those of the wire, the last one counts, and none
// can bring another.
func TestRequestHeader(t *testing.T) {
	r, _ := http.NewRequest(http.MethodPost, "http://h:1/p?q=1", strings.NewReader("{}"))
	r.Header = http.Header{"User-Agent": {"junction"}, "Mcp-Method": {"configured"}}
	head := func(more ...Field) (*http.Request, error) {
		w, err := new(clientConn).header(r, more)
		if err != nil {
			return nil, err
		}
		return http.ReadRequest(bufio.NewReader(io.MultiReader(bytes.NewReader(w), strings.NewReader("{}"))))
	}
	got, err := head(Field{"mcp-method", "tools/call"}, Field{"Mcp-Param-a", "1"}, Field{"Mcp-Name", "x"}, Field{"Mcp-Param-A", "2"})
	if err != nil {
		t.Fatal(err)
	}
	want := http.Header{"User-Agent": {"junction"}, "Mcp-Method": {"tools/call"}, "Mcp-Name": {"x"}, "Mcp-Param-A": {"2"}, "Content-Length": {"2"}}
	if !maps.EqualFunc(got.Header, want, slices.Equal) || got.Host != "h:1" || got.RequestURI != "/p?q=1" {
		t.Errorf("%s %s has the header %q, want %q", got.Host, got.RequestURI, got.Header, want)
	}
	for _, bad := range []Field{{"A", "b\r\nC: d"}, {"A", "b\nC: d"}, {"A", "\x00"}, {"A\r\nB", "c"}, {"A B", "c"}, {"A:", "c"}, {"", "c"}, {"Ä", "c"}} {
		if got, err := head(bad); err == nil {
			t.Errorf("%q was sent: %q", bad, got.Header)
		}
	}
}
