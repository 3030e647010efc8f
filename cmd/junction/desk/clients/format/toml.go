package format

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
)

// TOML is TOML. A server is a table; a new one is appended to the file.
type TOML struct{}

// expression is a table header or a key with its value.
type expression struct {
	keys   []string // from the root
	header bool
	start  int // the beginning of its line
	end    int // after its value, within its last line
}

// expressions returns the expressions of a text in their order.
func expressions(text []byte) ([]expression, error) {
	var p unstable.Parser
	p.Reset(text)
	var list []expression
	var table []string
	for p.NextExpression() {
		e := p.Expression()
		var keys []string
		start, end := -1, 0
		for it := e.Key(); it.Next(); {
			n := it.Node()
			keys = append(keys, string(n.Data))
			if start < 0 {
				start = lineStart(text, int(n.Raw.Offset))
			}
			end = int(n.Raw.Offset + n.Raw.Length)
		}
		if start < 0 {
			continue // a comment
		}
		if len(keys) > maxNesting {
			return nil, &SyntaxError{Line: line(text, start),
				Err: fmt.Errorf("has more than %d nested values", maxNesting)}
		}
		switch e.Kind {
		case unstable.Table, unstable.ArrayTable:
			table = keys
		case unstable.KeyValue:
			keys = slices.Concat(table, keys)
			end = int(e.Raw.Offset + e.Raw.Length)
		}
		list = append(list, expression{keys, e.Kind != unstable.KeyValue, start, end})
	}
	return list, p.Error()
}

func line(text []byte, at int) int { return 1 + bytes.Count(text[:at], []byte("\n")) }

// Decode implements Format.
func (TOML) Decode(body []byte) (any, error) {
	tree, _, err := decodeTOML(body)
	return tree, err
}

// decodeTOML returns what a text means, and its expressions.
func decodeTOML(text []byte) (map[string]any, []expression, error) {
	if !utf8.Valid(text) {
		return nil, nil, &SyntaxError{Line: lineOfBadUTF8(text),
			Err: errors.New("is not UTF-8 text; save the file as UTF-8")}
	}
	list, err := expressions(text)
	if err != nil {
		if syntax, ok := errors.AsType[*SyntaxError](err); ok {
			return nil, nil, syntax
		}
	}
	tree := map[string]any{}
	if err := toml.Unmarshal(text, &tree); err != nil { // its errors have the line
		at := 0
		if d, ok := errors.AsType[*toml.DecodeError](err); ok {
			at, _ = d.Position()
		}
		return nil, nil, &SyntaxError{Line: at,
			Err: errors.New("is not TOML: " + strings.TrimPrefix(err.Error(), "toml: "))}
	}
	if err != nil {
		return nil, nil, &SyntaxError{Err: errors.New("is not TOML: " + err.Error())}
	}
	return tree, list, nil
}

func (TOML) Servers(text []byte, keys []string) ([]Server, error) {
	_, body := split(text)
	tree, exprs, err := decodeTOML(body)
	if err != nil {
		return nil, err
	}
	var at any = tree
	for _, key := range keys {
		m, _ := at.(map[string]any)
		if at = m[key]; at == nil {
			return nil, nil
		}
	}
	servers, ok := at.(map[string]any)
	if !ok {
		return nil, &SyntaxError{Err: fmt.Errorf("has no table at %s", strings.Join(keys, "."))}
	}
	list := []Server{}
	for name, value := range servers {
		r := Server{Name: name, Line: 1}
		r.Fields, _ = value.(map[string]any)
		path := slices.Concat(keys, []string{name})
		for _, e := range exprs {
			if begins(e.keys, path) || begins(path, e.keys) && !e.header {
				r.Line = line(body, e.start)
				break
			}
		}
		list = append(list, r)
	}
	slices.SortFunc(list, func(a, b Server) int { return cmp.Or(a.Line-b.Line, strings.Compare(a.Name, b.Name)) })
	return list, nil
}

// begins reports whether path begins with all of prefix.
func begins(path, prefix []string) bool {
	return len(path) >= len(prefix) && slices.Equal(path[:len(prefix)], prefix)
}

func (f TOML) Add(text []byte, keys []string, name string, entry Object) ([]byte, error) {
	var b bytes.Buffer
	writeTable(&b, styleOf(text).newline, slices.Concat(keys, []string{name}), entry)
	return f.append(text, keys, name, b.String(), entry.Tree())
}

