package call

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"junction/cmd/junction/base/cli"
	"junction/upstream/prose"
)

// listWidth limits the width of a list of tools, in characters. A narrower terminal has narrower lines.
const listWidth = 100

// linesOf returns the width of a list of tools for w.
func linesOf(w io.Writer) int {
	if columns := cli.Columns(w); columns > 0 && columns < listWidth {
		return columns
	}
	return listWidth
}

// toolsText returns one line per tool: its name, and its title or the first line of its
// description, cut to the width of the list.
func toolsText(tools []listedTool, most int) string {
	if len(tools) == 0 {
		return "no tools\n"
	}
	width := len("NAME")
	for _, t := range tools {
		width = max(width, utf8.RuneCountInString(prose.Flat(t.name)))
	}
	width = min(width, most/2) // a longer name shifts only its own line
	var b bytes.Buffer
	line := func(name, about string) {
		line := fmt.Sprintf("%-*s  ", width, name)
		line += prose.Cut(about, max(most-utf8.RuneCountInString(line), 0))
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	line("NAME", "WHAT IT DOES")
	for _, t := range tools {
		first, _, _ := strings.Cut(strings.TrimSpace(t.description), "\n")
		line(prose.Flat(t.name), cmp.Or(prose.Flat(t.title), prose.Flat(first)))
	}
	return b.String()
}

// maxShown limits the texts of a server that one tool shows.
const maxShown = 2000

// toolText returns a tool with its arguments, the required ones first, on an empty page.
func toolText(b *prose.Page, t listedTool) string {
	b.Wrap("", "", prose.Flat(t.name))
	for _, text := range []string{t.title, t.description} {
		if text = prose.Cut(prose.Flat(text), maxShown); text != "" {
			b.Wrap("  ", "  ", text)
		}
	}
	properties, required := membersOf(membersOf(t.schema)["properties"]), t.required()
	if len(properties) == 0 {
		b.WriteString("\nNo arguments\n")
		return b.String()
	}
	b.WriteString("\nArguments\n")
	optional := func(key string) int {
		if slices.Contains(required, key) {
			return 0
		}
		return 1
	}
	keys := slices.SortedFunc(maps.Keys(properties), func(a, b string) int {
		return cmp.Or(optional(a)-optional(b), strings.Compare(a, b))
	})
	for _, key := range keys {
		line := prose.Cut(prose.Flat(key), maxShown)
		kinds := t.shownTypes(properties[key], 0)
		if optional(key) == 0 {
			kinds = append(kinds, "required")
		}
		if len(kinds) > 0 {
			line += " (" + prose.Cut(prose.Flat(strings.Join(kinds, ", ")), maxShown) + ")"
		}
		if about := prose.Flat(stringOf(membersOf(properties[key])["description"])); about != "" {
			line += ": " + prose.Cut(about, maxShown)
		}
		b.Wrap("  ", "    ", line)
	}
	return b.String()
}

// toolsJSON returns the definitions unchanged, in the form of a tools/list result.
func toolsJSON(tools []listedTool) map[string][]json.RawMessage {
	list := []json.RawMessage{}
	for _, t := range tools {
		list = append(list, t.raw)
	}
	return map[string][]json.RawMessage{"tools": list}
}

// PrintJSON writes indented JSON. Only white space changes.
func PrintJSON(w io.Writer, raw json.RawMessage) error {
	var b bytes.Buffer
	if err := json.Indent(&b, bytes.TrimSpace(raw), "", "  "); err != nil {
		return fmt.Errorf("writing the result: %w", err)
	}
	b.WriteByte('\n')
	_, err := b.WriteTo(w)
	return err
}

// resultFailed reports whether a tools/call result has isError: true.
func resultFailed(result json.RawMessage) bool {
	return string(membersOf(result)["isError"]) == "true"
}

// printResult writes a tools/call result for a person: text unchanged (but harmless at a terminal),
// and one descriptive line for any other content. It prints structured content only if there is no
// text, because otherwise both have the same information.
func printResult(w io.Writer, result json.RawMessage) error {
	m := membersOf(result)
	var content []json.RawMessage
	if json.Unmarshal(m["content"], &content) != nil {
		content = nil
	}
	structured, hasStructured := m["structuredContent"]
	if len(content) == 0 && !hasStructured && !resultFailed(result) {
		// An unknown kind of result: a task, an elicitation, or a result of a later revision.
		if _, ok := m["content"]; !ok || stringOf(m["resultType"]) == "input_required" {
			return PrintJSON(w, result)
		}
	}
	var b bytes.Buffer
	hasText := false
	for _, item := range content {
		line := describe(item)
		hasText = hasText || stringOf(membersOf(item)["type"]) == "text" && line != ""
		b.WriteString(line)
		if line != "" && !strings.HasSuffix(line, "\n") {
			b.WriteByte('\n')
		}
	}
	if hasStructured && !hasText {
		if err := PrintJSON(&b, structured); err != nil {
			return err
		}
	}
	if cli.IsTerminal(w) {
		_, err := io.WriteString(w, cli.Harmless(b.String()))
		return err
	}
	_, err := b.WriteTo(w)
	return err
}

// describe renders one content item.
func describe(item json.RawMessage) string {
	m := membersOf(item)
	switch kind := stringOf(m["type"]); kind {
	case "text":
		return stringOf(m["text"])
	case "image", "audio":
		return fmt.Sprintf("[%s %s, %s]", kind, cmp.Or(prose.Flat(stringOf(m["mimeType"])), "of unknown type"),
			sizeOf(stringOf(m["data"])))
	case "resource_link":
		return fmt.Sprintf("[resource %s %s]", prose.Flat(cmp.Or(stringOf(m["title"]), stringOf(m["name"]))),
			prose.Flat(stringOf(m["uri"])))
	case "resource":
		r := membersOf(m["resource"])
		about := "[resource " + prose.Flat(stringOf(r["uri"]))
		if mime := prose.Flat(stringOf(r["mimeType"])); mime != "" {
			about += " " + mime
		}
		if body, ok := r["text"]; ok {
			return about + "]\n" + stringOf(body)
		}
		return about + ", " + sizeOf(stringOf(r["blob"])) + "]"
	default:
		return fmt.Sprintf("[%s; --output json shows it]", cmp.Or(prose.Flat(kind), "content of unknown type"))
	}
}

// sizeOf returns the readable size of the data in base64 text.
func sizeOf(encoded string) string {
	return cli.Size(base64.RawStdEncoding.DecodedLen(len(strings.TrimRight(encoded, "="))))
}
