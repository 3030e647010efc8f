package client

import (
	"bytes"
	"strings"
	"testing"

	"junction/auth/authtest"
	"junction/upstream/jsonrpc"
)

// TestRequestsFillNoLog: a server that sends without end requests that it should not send is told
// of a few times.
func TestRequestsFillNoLog(t *testing.T) {
	const many = 1000
	for name, sent := range map[string]struct {
		era    Era
		method string
	}{
		"questions of no call":             {EraLegacy, "sampling/createMessage"},
		"requests of an era that has none": {EraModern, "roots/list"},
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			b := new(base)
			b.init(authtest.Log(t, &log), Hooks{}, sent.era)
			for range many {
				b.receive(&jsonrpc.Message{ID: "1", Method: sent.method})
			}
			if n := strings.Count(log.String(), "level=WARN"); n != 5 {
				t.Errorf("the log has %d lines of %d messages, want 5:\n%.500s", n, many, log.String())
			}
		})
	}
}
