package bench

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"

	"junction/integration/harness"
)

// rawClient is an MCP client on one kept connection that does nothing but move bytes: it must not
// be what is measured. It reads what HTTP/1.1 servers send, by length or in chunks, as JSON or as
// an event stream. It is used by one goroutine.
type rawClient struct {
	addr    string
	secure  bool // speaks TLS
	era     string
	token   string // "" where none is wanted
	session string // of the legacy era, from initialize on

	conn net.Conn // nil before the first request, and after the server announced that it closes
	buf  []byte
	r, w int // buf[r:w] is read from conn and not yet taken

	keep int    // how many bytes of a body go into body
	body []byte // the beginning of the last response's body
	size int    // of the whole of it
}

func newRawClient(addr, era, token string) *rawClient {
	addr, secure := strings.CutPrefix(addr, secureAddress)
	return &rawClient{addr: addr, secure: secure, era: era, token: token, buf: make([]byte, 128<<10), keep: 4 << 10}
}

// Close closes the connection.
func (c *rawClient) Close() {
	if c.conn != nil {
		c.conn.Close()
		c.conn = nil
	}
}

// connect dials, where there is no connection yet.
func (c *rawClient) connect() error {
	if c.conn != nil {
		return nil
	}
	conn, err := net.DialTimeout("tcp", c.addr, 5*time.Second)
	if err != nil {
		return err
	}
	if c.secure {
		conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true}) // it is the one of this benchmark
	}
	c.conn, c.r, c.w = conn, 0, 0
	return nil
}

// start does what a client of the era does first: a handshake, or nothing.
func (c *rawClient) start() error {
	if c.era == harness.ModernEra {
		return nil
	}
	c.session = ""
	status, err := c.do(c.post("initialize", "",
		`"id":0,"method":"initialize","params":{"protocolVersion":"`+harness.LegacyVersion+
			`","capabilities":{},"clientInfo":{"name":"bench","version":"1"}}`))
	if err == nil && (status != 200 || !bytes.Contains(c.body, []byte(`"result"`))) {
		err = fmt.Errorf("status %d, %.300s", status, c.body)
	}
	if err != nil {
		return fmt.Errorf("initialize: %w", err)
	}
	status, err = c.do(c.post("notifications/initialized", "", `"method":"notifications/initialized"`))
	if err == nil && status != 202 {
		err = fmt.Errorf("status %d, %.300s", status, c.body)
	}
	if err != nil {
		return fmt.Errorf("notifications/initialized: %w", err)
	}
	return nil
}

// firstID is the id of a request that list and call make; nextID counts on from it in place.
const firstID = `"id":1000000000`

// list returns the bytes of a tools/list request.
func (c *rawClient) list() []byte {
	params := ""
	if c.era == harness.ModernEra {
		params = `,"params":{` + harness.ModernMeta + `}`
	}
	return c.post("tools/list", "", firstID+`,"method":"tools/list"`+params)
}

// call returns the bytes of a tools/call request that asks for so many bytes of text.
func (c *rawClient) call(tool string, size int) []byte {
	meta := ""
	if c.era == harness.ModernEra {
		meta = "," + harness.ModernMeta
	}
	return c.post("tools/call", tool,
		firstID+`,"method":"tools/call","params":{"name":"`+tool+`","arguments":{"size":`+strconv.Itoa(size)+`}`+meta+`}`)
}

// post returns a POST request around the members of a JSON-RPC message.
func (c *rawClient) post(method, name, members string) []byte {
	var b bytes.Buffer
	body := `{"jsonrpc":"2.0",` + members + `}`
	fmt.Fprintf(&b,
		"POST /mcp HTTP/1.1\r\nHost: %s\r\nAccept: application/json, text/event-stream\r\nContent-Type: application/json\r\n",
		c.addr)
	if c.token != "" {
		fmt.Fprintf(&b, "Authorization: Bearer %s\r\n", c.token)
	}
	switch {
	case c.era == harness.ModernEra:
		fmt.Fprintf(&b, "MCP-Protocol-Version: %s\r\nMcp-Method: %s\r\n", harness.ModernVersion, method)
		if name != "" {
			fmt.Fprintf(&b, "Mcp-Name: %s\r\n", name)
		}
	case c.session != "":
		fmt.Fprintf(&b, "MCP-Protocol-Version: %s\r\nMcp-Session-Id: %s\r\n", harness.LegacyVersion, c.session)
	}
	fmt.Fprintf(&b, "Content-Length: %d\r\n\r\n%s", len(body), body)
	return b.Bytes()
}

// nextID gives a request that list or call made another id.
func nextID(req []byte, at int) {
	for i := at + len(firstID) - 1; ; i-- {
		if req[i]++; req[i] <= '9' {
			return
		}
		req[i] = '0'
	}
}

// do sends a request and reads the whole response; c.body and c.size tell of its body until the
// next one.
func (c *rawClient) do(req []byte) (status int, err error) {
	if err := c.connect(); err != nil {
		return 0, err
	}
	c.conn.SetDeadline(time.Now().Add(30 * time.Second)) // a call that hangs ends the benchmark
	if _, err := c.conn.Write(req); err != nil {
		return 0, err
	}
	h, err := c.readHeader()
	if err != nil {
		return 0, err
	}
	if h.session != "" {
		c.session = h.session
	}
	c.body, c.size = c.body[:0], 0
	switch {
	case h.chunked:
		err = c.takeChunks()
	case h.length >= 0:
		err = c.take(h.length)
	case h.status != 204:
		h.close = true
		err = c.takeAll()
	}
	if err != nil {
		return 0, fmt.Errorf("read the body: %w", err)
	}
	if h.close {
		c.Close()
	}
	return h.status, nil
}

