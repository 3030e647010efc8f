package clients

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"github.com/tailscale/hujson"
)

const jsonSpace = " \t\r\n"

// style is how a text is laid out.
type style struct{ newline, unit string }

func styleOf(text []byte) style {
	s := style{newline: "\n", unit: "  "}
	if bytes.Contains(text, []byte("\r\n")) {
		s.newline = "\r\n"
	}
	for line := range bytes.Lines(text) {
		if indent := line[:len(line)-len(bytes.TrimLeft(line, " \t"))]; len(indent) > 0 &&
			len(bytes.TrimSpace(line)) > 0 {
			s.unit = string(indent)
			break
		}
	}
	return s
}

// insert adds a member at the end of the object v, after the comments that end it.
func (s style) insert(body []byte, v *hujson.Value, m member) []byte {
	o := v.Value.(*hujson.Object)
	open, shut := v.StartOffset, v.EndOffset-1
	end := len(bytes.TrimRight(body[:shut], jsonSpace)) // of what the object holds
	n := len(o.Members)
	if n > 0 && !bytes.Contains(body[open:shut], []byte("\n")) { // all on one line
		return splice(body, o, end, " "+s.render(m, "", true))
	}
	outer := indentOf(body, open)
	inner := outer + s.unit
	if n > 0 {
		if first := o.Members[0].Name.StartOffset; strings.TrimSpace(string(body[lineStart(body, first):first])) == "" {
			inner = string(body[lineStart(body, first):first])
		}
	}
	chunk := s.newline + inner + s.render(m, inner, false)
	if !bytes.Contains(body[end:shut], []byte("\n")) {
		chunk += s.newline + outer
	}
	return splice(body, o, end, chunk)
}

// splice inserts chunk at end, with the comma that separates it from the members before.
func splice(body []byte, o *hujson.Object, end int, chunk string) []byte {
	n := len(o.Members)
	if n == 0 {
		return slices.Concat(body[:end], []byte(chunk), body[end:])
	}
	last := o.Members[n-1].Value
	if last.AfterExtra != nil { // there is a trailing comma, and stays one
		if rest := strings.TrimLeft(chunk, jsonSpace); len(rest) < len(chunk) && strings.Contains(chunk, "\n") {
			chunk = strings.TrimRight(chunk, jsonSpace) + "," + chunk[len(strings.TrimRight(chunk, jsonSpace)):]
		}
		return slices.Concat(body[:end], []byte(chunk), body[end:])
	}
	return slices.Concat(body[:last.EndOffset], []byte(","), body[last.EndOffset:end], []byte(chunk), body[end:])
}

// cut removes a member with its comma. Comments before and after it stay.
func cut(body []byte, o *hujson.Object, i int) []byte {
	m := o.Members[i]
	start := len(bytes.TrimRight(body[:m.Name.StartOffset], jsonSpace))
	end := m.Value.EndOffset
	hasComma := i < len(o.Members)-1 || m.Value.AfterExtra != nil
	if hasComma {
		comma := end + len(m.Value.AfterExtra)
		if len(bytes.Trim(m.Value.AfterExtra, jsonSpace)) > 0 { // keep the comment between value and comma
			body = slices.Concat(body[:comma], body[comma+1:])
		} else {
			end = comma + 1
		}
	}
	if start > 0 && inLineComment(body, start) && !startsWithNewline(body[end:]) {
		start += bytes.IndexByte(body[start:], '\n') + 1 // the comment keeps its end
	}
	out := slices.Concat(body[:start], body[end:])
	if hasComma || i == 0 {
		return out
	}
	last := o.Members[i-1].Value // now the last one, whose comma goes too
	comma := last.EndOffset + len(last.AfterExtra)
	return slices.Concat(out[:comma], out[comma+1:])
}

// inLineComment reports whether the text before end may end in a comment that its newline ends.
func inLineComment(body []byte, end int) bool {
	return bytes.Contains(body[lineStart(body, end):end], []byte("//"))
}

func startsWithNewline(rest []byte) bool {
	rest = bytes.TrimLeft(rest, " \t\r")
	return len(rest) > 0 && rest[0] == '\n'
}

func lineStart(body []byte, at int) int { return bytes.LastIndexByte(body[:at], '\n') + 1 }

// indentOf returns the space at the beginning of the line of an offset.
func indentOf(body []byte, at int) string {
	line := body[lineStart(body, at):at]
	return string(line[:len(line)-len(bytes.TrimLeft(line, " \t"))])
}

// render writes a member at an indentation, on one line or on several.
func (s style) render(m member, indent string, oneLine bool) string {
	key := quote(m.key) + ": "
	o, ok := m.value.(object)
	if !ok {
		return key + literal(m.value)
	}
	var members []string
	for _, e := range o {
		members = append(members, s.render(e, indent+s.unit, oneLine))
	}
	if oneLine || len(members) == 0 {
		return key + "{" + strings.Join(members, ", ") + "}"
	}
	begin := s.newline + indent + s.unit
	return key + "{" + begin + strings.Join(members, ","+begin) + s.newline + indent + "}"
}

func literal(value any) string {
	switch v := value.(type) {
	case bool:
		if v {
			return "true"
		}
		return "false"
	case []string:
		list := make([]string, len(v))
		for i, e := range v {
			list[i] = quote(e)
		}
		return "[" + strings.Join(list, ", ") + "]"
	}
	if s, ok := value.(string); ok {
		return quote(s)
	}
	text, err := json.Marshal(value) // of what was decoded from JSON, which has no value without a form
	if err != nil {
		return "null"
	}
	return string(text)
}

func quote(s string) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.Encode(s) // a string cannot fail
	return strings.TrimSpace(b.String())
}
