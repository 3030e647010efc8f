// Package otlp sends spans, metrics and log records of OpenTelemetry as OTLP over HTTP, with binary
// protobuf.
//
// The exporters of OpenTelemetry itself need gRPC also for HTTP. This package needs the messages
// alone.
//
//	settings.go  the standard variables OTEL_EXPORTER_OTLP_*
//	client.go    one request, and when it is sent again
//	traces.go    spans, for a trace.TracerProvider
//	metrics.go   metrics, for a metric.PeriodicReader
//	logs.go      log records, each of which is a line of JSON
//	common.go    attributes and resources
package otlp

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	"junction/upstream/pace"
)

// Client sends the messages of one signal. It is safe for concurrent use.
type Client struct {
	settings Settings
	http     *http.Client
	log      *slog.Logger
	failing  atomic.Bool // the last message was not accepted
}

// New returns a client. It does not connect. log gets one line when the receiver stops to accept
// messages, and one when it accepts them again.
func New(s Settings, log *slog.Logger) *Client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig, transport.MaxIdleConnsPerHost = s.TLS, 1
	return &Client{settings: s, http: &http.Client{Transport: transport}, log: log}
}

// Close closes idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// longestAnswer bounds the answer of a receiver, in bytes.
const longestAnswer = 64 << 10

// send sends one message and reads the response into answer. It tries again if the receiver's
// status allows a retry, until the timeout of the settings.
func (c *Client) send(ctx context.Context, message, answer proto.Message) error {
	ctx, cancel := context.WithTimeout(ctx, c.settings.Timeout)
	defer cancel()
	body, err := c.encode(message)
	if err != nil {
		return err
	}
	for wait := time.Second; ; wait *= 2 {
		again, err := c.post(ctx, body, answer)
		if err == nil || again < 0 || !sleep(ctx, max(wait, again)) {
			return err
		}
	}
}

// note logs the first export that fails, and the first one that succeeds again.
func (c *Client) note(err error) {
	switch {
	case err != nil && !c.failing.Swap(true):
		c.log.Warn(c.settings.Signal+" are not exported", "endpoint", c.settings.Endpoint.Redacted(), "error", err)
	case err == nil && c.failing.Swap(false):
		c.log.Info(c.settings.Signal+" are exported again", "endpoint", c.settings.Endpoint.Redacted())
	}
}

func (c *Client) encode(message proto.Message) ([]byte, error) {
	b, err := proto.Marshal(message)
	if err != nil || !c.settings.Gzip {
		return b, err
	}
	var zipped bytes.Buffer
	w := gzip.NewWriter(&zipped)
	if _, err := w.Write(b); err != nil {
		return nil, err
	}
	err = w.Close()
	return zipped.Bytes(), err
}

// post makes one attempt. again is negative if another one cannot help; else it is the time that
// the receiver asks to wait.
func (c *Client) post(ctx context.Context, body []byte, answer proto.Message) (again time.Duration, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.settings.Endpoint.String(), bytes.NewReader(body))
	if err != nil {
		return -1, err
	}
	for name, value := range c.settings.Headers {
		r.Header.Set(name, value)
	}
	r.Header.Set("Content-Type", "application/x-protobuf")
	if c.settings.Gzip {
		r.Header.Set("Content-Encoding", "gzip")
	}
	resp, err := c.http.Do(r)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, longestAnswer))
	switch resp.StatusCode {
	case http.StatusOK, http.StatusAccepted, http.StatusNoContent:
		if err == nil {
			proto.Unmarshal(text, answer) // an answer that cannot be read rejects nothing
		}
		return -1, nil
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		seconds, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
		return time.Duration(max(seconds, 0)) * time.Second, errors.New(resp.Status)
	}
	return -1, refusedError{fmt.Errorf("%s: %.200q", resp.Status, text)}
}

// refusedError means that the receiver will not accept the message at another time either.
type refusedError struct{ error }

// sleep waits and reports whether ctx has not ended. It does not wait longer than ctx lasts.
func sleep(ctx context.Context, wait time.Duration) bool {
	if end, ok := ctx.Deadline(); ok && time.Until(end) < wait {
		return false
	}
	return pace.Sleep(ctx, wait, nil)
}

// rejected returns the error for the items that a receiver did not take.
func rejected(n int64, what, reason string) error {
	if n == 0 {
		return nil
	}
	return fmt.Errorf("the receiver rejected %d %s: %.200q", n, what, reason)
}
