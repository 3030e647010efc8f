package protocol

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"junction/integration/harness"
	"junction/proxy"
	"junction/upstream"
	"junction/upstream/client"
)

// sdkSubscriptionsRole is a server of the official Go SDK on stdio that takes subscriptions.
const sdkSubscriptionsRole = "sdk-subscriptions"

// sdkCost is what such a server has received.
type sdkCost struct {
	Listens int // subscriptions/listen
	Lists   int // of these, about lists
	Bytes   int // of the resources in them
}

// sdkSubscriptions has the tools touch, which changes a resource, grow, which adds a tool, cost,
// and again, which answers when the lists were subscribed to for the second time.
func sdkSubscriptions() error {
	var mu sync.Mutex
	var cost sdkCost
	again := make(chan struct{})
	server := mcp.NewServer(&mcp.Implementation{Name: "sdk", Version: "1"}, &mcp.ServerOptions{
		SubscribeHandler:   func(context.Context, *mcp.SubscribeRequest) error { return nil },
		UnsubscribeHandler: func(context.Context, *mcp.UnsubscribeRequest) error { return nil },
	})
	server.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, r mcp.Request) (mcp.Result, error) {
			if p, ok := r.GetParams().(*mcp.SubscriptionsListenParams); ok {
				mu.Lock()
				cost.Listens++
				if p.Notifications.ToolsListChanged {
					if cost.Lists++; cost.Lists == 2 {
						close(again)
					}
				}
				for _, uri := range p.Notifications.ResourceSubscriptions {
					cost.Bytes += len(uri)
				}
				mu.Unlock()
			}
			return next(ctx, method, r)
		}
	})
	read := func(context.Context, *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		return &mcp.ReadResourceResult{}, nil
	}
	server.AddResource(&mcp.Resource{URI: "file:///r", Name: "r"}, read)
	type nothing struct{}
	type about struct {
		URI string `json:"uri"`
	}
	mcp.AddTool(server, &mcp.Tool{Name: "touch"}, func(ctx context.Context, _ *mcp.CallToolRequest,
		a about) (*mcp.CallToolResult, nothing, error) {
		return nil, nothing{}, server.ResourceUpdated(ctx, &mcp.ResourceUpdatedNotificationParams{URI: a.URI})
	})
	mcp.AddTool(server, &mcp.Tool{Name: "cost"}, func(context.Context, *mcp.CallToolRequest, nothing) (*mcp.CallToolResult,
		sdkCost, error) {
		mu.Lock()
		defer mu.Unlock()
		return nil, cost, nil
	})
	mcp.AddTool(server, &mcp.Tool{Name: "again"}, func(ctx context.Context, _ *mcp.CallToolRequest,
		_ nothing) (*mcp.CallToolResult, nothing, error) {
		select {
		case <-again:
		case <-ctx.Done():
		}
		return nil, nothing{}, ctx.Err()
	})
	mcp.AddTool(server, &mcp.Tool{Name: "grow"}, func(context.Context, *mcp.CallToolRequest, nothing) (*mcp.CallToolResult,
		nothing, error) {
		mcp.AddTool(server, &mcp.Tool{Name: "grown"}, func(context.Context, *mcp.CallToolRequest,
			nothing) (*mcp.CallToolResult, nothing, error) {
			return nil, nothing{}, nil
		})
		return nil, nothing{}, nil
	})
	return server.Run(context.Background(), &mcp.StdioTransport{})
}

func costOf(t *testing.T, c *harness.Talker) (cost sdkCost) {
	t.Helper()
	var r struct{ StructuredContent sdkCost }
	if err := json.Unmarshal(c.Succeed(t, "up__cost", `{}`), &r); err != nil {
		t.Fatal(err)
	}
	return r.StructuredContent
}

// TestForeignSubscribersOfAnSDKServer has many subscribers come one after the other to a server of
// the official Go SDK on stdio, which forgets the subscriptions of a connection when one of them
// ends. Each change costs the same, each update reaches its subscriber alone, and changes of the
// lists are told after an end, too.
func TestForeignSubscribersOfAnSDKServer(t *testing.T) {
	harness.Waits(t)
	harness.InMemory(t, "it counts the subscriptions of one process")
	const many = 200
	for _, clientEra := range harness.Eras {
		t.Run(string(clientEra), func(t *testing.T) {
			p := harness.Pair{Client: clientEra, Upstream: client.EraModern, Transport: "stdio"}
			j := harness.Start(t, p, harness.Setup{Limits: proxy.Limits{}, Upstreams: map[string]upstream.Config{
				"up": {Era: client.EraModern, Command: []string{os.Args[0]},
					Env: map[string]string{"JUNCTION_ROLE": sdkSubscriptionsRole}}}})
			j.Offers(t, "up")
			c := j.Talk(t)
			before := costOf(t, c)
			var stream *harness.Answering // of a legacy client; a modern one has a stream for each subscription
			var streams []*harness.Answering
			if clientEra == client.EraLegacy {
				stream = c.Get(t)
			}
			uri := func(i int) string { return fmt.Sprintf("mcp://up/file:///%03d", i) }
			for i := range many {
				if clientEra == client.EraLegacy {
					c.Must(t, "resources/subscribe", `"uri":"`+uri(i)+`"`)
				} else {
					a, _ := harness.Subscribe(t, c, fmt.Sprintf("%d", 1000+i),
						`{"resourceSubscriptions":["`+uri(i)+`"],"toolsListChanged":true}`)
					streams = append(streams, a)
				}
			}
			of := func(i int) *harness.Answering {
				if stream != nil {
					return stream
				}
				return streams[i]
			}
			if after := costOf(t, c); after.Listens-before.Listens != many ||
				after.Bytes-before.Bytes != many*len("file:///000") || after.Lists != 1 {
				t.Errorf("%d subscribers cost %+v, and %+v before them; want one subscription with one resource each", many, after,
					before)
			}
			touch := func(i int) { c.Succeed(t, "up__touch", fmt.Sprintf(`{"uri":"file:///%03d"}`, i)) }
			for _, i := range []int{0, 1, many - 1} {
				touch(i)
				harness.WantNotes(t, of(i), "resources/updated "+uri(i))
			}
			if clientEra == client.EraLegacy {
				c.Must(t, "resources/unsubscribe", `"uri":"`+uri(1)+`"`)
			} else {
				streams[1].Drop()
			}
			c.Succeed(t, "up__again", `{}`) // the subscription was ended, and the lists were subscribed to again
			touch(1)
			touch(2)
			harness.WantNotes(t, of(2), "resources/updated "+uri(2))
			c.Succeed(t, "up__grow", `{}`)
			for _, i := range []int{0, 2, many - 1} {
				harness.WantNotes(t, of(i), "tools/list_changed")
				if stream != nil {
					break
				}
			}
			if stream != nil {
				harness.WantSilentEnd(t, j, stream)
			} else {
				harness.WantSilentEnd(t, j, streams[0], streams[2], streams[many-1])
			}
		})
	}
}