// stream opens a listening stream and returns its status; the connection stays open and is of no
// further use to do.
func (c *rawClient) stream() (status int, err error) {
	if err := c.connect(); err != nil {
		return 0, err
	}
	c.conn.SetDeadline(time.Now().Add(30 * time.Second))
	own := ""
	if c.token != "" {
		own = "Authorization: Bearer " + c.token + "\r\n"
	}
	_, err = fmt.Fprintf(c.conn,
		"GET /mcp HTTP/1.1\r\nHost: %s\r\nAccept: text/event-stream\r\nMCP-Protocol-Version: %s\r\nMcp-Session-Id: %s\r\n%s\r\n",
		c.addr, harness.LegacyVersion, c.session, own)
	if err != nil {
		return 0, err
	}
	h, err := c.readHeader()
	return h.status, err
}

type responseHeader struct {
	status  int
	length  int // -1 when not told
	chunked bool
	close   bool
	session string
}

func (c *rawClient) readHeader() (responseHeader, error) {
	h := responseHeader{length: -1}
	line, err := c.line()
	if err != nil {
		return h, fmt.Errorf("read the status: %w", err)
	}
	if len(line) < 12 || !bytes.HasPrefix(line, []byte("HTTP/1.")) {
		return h, fmt.Errorf("read the status: %.60q is none", line)
	}
	h.close = line[7] == '0'
	if h.status, err = strconv.Atoi(string(line[9:12])); err != nil {
		return h, fmt.Errorf("read the status: %w", err)
	}
	for {
		line, err = c.line()
		if err != nil {
			return h, fmt.Errorf("read the header: %w", err)
		}
		if len(line) == 0 {
			return h, nil
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimSpace(value)
		switch {
		case isName(name, "content-length"):
			if h.length, err = strconv.Atoi(string(value)); err != nil {
				return h, fmt.Errorf("read the header: %w", err)
			}
		case isName(name, "transfer-encoding"):
			h.chunked = isName(value, "chunked")
		case isName(name, "connection"):
			h.close = isName(value, "close")
		case isName(name, "mcp-session-id"):
			h.session = string(value)
		}
	}
}

func isName(b []byte, name string) bool {
	return len(b) == len(name) && strings.EqualFold(string(b), name)
}

// line takes a line, without its end. It is valid until the next read.
func (c *rawClient) line() ([]byte, error) {
	for from := 0; ; {
		if i := bytes.IndexByte(c.buf[c.r+from:c.w], '\n'); i >= 0 {
			l := c.buf[c.r : c.r+from+i]
			c.r += from + i + 1
			return bytes.TrimSuffix(l, []byte{'\r'}), nil
		}
		from = c.w - c.r
		if err := c.fill(); err != nil {
			return nil, err
		}
	}
}

// fill reads more behind buf[r:w].
func (c *rawClient) fill() error {
	if c.r == c.w {
		c.r, c.w = 0, 0
	} else if c.w == len(c.buf) {
		if c.r == 0 {
			return errors.New("a line is too long")
		}
		c.r, c.w = 0, copy(c.buf, c.buf[c.r:c.w])
	}
	n, err := c.conn.Read(c.buf[c.w:])
	c.w += n
	if n > 0 {
		return nil
	}
	return err
}

// take takes n bytes of a body.
func (c *rawClient) take(n int) error {
	for n > 0 {
		if c.r == c.w {
			if err := c.fill(); err != nil {
				return err
			}
		}
		m := min(n, c.w-c.r)
		if room := c.keep - len(c.body); room > 0 {
			c.body = append(c.body, c.buf[c.r:c.r+min(room, m)]...)
		}
		c.r, c.size, n = c.r+m, c.size+m, n-m
	}
	return nil
}

func (c *rawClient) takeChunks() error {
	for {
		line, err := c.line()
		if err != nil {
			return err
		}
		digits, _, _ := bytes.Cut(line, []byte(";"))
		n, err := strconv.ParseInt(string(bytes.TrimSpace(digits)), 16, 32)
		if err != nil {
			return err
		}
		if err := c.take(int(n)); err != nil {
			return err
		}
		// After the bytes of a chunk comes an empty line, after the last chunk perhaps trailers and
		// then an empty line.
		for {
			line, err := c.line()
			if err != nil {
				return err
			}
			if len(line) == 0 {
				break
			}
		}
		if n == 0 {
			return nil
		}
	}
}

func (c *rawClient) takeAll() error {
	for {
		if err := c.take(c.w - c.r); err != nil {
			return err
		}
		if err := c.fill(); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
	}
}

// tools lists the tools and returns their names.
func (c *rawClient) tools() ([]string, error) {
	keep := c.keep
	c.keep = 16 << 20
	defer func() { c.keep = keep }()
	status, err := c.do(c.list())
	if err != nil {
		return nil, err
	}
	body := bytes.TrimSpace(c.body)
	if i := bytes.LastIndex(body, []byte("data:")); i >= 0 && !bytes.HasPrefix(body, []byte("{")) {
		body = body[i+len("data:"):] // an event stream, whose last event is the response
	}
	var resp struct {
		Result struct{ Tools []struct{ Name string } }
		Error  json.RawMessage
	}
	if err := json.Unmarshal(body, &resp); err != nil {
		return nil, fmt.Errorf("read the list, status %d: %w", status, err)
	}
	if status != 200 || resp.Error != nil {
		return nil, fmt.Errorf("list the tools: status %d, %s", status, resp.Error)
	}
	names := make([]string, len(resp.Result.Tools))
	for i, t := range resp.Result.Tools {
		names[i] = t.Name
	}
	return names, nil
}
