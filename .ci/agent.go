// Command agent is a static client of the official Go SDK, for .ci/installs: it calls the tool echo of the demo server
// at an endpoint, and prints the answer.
//
//	agent URL
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

func main() {
	if err := run(context.Background(), os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "agent:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, url string) error {
	client := mcp.NewClient(&mcp.Implementation{Name: "agent", Version: "1"}, nil)
	session, err := client.Connect(ctx, &mcp.StreamableClientTransport{Endpoint: url}, nil)
	if err != nil {
		return err
	}
	defer session.Close()
	result, err := session.CallTool(ctx, &mcp.CallToolParams{Name: "demo__echo",
		Arguments: map[string]any{"text": "hello"}})
	if err != nil {
		return err
	}
	for _, part := range result.Content {
		if text, ok := part.(*mcp.TextContent); ok {
			fmt.Println(text.Text)
		}
	}
	return nil
}
