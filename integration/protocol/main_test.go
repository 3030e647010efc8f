// Package protocol tests each side of the protocol: what clients are answered, and which tools, prompts,
// resources and subscriptions they see.
package protocol

import (
	"testing"

	"junction/integration/harness"
)

func TestMain(m *testing.M) {
	harness.Main(m, map[string]func([]string) error{
		sdkSubscriptionsRole: func([]string) error { return sdkSubscriptions() },
	})
}
