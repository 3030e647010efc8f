package client_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"junction/auth/authtest"
	"junction/upstream/client"
	"junction/upstream/jsonrpc"
	"junction/upstream/raw"
	"junction/upstream/upstreamtest"
)

// terminal answers questions, and counts what it gets.
type terminal struct {
	mu              sync.Mutex
	notified, asked int
}

func (t *terminal) Notify(string, []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.notified++
}

func (t *terminal) Ask(context.Context, *client.ServerRequest) ([]byte, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.asked++
	return []byte(`{"action":"decline"}`), nil
}

// TestProgramMakesItsOwnCalls: a program that makes its own calls gets results, progress, questions and errors, in
// both eras.
func TestProgramMakesItsOwnCalls(t *testing.T) {
	for _, era := range []string{"legacy", "modern"} {
		t.Run(era, func(t *testing.T) {
			_, url := upstreamtest.Start(t, upstreamtest.Script{Era: era})
			profile := client.Profile{Form: true}
			d := client.NewDialer(client.Options{URL: url, Client: []byte(`{"name":"x","version":"1"}`), ConnectTimeout: time.Minute,
				MessageLimit: 1 << 20, Depth: 100, Log: authtest.Log(t)})
			defer d.CloseIdle()
			c, err := d.Dial(t.Context(), profile, client.Hooks{Changed: func() {}})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if string(c.Info().Era) != era {
				t.Errorf("the era is %s", c.Info().Era)
			}
			person := &terminal{}
			call := func(name, params string) (client.Result, error) {
				o, err := raw.Parse([]byte(params))
				if err != nil {
					t.Fatal(err)
				}
				return c.Call(t.Context(), &client.Call{Method: "tools/call", Name: name, Params: o, Profile: profile, Peer: person}, nil)
			}
			got, err := call("echo", `{"name":"echo","arguments":{"result":{"content":[],"n":12345678901234567890}}}`)
			if err != nil || !strings.Contains(string(got.Text()), `"n":12345678901234567890`) {
				t.Errorf("echo gives %s, %v", got.Text(), err)
			}
			if _, err = call("progress", `{"name":"progress","arguments":{"n":2},"_meta":{"progressToken":"p"}}`); err != nil || person.notified != 2 {
				t.Errorf("progress gives %d notifications, %v", person.notified, err)
			}
			got, err = call("ask", `{"name":"ask","arguments":{"method":"elicitation/create","params":{"message":"?","requestedSchema":{}}}}`)
			if err != nil || (person.asked == 1) != (era == "legacy") || (got.Type == client.TypeInputRequired) != (era == "modern") {
				t.Errorf("ask gives %s, and the person was asked %d times, %v", got.Text(), person.asked, err)
			}
			var said *jsonrpc.Error
			if _, err = call("fail", `{"name":"fail","arguments":{"error":{"code":-32050,"message":"m"}}}`); !errors.As(err, &said) || said.Code != -32050 {
				t.Errorf("fail gives %v", err)
			}
			if _, err = call("die", `{"name":"die"}`); client.KindOf(err) != client.KindLost {
				t.Errorf("die gives %v", err)
			}
		})
	}
}
