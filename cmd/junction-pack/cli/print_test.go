package cli

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"junction/cmd/pack"
	"junction/cmd/pack/manifest"
	"junction/cmd/pack/openapi"
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

// TestLimitsOfAKindAreShown: only the limits that the kind of a tool uses are shown.
func TestLimitsOfAKindAreShown(t *testing.T) {
	bounds := manifest.Limits{Timeout: time.Second, MaxOutput: 9, Concurrency: 2}
	for _, tt := range []struct {
		tool *pack.Tool
		want string
	}{
		{&pack.Tool{Operation: &openapi.Operation{}}, "1s, 9 bytes of output, 2 calls at the same time"},
		{&pack.Tool{Source: &manifest.Tool{Kind: manifest.CommandKind}}, "1s, 9 bytes of output, 2 calls at the same time"},
		{&pack.Tool{Source: &manifest.Tool{Kind: &manifest.Kind{Key: "constant"}}}, "1s, 2 calls at the same time"},
	} {
		tt.tool.Limits = bounds
		if got := limits(tt.tool); got != tt.want {
			t.Errorf("%q, want %q", got, tt.want)
		}
	}
}

// TestInitNamesACommand: the hint of init works in any folder, for a folder with any name.
func TestInitNamesACommand(t *testing.T) {
	root := t.TempDir()
	for name, want := range map[string]string{
		"dev":           "junction add dev " + filepath.Join(root, "dev"),
		"dev tools, v1": "junction add dev-tools-v1 '" + filepath.Join(root, "dev tools, v1") + "'",
		"…":             "junction add tools ",
	} {
		var out strings.Builder
		if err := Init(&out, filepath.Join(root, name)); err != nil || !strings.Contains(out.String(), "\n  "+want) {
			t.Errorf("%s (%v), want %s", out.String(), err, want)
		}
	}
}
