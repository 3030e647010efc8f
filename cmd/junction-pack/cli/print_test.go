package cli

import (
	"fmt"
	"strings"
	"testing"

	"junction/cmd/pack/manifest"
)

// TestDescribeUnknownKind: a tool of a kind that describe does not know is not shown as a command.
func TestDescribeUnknownKind(t *testing.T) {
	var lines []string
	describe(func(key, format string, args ...any) {
		lines = append(lines, key+": "+fmt.Sprintf(format, args...))
	}, &manifest.Tool{Name: "new"})
	if len(lines) != 1 || !strings.HasPrefix(lines[0], "does: unknown: ") {
		t.Errorf("%q", lines)
	}
}
