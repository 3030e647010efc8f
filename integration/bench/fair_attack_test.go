package bench

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	"junction/integration/harness"
	"junction/integration/harness/process"
)

// attack is one principal that sends all that it may, on many connections at once.
type attack struct {
	addr, token string
	owner       string // address of another process, which sessions begin at; "" if there is none

	mu       sync.Mutex
	statuses map[string]int // answers by status; "cut" is a connection that was closed
}

// attackKinds are what it can do. The number is of connections.
func attackKinds() map[string]struct {
	n int
	f func(*attack, int)
} {
	type kind = struct {
		n int
		f func(*attack, int)
	}
	return map[string]kind{
		"none":      {0, nil},
		"streams":   {1200, (*attack).streams},
		"slow":      {1200, (*attack).slow},
		"abandon":   {100, (*attack).abandon},
		"quick":     {300, (*attack).quick},
		"sessions":  {50, (*attack).sessions},
		"bodies":    {60, (*attack).bodies},
		"unread":    {200, (*attack).unread},
		"forwarded": {120, (*attack).forwarded},
		"checks":    {40, (*attack).checks},
	}
}

// attackers attack in the ways that are named. When standard input ends, they print how they were
// answered so far.
func attackers(args []string) error {
	fs := flag.NewFlagSet("bench-attack", flag.ContinueOnError)
	addr := fs.String("addr", "", "HOST:PORT of the MCP server")
	owner := fs.String("owner", "", "HOST:PORT of another process of the server, which sessions begin at")
	token := fs.String("token", "", "the key of the attacker")
	kinds := fs.String("kinds", "", "what to do, with commas")
	if err := fs.Parse(args); err != nil {
		return err
	}
	process.YieldCPU() // it stands for another machine, and has no right to the time of those that it attacks
	a := &attack{addr: *addr, owner: *owner, token: *token, statuses: map[string]int{}}
	for _, name := range strings.Split(*kinds, ",") {
		kind, ok := attackKinds()[name]
		if !ok {
			return fmt.Errorf("there is no attack %q", name)
		}
		for i := range kind.n {
			go func() {
				for {
					kind.f(a, i)
				}
			}()
		}
	}
	io.Copy(io.Discard, os.Stdin)
	a.mu.Lock()
	err := json.NewEncoder(os.Stdout).Encode(a.statuses)
	a.mu.Unlock()
	if err == nil {
		select {} // until it is killed, when that was read
	}
	return err
}

// note counts an answer. After a refusal, or without an answer, the connection waits a moment,
// as Retry-After asks, but less.
func (a *attack) note(kind string, status int, err error) {
	what := kind + " " + strconv.Itoa(status)
	if err != nil {
		what = kind + " cut"
	}
	a.mu.Lock()
	a.statuses[what]++
	a.mu.Unlock()
	if err != nil || status >= 400 {
		time.Sleep(100 * time.Millisecond)
	}
}

// client is a connection in the era of its number; false means that it gets no session.
func (a *attack) client(kind string, i int) (*rawClient, bool) {
	c := newRawClient(cmp.Or(a.owner, a.addr), benchEras[i%2], a.token)
	c.buf = make([]byte, 4<<10)
	err := c.connect()
	if err == nil {
		err = c.start()
	}
	if err == nil && c.addr != a.addr {
		c.Close()
		c.addr = a.addr
		err = c.connect()
	}
	if err != nil {
		c.Close()
		a.note(kind+" start", 0, err)
		return nil, false
	}
	return c, true
}

// open sends a request and reads the head of the answer.
func (c *rawClient) open(req []byte) (responseHeader, error) {
	if err := c.connect(); err != nil {
		return responseHeader{}, err
	}
	c.conn.SetDeadline(time.Now().Add(time.Minute))
	if _, err := c.conn.Write(req); err != nil {
		return responseHeader{}, err
	}
	return c.readHeader()
}

// streams opens a stream and keeps it. A refused one is tried again on the same connection.
func (a *attack) streams(i int) {
	c, ok := a.client("stream", i)
	if !ok {
		return
	}
	defer c.Close()
	req := fmt.Appendf(nil,
		"GET /mcp HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nAccept: text/event-stream\r\nMCP-Protocol-Version: "+
			"%s\r\nMcp-Session-Id: %s\r\n\r\n",
		c.addr, c.token, harness.LegacyVersion, c.session)
	if c.era == harness.ModernEra {
		req = c.post("subscriptions/listen", "",
			firstID+`,"method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true},`+harness.ModernMeta+
				`}`)
	}
	for {
		h, err := c.open(req)
		if a.note("stream", h.status, err); err != nil {
			return
		}
		if h.status == 200 {
			c.conn.SetDeadline(time.Time{})
			io.Copy(io.Discard, c.conn)
			return
		}
		if c.take(h.length) != nil {
			return
		}
	}
}

// callFor returns a call of the tool echo.
func (c *rawClient) callFor(size, ms int) []byte {
	return c.callOf(fmt.Sprintf(`"size":%d,"ms":%d`, size, ms))
}

// callOf returns a call of the tool echo with these arguments.
func (c *rawClient) callOf(arguments string) []byte {
	meta := ""
	if c.era == harness.ModernEra {
		meta = "," + harness.ModernMeta
	}
	return c.post("tools/call", "echo",
		fmt.Sprintf(`%s,"method":"tools/call","params":{"name":"echo","arguments":{%s}%s}`, firstID, arguments, meta))
}

