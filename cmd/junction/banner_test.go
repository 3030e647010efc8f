package main

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"junction/cmd/junction/prose"
)

func TestBanner(t *testing.T) {
	var b strings.Builder
	banner(&b, "http://127.0.0.1:8420/mcp", false, []bannerRow{
		{Name: "demo", State: "ready", Era: "modern", Tools: 3},
		{Name: "empty", State: "ready", Era: "legacy"},
		{Name: "filesystem", State: "retrying", LastError: "starting npx:\n\texec: \x1b[31m\"npx\": executable file not found in $PATH"},
	})
	want := `Junction serves http://127.0.0.1:8420/mcp

  UPSTREAM    STATE     ERA     TOOLS  LAST ERROR
  demo        ready     modern      3
  empty       ready     legacy      0
  filesystem  retrying  -           -  starting npx: exec: [31m"npx": executabl…

Claude Code
  claude mcp add --transport http junction http://127.0.0.1:8420/mcp
Codex
  codex mcp add junction --url http://127.0.0.1:8420/mcp
VS Code
  code --add-mcp \
    '{"name":"junction","type":"http","url":"http://127.0.0.1:8420/mcp"}'
Cursor, in .cursor/mcp.json
  {"mcpServers": {"junction": {"url": "http://127.0.0.1:8420/mcp"}}}
`
	if got := b.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestBannerFits(t *testing.T) {
	long := strings.Repeat("what went wrong ", 20)
	for name, rows := range map[string][]bannerRow{
		"none":      nil,
		"no errors": {{Name: "demo", State: "ready", Era: "modern", Tools: 3}},
		"errors":    {{Name: "demo", State: "starting", LastError: long}, {Name: "other", State: "ready", Era: "legacy", Tools: 12345}},
	} {
		for _, keys := range []bool{false, true} {
			t.Run(fmt.Sprint(name, keys), func(t *testing.T) {
				var b strings.Builder
				banner(&b, "http://127.0.0.1:8420/mcp", keys, rows)
				for line := range strings.Lines(b.String()) {
					line = strings.TrimSuffix(line, "\n")
					if n := utf8.RuneCountInString(line); n > prose.Width {
						t.Errorf("%d columns, want at most %d: %s", n, prose.Width, line)
					}
					if strings.TrimRight(line, " ") != line {
						t.Errorf("space at the end of %q", line)
					}
				}
				if got, want := strings.Contains(b.String(), "LAST ERROR"), name == "errors"; got != want {
					t.Errorf("column of errors: %v, want %v", got, want)
				}
				if got, want := strings.Contains(b.String(), "no upstreams are configured"), name == "none"; got != want {
					t.Errorf("says that there are none: %v, want %v", got, want)
				}
				if got := strings.Count(b.String(), "Bearer"); (got > 0) != keys {
					t.Errorf("the lines for clients have %d headers with a key; want them: %v", got, keys)
				}
			})
		}
	}
}
