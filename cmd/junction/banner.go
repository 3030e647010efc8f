package main

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"junction/cmd/junction/cli"
	"junction/cmd/junction/prose"
)

// bannerRow is the state of one upstream in the banner.
type bannerRow struct {
	Name      string
	State     string
	Era       string // empty if not known yet
	Tools     int
	LastError string // may have several lines; empty when there is none
}

// banner writes the text for the operator at the start: the address, the upstreams, and the lines
// to paste into clients. With keys, these lines read a key from the environment. banner writes
// once, so that log lines on the same terminal do not interrupt it, and ignores a write error.
func banner(w io.Writer, url string, keys bool, rows []bannerRow) {
	var b bytes.Buffer
	fmt.Fprintf(&b, "Junction serves %s\n\n", url)
	writeTable(&b, rows)
	lines := cli.ClientLines
	if keys {
		lines = clientLinesWithKey
	}
	b.WriteString(strings.ReplaceAll(lines, "URL", url))
	_, _ = b.WriteTo(w)
}

// clientLinesWithKey are the lines for clients that need an API key, from the variable
// JUNCTION_KEY.
const clientLinesWithKey = `
With a key of yours in JUNCTION_KEY (junction keys create makes one):

Claude Code
  claude mcp add --transport http junction URL \
    --header "Authorization: Bearer $JUNCTION_KEY"
Codex
  codex mcp add junction --url URL \
    --bearer-token-env-var JUNCTION_KEY
VS Code
  code --add-mcp \
    '{"name":"junction","type":"http","url":"URL",
     "headers":{"Authorization":"Bearer '"$JUNCTION_KEY"'"}}'
Cursor, in .cursor/mcp.json
  {"mcpServers": {"junction": {"url": "URL",
    "headers": {"Authorization": "Bearer ${env:JUNCTION_KEY}"}}}}
`

// writeTable writes one line for each upstream. The column LAST ERROR appears if an upstream has an
// error, and gets the remaining width.
func writeTable(b *bytes.Buffer, rows []bannerRow) {
	if len(rows) == 0 {
		b.WriteString("  no upstreams are configured\n")
		return
	}
	cells := [][5]string{{"UPSTREAM", "STATE", "ERA", "TOOLS", ""}}
	for _, r := range rows {
		tools := strconv.Itoa(r.Tools)
		if r.Tools == 0 && r.Era == "" {
			tools = "-" // never listed
		}
		cells = append(cells, [5]string{prose.Flat(r.Name), prose.Flat(r.State), cmp.Or(prose.Flat(r.Era), "-"), tools, prose.Flat(r.LastError)})
		if r.LastError != "" {
			cells[0][4] = "LAST ERROR"
		}
	}
	var width [4]int
	for _, row := range cells {
		for i := range width {
			width[i] = max(width[i], utf8.RuneCountInString(row[i]))
		}
	}
	for _, row := range cells {
		line := fmt.Sprintf("  %-*s  %-*s  %-*s  %*s  ", width[0], row[0], width[1], row[1], width[2], row[2], width[3], row[3])
		const least = 16 // minimum width of an error; with very long names the table exceeds prose.Width
		line += prose.Cut(row[4], max(least, prose.Width-utf8.RuneCountInString(line)))
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
}