// slow makes calls that take 20 seconds.
func (a *attack) slow(i int) {
	c, ok := a.client("slow", i)
	if !ok {
		return
	}
	defer c.Close()
	for {
		status, err := c.do(c.callFor(100, 20_000))
		if a.note("slow", status, err); err != nil {
			return
		}
	}
}

// abandon makes such a call and hangs up.
func (a *attack) abandon(i int) {
	c, ok := a.client("abandon", i)
	if !ok {
		return
	}
	defer c.Close()
	if _, err := c.conn.Write(c.callFor(100, 20_000)); err != nil {
		a.note("abandon", 0, err)
		return
	}
	c.conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if h, err := c.readHeader(); err == nil {
		a.note("abandon", h.status, nil)
	} else {
		a.note("abandon", 0, nil)
	}
}

// quick lists, pings and calls as fast as it can.
func (a *attack) quick(i int) {
	c, ok := a.client("quick", i)
	if !ok {
		return
	}
	defer c.Close()
	ping := c.post("ping", "", firstID+`,"method":"ping"`)
	if c.era == harness.ModernEra {
		ping = c.post("server/discover", "", firstID+`,"method":"server/discover","params":{`+harness.ModernMeta+`}`)
	}
	for n := 0; ; n++ {
		status, err := c.do([][]byte{ping, c.list(), c.callFor(100, 0)}[n%3])
		if a.note("quick", status, err); err != nil {
			return
		}
	}
}

// sessions opens one session after the other.
func (a *attack) sessions(int) {
	c := newRawClient(a.addr, harness.LegacyEra, a.token)
	c.buf = make([]byte, 4<<10)
	defer c.Close()
	for {
		err := c.start()
		if a.note("session", 200, err); err != nil {
			return
		}
	}
}

// bodies sends most of the largest body, and then nothing more for a while.
func (a *attack) bodies(i int) {
	c, ok := a.client("body", i)
	if !ok {
		return
	}
	defer c.Close()
	const size = 16 << 20
	head, _, _ := strings.Cut(string(c.callFor(100, 0)), "Content-Length")
	c.conn.SetDeadline(time.Now().Add(20 * time.Second))
	_, err := fmt.Fprintf(c.conn, "%sContent-Length: %d\r\n\r\n%s", head, size, strings.Repeat(" ", size-1<<10))
	status := 0
	if err == nil {
		h, _ := c.readHeader()
		status = h.status
	}
	a.note("body", status, err)
}

// forwarded sends most of the largest body in a session of another process, in chunks or with its
// length, and then nothing more for a while. Without other processes it sends it to the only one.
func (a *attack) forwarded(i int) {
	c, ok := a.client("forwarded", 2*i+slices.Index(benchEras, harness.LegacyEra))
	if !ok {
		return
	}
	defer c.Close()
	const size, chunk = 16 << 20, 1 << 20
	head, _, _ := strings.Cut(string(c.callFor(100, 0)), "Content-Length")
	c.conn.SetDeadline(time.Now().Add(20 * time.Second))
	var err error
	if i%2 == 0 {
		_, err = fmt.Fprintf(c.conn, "%sTransfer-Encoding: chunked\r\n\r\n", head)
		for n := 0; n < size-chunk && err == nil; n += chunk {
			_, err = fmt.Fprintf(c.conn, "%x\r\n%s\r\n", chunk, strings.Repeat(" ", chunk))
		}
	} else {
		_, err = fmt.Fprintf(c.conn, "%sContent-Length: %d\r\n\r\n%s", head, size, strings.Repeat(" ", size-chunk))
	}
	status := 0
	if err == nil {
		h, _ := c.readHeader()
		status = h.status
	}
	a.note("forwarded", status, err)
}

// unread asks for a large answer and does not read it.
func (a *attack) unread(i int) {
	c, ok := a.client("unread", i)
	if !ok {
		return
	}
	defer c.Close()
	if tcp, ok := c.conn.(*net.TCPConn); ok {
		tcp.SetReadBuffer(4 << 10)
	}
	h, err := c.open(c.callFor(8<<20, 0))
	if a.note("unread", h.status, err); err == nil && h.status == 200 {
		time.Sleep(20 * time.Second)
	}
}

// checks makes calls with arguments that take long to check: a list of a hundred thousand words of
// which the last one does not fit the schema, one of as many wrong words, and one of a million. None
// of them reaches the server, which would take longer for them than the check.
func (a *attack) checks(i int) {
	c, ok := a.client("check", i)
	if !ok {
		return
	}
	defer c.Close()
	var calls [][]byte
	for _, filter := range []string{strings.Repeat(`"all",`, 99_000) + `"x"`, strings.Repeat(`"x",`, 99_000) + `"x"`,
		strings.Repeat(`"x",`, 1_000_000) + `"x"`} {
		calls = append(calls, c.callOf(`"size":100,"filter":[`+filter+`]`))
	}
	for n := i; ; n++ {
		status, err := c.do(calls[n%len(calls)])
		if a.note("check", status, err); err != nil {
			return
		}
	}
}

// summary is how an attack was answered.
func summary(statuses map[string]int) string {
	var list []string
	for what, n := range statuses {
		list = append(list, fmt.Sprintf("%s ×%d", what, n))
	}
	sort.Strings(list)
	return strings.Join(list, ", ")
}
