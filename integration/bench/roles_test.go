package bench

import (
	"bufio"
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"sync"
)

// roles returns the programs that a benchmark starts beside the program under test.
func roles() map[string]func(args []string) error {
	return map[string]func(args []string) error{
		"bench-echo":       echoHTTP,
		"bench-echo-stdio": echoStdio,
		"bench-hop":        hop,
		"bench-hop-stdio":  hopStdio,
		"bench-load":       loadGenerator,
		"bench-attack":     attackers,
	}
}

// hop is the plain reverse proxy of Go's standard library, which parses nothing: what one more hop
// costs in net/http.
func hop(args []string) error {
	fs := flag.NewFlagSet("bench-hop", flag.ContinueOnError)
	to := fs.String("to", "", "where requests go: http://HOST:PORT")
	if err := fs.Parse(args); err != nil {
		return err
	}
	target, err := url.Parse(*to)
	if err != nil {
		return fmt.Errorf("read the target: %w", err)
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 64 // as nginx gets; the default of two would dial for every third call
	proxy := &httputil.ReverseProxy{
		Transport: transport,
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(target) },
	}
	return serveRole(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Without this the server closes the request's body when the first bytes of the response
		// are written. The transport, which may just be looking for the body's end, then takes that
		// for a failed request and cuts off the response.
		if err := http.NewResponseController(w).EnableFullDuplex(); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
}

// hopStdio passes each request on as a line to an echo server that it has started, and the line
// that comes back, unread, to the client: what is left of a proxy in front of a child process when
// it knows nothing of MCP, or of HTTP beyond what a benchmark sends. The server answers one after
// the other, so that whose a line is need not be asked.
func hopStdio([]string) error {
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), "JUNCTION_ROLE=bench-echo-stdio")
	in, err1 := child.StdinPipe()
	out, err2 := child.StdoutPipe()
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	if err := child.Start(); err != nil {
		return err
	}
	h := &lineHop{in: in, waiting: make(chan chan []byte, 1000)}
	go h.read(out)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(l.Addr())
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go h.serve(c)
	}
}

type lineHop struct {
	mu      sync.Mutex // held while a line is written, so that waiting has the order of the lines
	in      io.Writer
	waiting chan chan []byte
	buffers sync.Pool // of *[]byte
}

// read hands the child's lines to those who wait. A line is its receiver's.
func (h *lineHop) read(out io.Reader) {
	buffer, end := make([]byte, 64<<10), 0
	for {
		n, err := out.Read(buffer[end:])
		if err != nil {
			return // the child has ended, and so does the benchmark
		}
		for from := end; ; from = 0 {
			at := bytes.IndexByte(buffer[from:end+n], '\n')
			if at < 0 {
				break
			}
			line := buffer[:from+at+1]
			next, _ := h.buffers.Get().(*[]byte)
			if next == nil || cap(*next) < cap(buffer) {
				fresh := make([]byte, cap(buffer))
				next = &fresh
			}
			rest := copy((*next)[:cap(*next)], buffer[len(line):end+n])
			(<-h.waiting) <- line
			buffer, end, n = (*next)[:cap(*next)], 0, rest
		}
		if end += n; end == len(buffer) {
			buffer = append(buffer, make([]byte, len(buffer))...)
		}
	}
}

func (h *lineHop) serve(c net.Conn) {
	defer c.Close()
	r, answer := bufio.NewReader(c), make(chan []byte)
	for {
		length := 0
		for {
			field, err := r.ReadSlice('\n')
			if err != nil {
				return
			}
			if field = bytes.TrimSpace(field); len(field) == 0 {
				break
			}
			if name, value, _ := bytes.Cut(field, []byte(": ")); string(name) == "Content-Length" {
				length, _ = strconv.Atoi(string(value))
			}
		}
		body := make([]byte, length+1)
		if _, err := io.ReadFull(r, body[:length]); err != nil {
			return
		}
		if !bytes.Contains(body, []byte(`"id":`)) {
			io.WriteString(c, "HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n")
			continue
		}
		body[length] = '\n'
		h.mu.Lock()
		h.waiting <- answer
		h.in.Write(body)
		h.mu.Unlock()
		line := <-answer
		head := fmt.Appendf(nil,
			"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nMcp-Session-Id: "+
				"0123456789abcdef0123456789abcdef\r\nContent-Length: %d\r\n\r\n", len(line))
		(&net.Buffers{head, line}).WriteTo(c)
		h.buffers.Put(&line)
	}
}

// serveRole serves h on a free port of the loopback, tells its address in one line on standard
// output. It ends with the process.
func serveRole(h http.Handler) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	fmt.Println(l.Addr())
	return fmt.Errorf("serve: %w", http.Serve(l, h))
}
