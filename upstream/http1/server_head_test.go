package http1

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"
)

// heads are plain unless they begin with "!". "|" is CR LF.
var heads = []string{
	"POST /mcp HTTP/1.1|Host: a|Content-Length: 2|||{}",
	"POST /mcp HTTP/1.1|host: 127.0.0.1:8420|content-length: 0|connection: Keep-Alive|accept:application/json, text/event-stream|mcp-session-id: \t x y\t ||",
	"GET /mcp HTTP/1.1|Host: [::1]:80|Accept: text/event-stream|Accept: */*|X: ||",
	"DELETE /mcp/up_1/a.b~c HTTP/1.1|Host: a|x!#$%&'*+-.^_`|~9: v||",
	"POST /mcp HTTP/1.1|Host: a|Content-Length: 2||\n}POST /mcp",
	"POST /mcp HTTP/1.1|X: 1|Host: a|Y: 2|X: 3|Content-Length: 2|Z: 4|Y: 5|X: 6||{}",
	"!POST /mcp HTTP/1.1\nHost: a\nContent-Length: 2\n\n{}",
	"!POST /mcp HTTP/1.1|Host: a|Content-Length: 2|\n{}",
	"!POST /mcp HTTP/1.1|Host: a|Content-Length: 2\n|{}",
	"!POST /mcp HTTP/1.1|Host: a|Content-Length: 2|X\n{}",
	"!POST /mcp HTTP/1.1|Host: a\nContent-Length: 2||{}",
	"!PUT /mcp HTTP/1.1|Host: a|Content-Length: 2||{}",
	"!post /mcp HTTP/1.1|Host: a|Content-Length: 2||{}",
	"!POST /mcp HTTP/1.0|Host: a|Content-Length: 2||{}",
	"!POST /mcp  HTTP/1.1|Host: a|Content-Length: 2||{}",
	"!POST  /mcp HTTP/1.1|Host: a|Content-Length: 2||{}",
	"!POST http://a/mcp HTTP/1.1|Host: a|Content-Length: 2||{}",
	"!POST * HTTP/1.1|Host: a|Content-Length: 2||{}",
	"!POST //mcp HTTP/1.1|Host: a|Content-Length: 2||{}",
	"!POST /mcp?x=1 HTTP/1.1|Host: a|Content-Length: 2||{}",
	"!POST /m%63p HTTP/1.1|Host: a|Content-Length: 2||{}",
	"!POST /mcp HTTP/1.1|Content-Length: 2||{}",
	"!POST /mcp HTTP/1.1|Host: |Content-Length: 2||{}",
	"!POST /mcp HTTP/1.1|Host: a|Host: a|Content-Length: 2||{}",
	"!POST /mcp HTTP/1.1|Host: a/b|Content-Length: 2||{}",
	"!POST /mcp HTTP/1.1|Host: a||{}",
	"!POST /mcp HTTP/1.1|Host: a|Content-Length: 2|Content-Length: 2||{}",
	"!POST /mcp HTTP/1.1|Host: a|Content-Length: 02||{}",
	"!POST /mcp HTTP/1.1|Host: a|Content-Length: +2||{}",
	"!POST /mcp HTTP/1.1|Host: a|Content-Length: -2||{}",
	"!POST /mcp HTTP/1.1|Host: a|Content-Length: 2, 2||{}",
	"!POST /mcp HTTP/1.1|Host: a|Content-Length: 99999999999999999999||{}",
	"!POST /mcp HTTP/1.1|Host: a|Content-Length: ||{}",
	"!POST /mcp HTTP/1.1|Host: a|Transfer-Encoding: chunked||2|{}|0||",
	"!POST /mcp HTTP/1.1|Host: a|Content-Length: 2|Transfer-Encoding: chunked||{}",
	"!POST /mcp HTTP/1.1|Host: a|Content-Length: 2|Transfer-Encoding: identity||{}",
	"!POST /mcp HTTP/1.1|Host: a|Content-Length: 2|Expect: 100-continue||{}",
	"!POST /mcp HTTP/1.1|Host: a|Content-Length: 2|Connection: close||{}",
	"!POST /mcp HTTP/1.1|Host: a|Content-Length: 2|Connection: keep-alive, x||{}",
	"!POST /mcp HTTP/1.1|Host: a|Content-Length: 2|Upgrade: h2c||{}",
	"!POST /mcp HTTP/1.1|Host: a|Content-Length: 2|Trailer: x||{}",
	"!POST /mcp HTTP/1.1|Host: a|Content-Length: 2|Pragma: no-cache||{}",
	"!POST /mcp HTTP/1.1|Host: a|Content-Length : 2||{}",
	"!POST /mcp HTTP/1.1|Host: a|Content-Length: 2|X: a| b||{}",
	"!POST /mcp HTTP/1.1|Host: a|Content-Length: 2| X: a||{}",
	"!POST /mcp HTTP/1.1|Host: a|Content-Length: 2|X||{}",
	"!POST /mcp HTTP/1.1|Host: a|Content-Length: 2|: x||{}",
	"!POST /mcp HTTP/1.1|Host: a|Content-Length: 2|X: \x00||{}",
	"!POST /mcp HTTP/1.1|Host: a|Content-Length: 2|X: \x7f||{}",
	"!POST /mcp HTTP/1.1|Host: a|Content-Length: 2|X: é||{}",
	"!POST /mcp HTTP/1.1|Host: a|Content-Length: 2|X: a\rb||{}",
	"!GET /mcp HTTP/1.1|Host: a|Content-Length: 0||",
	"!GET /mcp HTTP/1.1|Host: a|Content-Length: 2||{}",
	"!|POST /mcp HTTP/1.1|Host: a|Content-Length: 2||{}",
	"!PRI * HTTP/2.0||SM||",
	"!\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
	"!POST /mcp HTTP/1.1|Host: a|" + strings.Repeat("X: y|", maxFields) + "Content-Length: 2||{}",
}

