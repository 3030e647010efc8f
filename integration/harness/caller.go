package harness

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"junction/upstream/jsonrpc"
)

// Caller is a client of one era that writes its messages as the test gives them, and shows the
// answers as they came.
type Caller struct {
	url     string
	Era     string
	Session string
	HTTP    *http.Client
	// Heard gets each message of a response stream when it arrives; nil for none.
	Heard func(message string)

	capabilities string // JSON
	ids          atomic.Int64
}

// MustCaller returns a client of an endpoint. A legacy client has initialized a session.
func MustCaller(t testing.TB, url, era string) *Caller {
	t.Helper()
	transport := http.DefaultTransport.(*http.Transport).Clone()
	t.Cleanup(transport.CloseIdleConnections)
	return MustCallerBy(t, &http.Client{Transport: transport}, url, era)
}

// MustCallerBy is MustCaller with the HTTP client that sends the requests.
func MustCallerBy(t testing.TB, by *http.Client, url, era string) *Caller {
	t.Helper()
	c, err := NewCaller(t.Context(), by, url, era, AllCapabilities)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// NewCaller returns a client with these capabilities (JSON). A legacy one has opened its session.
func NewCaller(ctx context.Context, by *http.Client, url, era, capabilities string) (*Caller, error) {
	c := &Caller{url: url, Era: era, HTTP: by, capabilities: capabilities}
	if era == ModernEra {
		return c, nil
	}
	resp, err := c.Post(ctx, "initialize", "", `{"jsonrpc":"2.0","id":"i","method":"initialize","params":{`+
		`"protocolVersion":"`+LegacyVersion+`","capabilities":`+capabilities+
		`,"clientInfo":{"name":"caller","version":"1"}}}`)
	if err != nil {
		return nil, fmt.Errorf("initialize: %w", err)
	}
	defer resp.Body.Close()
	if c.Session = resp.Header.Get("Mcp-Session-Id"); c.Session == "" {
		body, _ := io.ReadAll(resp.Body)
		return nil, fmt.Errorf("initialize: %s without a session: %s", resp.Status, body)
	}
	return c, nil
}

// Post sends a body. method and name go into the headers of the modern era.
func (c *Caller) Post(ctx context.Context, method, name, body string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	switch {
	case c.Era == ModernEra:
		req.Header.Set("Mcp-Protocol-Version", ModernVersion)
		req.Header.Set("Mcp-Method", method)
		if name != "" {
			req.Header.Set("Mcp-Name", name)
		}
	case c.Session != "":
		req.Header.Set("Mcp-Protocol-Version", LegacyVersion)
		req.Header.Set("Mcp-Session-Id", c.Session)
	}
	return c.HTTP.Do(req)
}

// Exchanged is a response: its messages as they came, the answer apart from what came before it.
type Exchanged struct {
	ID       string
	Streamed bool
	Before   []string
	Answer   string
}

// Do posts a request whose params have these members, with a _meta of these further members.
func (c *Caller) Do(ctx context.Context, method, name, members, meta string) (Exchanged, error) {
	if c.Era == ModernEra {
		if meta != "" {
			meta = "," + meta
		}
		own := strings.Replace(ModernMeta, `clientCapabilities":{}`, `clientCapabilities":`+c.capabilities, 1)
		meta = strings.TrimSuffix(strings.TrimPrefix(own, `"_meta":{`), "}") + meta
	}
	if meta != "" {
		if members != "" {
			members += ","
		}
		members += `"_meta":{` + meta + `}`
	}
	x := Exchanged{ID: fmt.Sprint(c.ids.Add(1))}
	resp, err := c.Post(ctx, method, name, `{"jsonrpc":"2.0","id":`+x.ID+`,"method":"`+method+`","params":{`+members+
		`}}`)
	if err != nil {
		return x, err
	}
	defer resp.Body.Close()
	if !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		body, err := io.ReadAll(resp.Body)
		x.Answer = string(body)
		return x, err
	}
	x.Streamed = true
	for events := jsonrpc.NewEventReader(resp.Body, 64<<20); ; {
		e, err := events.Next()
		switch {
		case errors.Is(err, io.EOF) && len(x.Before) > 0:
			last := len(x.Before) - 1
			x.Before, x.Answer = x.Before[:last], x.Before[last]
			return x, nil
		case err != nil:
			return x, fmt.Errorf("read the stream after %d events: %w", len(x.Before), err)
		}
		if len(e.Data) > 0 {
			if c.Heard != nil {
				c.Heard(string(e.Data))
			}
			x.Before = append(x.Before, string(e.Data))
		}
	}
}

// Call calls a tool.
func (c *Caller) Call(ctx context.Context, tool, arguments string) (Exchanged, error) {
	return c.Do(ctx, "tools/call", tool, `"name":"`+tool+`","arguments":`+arguments, "")
}

// MustCall expects the call to succeed with a result that contains the words, soon.
func (c *Caller) MustCall(t testing.TB, tool, arguments, words string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), Patience)
	defer cancel()
	x, err := c.Call(ctx, tool, arguments)
	if err != nil || !strings.Contains(x.Answer, `"result":`) || !strings.Contains(x.Answer, words) {
		t.Errorf("%s of %s = %.500s, %v; want a result with %q", tool, c.Era, x.Answer, err, words)
	}
}

// MustFail expects the call to fail with the given kind of error of the proxy's own, soon, and
// returns the answer.
func (c *Caller) MustFail(t testing.TB, tool, arguments, kind string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), Patience)
	defer cancel()
	x, err := c.Call(ctx, tool, arguments)
	if err != nil || !strings.Contains(x.Answer, `"kind":"`+kind+`"`) {
		t.Errorf("%s of %s = %.500s, %v; want an error of kind %s", tool, c.Era, x.Answer, err, kind)
	}
	return x.Answer
}
