package bridge

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"syscall"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/cmd/junction/desk/call"
	"junction/upstream/jsonrpc"
	"junction/upstream/prose"
	"junction/upstream/raw"
	"junction/upstream/transport"
)

// problem returns the error that the client gets. An error of the endpoint passes through; the
// bridge's own errors have data.junction, like those of the proxy.
func (b *bridge) problem(err error) *jsonrpc.Error {
	if status, ok := errors.AsType[*transport.StatusError](err); ok && status.Message != nil {
		return status.Message.Error
	}
	if own, ok := errors.AsType[*jsonrpc.Error](err); ok {
		return own
	}
	text, kind := explain(b.URL, b.Absent, err)
	data := raw.AppendQuote([]byte(`{"junction":{"kind":`), kind)
	return &jsonrpc.Error{Code: mcp.INTERNAL_ERROR, Message: text, Data: append(data, "}}"...)}
}

// startOwn is what to do if the Junction of this user does not run.
const startOwn = "start it with: junction service start"

// explain returns why a request has no response and what to do, and the kind of the error. absent is as in Options.
func explain(url, absent string, err error) (text, kind string) {
	status, isStatus := errors.AsType[*transport.StatusError](err)
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Sprintf("no Junction is running at %s; %s", url, cmp.Or(absent, startOwn)), "unavailable"
	case isStatus && status.Status == http.StatusUnauthorized:
		return fmt.Sprintf("Junction at %s requires authentication; set JUNCTION_KEY to an API key, or use "+
				"--key-file", url),
			"unauthorized"
	case errors.As(err, new(*transport.TokenError)):
		return fmt.Sprintf("cannot authenticate at %s: %v", url, err), "unauthorized"
	case call.TLSAdvice(err) != "":
		return fmt.Sprintf("cannot reach Junction at %s: %v; %s", url, err, call.TLSAdvice(err)), "unavailable"
	case errors.Is(err, transport.ErrNotSent):
		return fmt.Sprintf("cannot reach Junction at %s: %v", url, err), "unavailable"
	}
	return fmt.Sprintf("no answer from Junction at %s: %v", url, err), "lost"
}

// notes writes lines for the user. A problem that continues has one line when it begins and one
// when it ends.
type notes struct {
	url    string
	absent string // as in Options
	mu     sync.Mutex
	w      io.Writer
	last   string // the current problem; "" if there is none
}

func (n *notes) say(text string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.write(text)
}

func (n *notes) write(text string) {
	// the error is not reported: standard error may be closed
	_, _ = fmt.Fprintf(n.w, "junction stdio: %s\n", prose.Flat(text))
}

// tried notes the result of a request. A response of any kind means that the endpoint can be
// reached.
func (n *notes) tried(err error) {
	if status, ok := errors.AsType[*transport.StatusError](err); err == nil || ok && status.Message != nil {
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.last != "" {
			n.last = ""
			n.write("connected to " + n.url)
		}
		return
	}
	n.failed(err)
}

func (n *notes) failed(err error) {
	if errors.Is(err, transport.ErrSessionGone) || errors.As(err, new(*jsonrpc.Error)) {
		return // the session is opened again; the client reads its own mistakes
	}
	text, _ := explain(n.url, n.absent, err)
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.last != text {
		n.last = text
		n.write(text)
	}
}