func head1(text string) (wire string, isPlain bool) {
	text, notPlain := strings.CutPrefix(text, "!")
	return strings.ReplaceAll(text, "|", "\r\n"), !notPlain
}

// TestWhatIsPlain: what is plain is understood, in all and byte by byte; about everything else
// nothing is said.
func TestWhatIsPlain(t *testing.T) {
	for _, text := range heads {
		wire, want := head1(text)
		if strings.Contains(text, "|~9") { // the one name that has a bar
			wire = strings.Replace(wire, "\r\n~9", "|~9", 1)
		}
		if got := understood(t, []byte(wire)); got != want {
			t.Errorf("%q is plain: %v, want %v", wire, got, want)
		}
		whole, is := find([]byte(wire), 0)
		for cut, looked := 1, 0; cut < len(wire); cut++ {
			n, now := find([]byte(wire[:cut]), looked)
			if now == notPlain && is != notPlain {
				t.Errorf("%q is foreign, and with what follows it is not", wire[:cut])
			}
			if now == plain {
				if n != whole {
					t.Errorf("the head of %q is %d long, in parts %d", wire, whole, n)
				}
				break
			}
			if now == notPlain {
				break
			}
			looked = cut
		}
	}
}

// FuzzHead: net/http takes whatever is plain, and understands the same.
func FuzzHead(f *testing.F) {
	for _, text := range heads {
		wire, _ := head1(text)
		f.Add([]byte(wire))
	}
	f.Fuzz(func(t *testing.T, wire []byte) { understood(t, wire) })
}

// understood reports whether a message is plain, and fails when net/http reads another request than
// we do, or ends it elsewhere.
func understood(t *testing.T, wire []byte) bool {
	t.Helper()
	n, is := find(wire, 0)
	if is != plain {
		return false
	}
	h, ok := parse(string(wire[:n]), true)
	if !ok {
		return false
	}
	r := bufio.NewReader(bytes.NewReader(wire))
	want, err := http.ReadRequest(r)
	if err != nil {
		t.Fatalf("net/http refuses %q: %v", wire, err)
	}
	if left := r.Buffered(); left != len(wire)-n {
		t.Errorf("%q: %d bytes follow the head, for net/http %d", wire, len(wire)-n, left)
	}
	if h.method != want.Method || h.path != want.URL.Path || h.path != want.RequestURI || h.host != want.Host || h.length != want.ContentLength {
		t.Errorf("%q: read %s %q of %q with %d bytes; net/http reads %s %q of %q with %d", wire, h.method, h.path, h.host, h.length, want.Method, want.RequestURI, want.Host, want.ContentLength)
	}
	if u := *want.URL; u.Path != h.path || u.RawQuery != "" || u.RawPath != "" || u.Host != "" || u.Scheme != "" || u.Fragment != "" || u.ForceQuery {
		t.Errorf("%q: net/http reads the URL %+v", wire, u)
	}
	if !reflect.DeepEqual(h.header, want.Header) {
		t.Errorf("%q: read the header %q, net/http %q", wire, h.header, want.Header)
	}
	if want.Close || len(want.TransferEncoding) > 0 || len(want.Trailer) > 0 || want.Proto != "HTTP/1.1" {
		t.Errorf("%q: for net/http it is of %s, closes: %v, coded: %q, has the trailer %q", wire, want.Proto, want.Close, want.TransferEncoding, want.Trailer)
	}
	if want.ContentLength == 0 && want.Body != http.NoBody {
		if b, err := io.ReadAll(want.Body); len(b) > 0 || err != nil {
			t.Errorf("%q: net/http reads the body %q, %v", wire, b, err)
		}
	}
	return true
}
