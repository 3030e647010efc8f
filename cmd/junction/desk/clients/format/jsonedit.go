package format

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

// insert adds a member at the end of an object, after the comments that end it. outer is the
// indentation of the line on which the object begins. A trailing comma stays one.
func (s style) insert(o *hujson.Object, outer string, m Member) {
	comments := bytes.TrimRight(o.AfterExtra, jsonSpace)
	space := o.AfterExtra[len(comments):]
	n := len(o.Members)
	oneLine := n > 0 && !bytes.Contains(hujson.Value{Value: o}.Pack(), []byte("\n"))
	inner, before := outer+s.unit, " "
	if !oneLine {
		if n > 0 {
			first := o.Members[0].Name.BeforeExtra
			if i := bytes.LastIndexByte(first, '\n'); i >= 0 && len(bytes.TrimSpace(first[i:])) == 0 {
				inner = string(first[i+1:])
			}
		}
		if before = s.newline + inner; !bytes.Contains(space, []byte("\n")) {
			space = slices.Concat([]byte(s.newline+outer), space)
		}
	}
	added := hujson.ObjectMember{
		Name:  hujson.Value{BeforeExtra: slices.Concat(comments, []byte(before)), Value: hujson.String(m.Key)},
		Value: hujson.Value{BeforeExtra: []byte(" "), Value: hujson.Literal(s.render(m.Value, inner, oneLine))},
	}
	if n > 0 && o.Members[n-1].Value.AfterExtra != nil { // a trailing comma
		added.Value.AfterExtra = hujson.Extra{}
	}
	o.Members, o.AfterExtra = append(o.Members, added), space
}

// cut removes a member with its comma. Comments before and after it stay.
func cut(o *hujson.Object, i int) {
	m := o.Members[i]
	before, after := m.Name.BeforeExtra, &o.AfterExtra
	isLast := i == len(o.Members)-1
	if !isLast {
		after = &o.Members[i+1].Name.BeforeExtra
	}
	if len(bytes.Trim(m.Value.AfterExtra, jsonSpace)) > 0 { // a comment between value and comma
		*after = slices.Concat(m.Value.AfterExtra, *after)
	}
	comments := bytes.TrimRight(before, jsonSpace)
	endsLine := bytes.Contains(comments[lineStart(comments, len(comments)):], []byte("//"))
	if endsLine && !bytes.HasPrefix(bytes.TrimLeft(*after, " \t\r"), []byte("\n")) { // the comment keeps its end
		comments = before[:len(comments)+bytes.IndexByte(before[len(comments):], '\n')+1]
	}
	*after = slices.Concat(comments, *after)
	if isLast && i > 0 { // the member before becomes the last one, with a comma only if this one has it
		last := &o.Members[i-1].Value
		if m.Value.AfterExtra == nil {
			o.AfterExtra, last.AfterExtra = slices.Concat(last.AfterExtra, o.AfterExtra), nil
		} else if last.AfterExtra == nil {
			last.AfterExtra = hujson.Extra{}
		}
	}
	o.Members = slices.Delete(o.Members, i, i+1)
}

func lineStart(body []byte, at int) int { return bytes.LastIndexByte(body[:at], '\n') + 1 }

// indentOf returns the space at the beginning of the line of an offset.
func indentOf(body []byte, at int) string {
	line := body[lineStart(body, at):at]
	return string(line[:len(line)-len(bytes.TrimLeft(line, " \t"))])
}

// render writes a value at an indentation, on one line or on several.
func (s style) render(value any, indent string, oneLine bool) string {
	if text, ok := value.(written); ok {
		return string(text)
	}
	inner := indent + s.unit
	if list, ok := value.([]Object); ok {
		items := make([]string, len(list))
		for i, item := range list {
			items[i] = s.render(item, inner, oneLine)
		}
		if oneLine {
			return "[" + strings.Join(items, ", ") + "]"
		}
		return "[" + s.newline + inner + strings.Join(items, ","+s.newline+inner) + s.newline + indent + "]"
	}
	o, ok := value.(Object)
	if !ok {
		return Literal(value)
	}
	var members []string
	for _, m := range o {
		members = append(members, Literal(m.Key)+": "+s.render(m.Value, inner, oneLine))
	}
	if oneLine || len(members) == 0 {
		return "{" + strings.Join(members, ", ") + "}"
	}
	return "{" + s.newline + inner + strings.Join(members, ","+s.newline+inner) + s.newline + indent + "}"
}

// Literal returns a value as JSON on one line, with spaces in a list of texts. A text, a list of
// texts and a bool are written the same in TOML.
func Literal(value any) string {
	if list, ok := value.([]string); ok {
		words := make([]string, len(list))
		for i, word := range list {
			words[i] = Literal(word)
		}
		return "[" + strings.Join(words, ", ") + "]"
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if e.Encode(value) != nil { // unreachable: value was decoded from a file, or is one of a client's entry
		return "null"
	}
	return strings.TrimSpace(b.String())
}