// append adds the tables of a server at the end. They mean want.
func (f TOML) append(text []byte, keys []string, name, tables string, want map[string]any) ([]byte, error) {
	return edit(f, text, keys, name, want, func(body []byte) ([]byte, error) {
		newline := styleOf(body).newline
		var b bytes.Buffer
		b.Write(body)
		if len(body) > 0 && body[len(body)-1] != '\n' {
			b.WriteString(newline)
		}
		if len(bytes.TrimSpace(body)) > 0 {
			b.WriteString(newline)
		}
		b.WriteString(tables)
		if _, err := f.Decode(b.Bytes()); err != nil {
			return nil, fmt.Errorf("cannot edit the file: %s is not a table of its own; edit it by hand",
				strings.Join(keys, "."))
		}
		return b.Bytes(), nil
	})
}

// Block is the tables of the server with the comments in them. A server that is written as keys of
// another table gets tables of its own.
func (TOML) Block(text []byte, keys []string, s Server) string {
	_, body := split(text)
	path := slices.Concat(keys, []string{s.Name})
	if block := linesOf(body, path); reflect.DeepEqual(serverIn(block, keys, s.Name), s.Fields) {
		return block
	}
	var tree any = s.Fields
	for _, key := range slices.Backward(path) {
		tree = map[string]any{key: tree}
	}
	anew, err := toml.Marshal(tree)
	if err != nil {
		return ""
	}
	return linesOf(anew, path)
}

// linesOf returns the lines of what is below path, without those between them that are not.
func linesOf(body []byte, path []string) string {
	exprs, err := expressions(body)
	if err != nil {
		return ""
	}
	var b strings.Builder
	runs(exprs, path, func(first, last expression) {
		run := string(body[first.start:lineEnd(body, last.end)])
		b.WriteString(run)
		if !strings.HasSuffix(run, "\n") {
			b.WriteString(styleOf(body).newline)
		}
	})
	return b.String()
}

func (f TOML) Restore(text []byte, keys []string, name, block string) ([]byte, error) {
	want := serverIn(block, keys, name)
	if want == nil {
		return nil, errNoBlock
	}
	return f.append(text, keys, name, block, want)
}

// serverIn returns a server of a text; nil if it is not there.
func serverIn(text string, keys []string, name string) map[string]any {
	at, _, err := decodeTOML([]byte(text))
	for _, key := range slices.Concat(keys, []string{name}) {
		at, _ = at[key].(map[string]any)
	}
	if err != nil {
		return nil
	}
	return at
}

func writeTable(b *bytes.Buffer, newline string, keys []string, o Object) {
	words := make([]string, len(keys))
	for i, key := range keys {
		words[i] = tomlKey(key)
	}
	b.WriteString("[" + strings.Join(words, ".") + "]" + newline)
	for _, m := range o {
		if _, ok := m.Value.(Object); !ok {
			b.WriteString(tomlKey(m.Key) + " = " + Literal(m.Value) + newline)
		}
	}
	for _, m := range o {
		if inner, ok := m.Value.(Object); ok {
			b.WriteString(newline)
			writeTable(b, newline, slices.Concat(keys, []string{m.Key}), inner)
		}
	}
}

var bareKey = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

func tomlKey(key string) string {
	if bareKey.MatchString(key) {
		return key
	}
	return Literal(key)
}

func (f TOML) Remove(text []byte, keys []string, name string) ([]byte, error) {
	return edit(f, text, keys, name, nil, func(body []byte) ([]byte, error) {
		exprs, err := expressions(body)
		if err != nil {
			return nil, err
		}
		path := slices.Concat(keys, []string{name})
		var out []byte
		from := 0                                        // of what is not yet in out
		runs(exprs, path, func(first, last expression) { // comments within the server go with it
			out = append(out, body[from:first.start]...)
			from = lineEnd(body, last.end)
		})
		out = append(out, body[from:]...)
		if trimmed := bytes.TrimRight(out, "\r\n"); from == len(body) && len(trimmed) > 0 {
			out = out[:min(lineEnd(out, len(trimmed)), len(out))] // no empty lines at the end
		}
		return out, nil
	})
}

// runs finds the expressions below path that follow each other.
func runs(exprs []expression, path []string, found func(first, last expression)) {
	for i := 0; i < len(exprs); i++ {
		if !begins(exprs[i].keys, path) {
			continue
		}
		first := exprs[i]
		for i+1 < len(exprs) && begins(exprs[i+1].keys, path) {
			i++
		}
		found(first, exprs[i])
	}
}

// lineEnd returns the offset after the line of an offset.
func lineEnd(text []byte, at int) int {
	if n := bytes.IndexByte(text[at:], '\n'); n >= 0 {
		return at + n + 1
	}
	return len(text)
}
