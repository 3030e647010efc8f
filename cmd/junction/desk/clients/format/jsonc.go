package format

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/tailscale/hujson"
)

// JSON is JSON with comments and trailing commas. Its edits are insertions and deletions of
// bytes, each checked against what the text means before and after.
type JSON struct{}

const byteOrderMark = "\xef\xbb\xbf"

// maxNesting bounds the recursion of the parsers.
const maxNesting = 500

// parseJSON returns the syntax tree of a text. A text of nothing but space is an empty object.
func parseJSON(text []byte) (*hujson.Value, error) {
	if !utf8.Valid(text) {
		return nil, &SyntaxError{Line: lineOfBadUTF8(text),
			Err: errors.New("is not UTF-8 text; save the file as UTF-8")}
	}
	if line := tooDeep(text); line > 0 {
		return nil, &SyntaxError{Line: line, Err: fmt.Errorf("has more than %d nested values", maxNesting)}
	}
	if len(bytes.TrimSpace(text)) == 0 {
		text = slices.Concat([]byte("{"), text, []byte("}"+styleOf(text).newline))
	}
	v, err := hujson.Parse(text)
	if err != nil { // the parser wants a newline after a comment, also at the end
		again, stillWrong := hujson.Parse(append(slices.Clip(text), '\n'))
		if stillWrong != nil {
			return nil, jsonError(err)
		}
		v = again
		v.AfterExtra = bytes.TrimSuffix(v.AfterExtra, []byte("\n"))
	}
	return &v, nil
}

var hujsonLine = regexp.MustCompile(`^hujson: line (\d+), column \d+: `)

// jsonError takes the line out of an error of the parser.
func jsonError(err error) error {
	reason := err.Error()
	m := hujsonLine.FindStringSubmatch(reason)
	if m == nil {
		return &SyntaxError{Err: errors.New("is not JSON: " + reason)}
	}
	line, _ := strconv.Atoi(m[1])
	return &SyntaxError{Line: line, Err: errors.New("is not JSON: " + strings.TrimPrefix(reason, m[0]))}
}

func lineOfBadUTF8(text []byte) int {
	n := 0
	for line := range bytes.Lines(text) {
		if n++; !utf8.Valid(line) {
			break
		}
	}
	return n
}

// tooDeep returns the line on which the nesting exceeds the limit, or 0.
func tooDeep(text []byte) int {
	depth, line := 0, 1
	for i := 0; i < len(text); i++ {
		switch c := text[i]; c {
		case '\n':
			line++
		case '{', '[':
			if depth++; depth > maxNesting {
				return line
			}
		case '}', ']':
			depth--
		case '"':
			for i++; i < len(text) && text[i] != '"' && text[i] != '\n'; i++ {
				if text[i] == '\\' {
					i++
				}
			}
		case '/':
			end := ""
			if bytes.HasPrefix(text[i:], []byte("//")) {
				end = "\n"
			} else if bytes.HasPrefix(text[i:], []byte("/*")) {
				end = "*/"
			}
			if n := bytes.Index(text[min(i+2, len(text)):], []byte(end)); end != "" && n >= 0 {
				line += bytes.Count(text[i:i+2+n+len(end)], []byte("\n"))
				i += 1 + n + len(end)
			}
		}
	}
	return 0
}

// Decode implements Format. Numbers keep their digits.
func (JSON) Decode(body []byte) (any, error) {
	v, err := parseJSON(body)
	if err != nil {
		return nil, err
	}
	return plain(*v)
}

func plain(v hujson.Value) (any, error) {
	v = v.Clone()
	v.Standardize()
	d := json.NewDecoder(bytes.NewReader(v.Pack()))
	d.UseNumber()
	var tree any
	if err := d.Decode(&tree); err != nil {
		return nil, &SyntaxError{Err: fmt.Errorf("is not JSON: %w", err)}
	}
	return tree, nil
}

// locate parses a text, and finds the object of keys as find does.
func locate(text []byte, keys []string) (root, at *hujson.Value, depth int, err error) {
	if root, err = parseJSON(text); err == nil {
		at, depth, err = find(root, keys)
	}
	return root, at, depth, err
}

// find returns the object that keys lead to, and how many of the keys exist. The last object is
// that of the deepest key which exists.
func find(v *hujson.Value, keys []string) (at *hujson.Value, depth int, err error) {
	for {
		o, ok := v.Value.(*hujson.Object)
		if !ok {
			if depth == 0 {
				return nil, 0, &SyntaxError{Err: errors.New("has no object at the root; begin the file with {")}
			}
			return nil, 0, &SyntaxError{Err: fmt.Errorf("the value of %s is not an object; replace it by {}",
				strings.Join(keys[:depth], "."))}
		}
		if depth == len(keys) {
			return v, depth, nil
		}
		i, err := indexOf(o, keys[depth])
		if err != nil {
			return nil, 0, err
		}
		if i < 0 {
			return v, depth, nil
		}
		v = &o.Members[i].Value
		depth++
	}
}

// indexOf returns the member of a name, or -1. A name that occurs twice is an error, because
// programs differ in which of the two counts.
func indexOf(o *hujson.Object, name string) (int, error) {
	at := -1
	for i := range o.Members {
		if o.Members[i].Name.Value.(hujson.Literal).String() != name {
			continue
		}
		if at >= 0 {
			return 0, &SyntaxError{Err: fmt.Errorf("has the key %q twice; remove one of them", name)}
		}
		at = i
	}
	return at, nil
}

// split takes the byte order mark off a text.
func split(text []byte) (mark, body []byte) {
	if rest, ok := bytes.CutPrefix(text, []byte(byteOrderMark)); ok {
		return text[:len(byteOrderMark)], rest
	}
	return nil, text
}

func (JSON) Servers(text []byte, keys []string) ([]Server, error) {
	_, body := split(text)
	_, at, depth, err := locate(body, keys)
	if err != nil || depth < len(keys) {
		return nil, err
	}
	list := []Server{}
	for _, m := range at.Value.(*hujson.Object).Members {
		r := Server{Name: m.Name.Value.(hujson.Literal).String(),
			Line: 1 + bytes.Count(body[:m.Name.StartOffset], []byte("\n"))}
		tree, err := plain(m.Value)
		if err != nil {
			return nil, err
		}
		r.Fields, _ = tree.(map[string]any)
		list = slices.DeleteFunc(list, func(other Server) bool { return other.Name == r.Name }) // the last one counts
		list = append(list, r)
	}
	return list, nil
}

func (f JSON) Add(text []byte, keys []string, name string, entry Object) ([]byte, error) {
	return f.insert(text, keys, Member{name, entry}, entry.Tree())
}

var errNoBlock = errors.New("it is not recorded how the server was written")

// Block is the value of the server.
func (JSON) Block(text []byte, keys []string, s Server) string {
	_, body := split(text)
	_, at, depth, err := locate(body, keys)
	if err != nil || depth < len(keys) {
		return ""
	}
	o := at.Value.(*hujson.Object)
	i, err := indexOf(o, s.Name)
	if err != nil || i < 0 {
		return ""
	}
	value := o.Members[i].Value
	return string(hujson.Value{Value: value.Value}.Pack())
}

func (f JSON) Restore(text []byte, keys []string, name, block string) ([]byte, error) {
	tree, err := f.Decode([]byte(block))
	want, ok := tree.(map[string]any)
	if err != nil || !ok {
		return nil, errors.Join(err, errNoBlock)
	}
	return f.insert(text, keys, Member{name, written(block)}, want)
}

// insert adds a member, which means want.
func (f JSON) insert(text []byte, keys []string, m Member, want map[string]any) ([]byte, error) {
	return edit(f, text, keys, m.Key, want, func(body []byte) ([]byte, error) {
		root, at, depth, err := locate(body, keys)
		if err != nil {
			return nil, err
		}
		m := m
		for _, key := range slices.Backward(keys[depth:]) {
			m = Member{key, Object{m}}
		}
		body = root.Pack()
		styleOf(body).insert(at.Value.(*hujson.Object), indentOf(body, at.StartOffset), m)
		return root.Pack(), nil
	})
}

func (f JSON) Remove(text []byte, keys []string, name string) ([]byte, error) {
	return edit(f, text, keys, name, nil, func(body []byte) ([]byte, error) {
		root, at, depth, err := locate(body, keys)
		if err != nil {
			return nil, err
		}
		i := -1
		if depth == len(keys) {
			i, err = indexOf(at.Value.(*hujson.Object), name)
		}
		if err != nil || i < 0 {
			return nil, errors.Join(err, fmt.Errorf("there is no server %q", name))
		}
		cut(at.Value.(*hujson.Object), i)
		return root.Pack(), nil
	})
}

// edit changes the text of a file, and makes sure that the change did what it was to do: the server
// has the value want, or is gone if that is nil, and everything else means the same.
func edit(f Format, text []byte, keys []string, name string, want map[string]any,
	change func(body []byte) ([]byte, error)) ([]byte, error) {
	mark, body := split(text)
	was, err := f.Decode(body)
	if err != nil {
		return nil, err
	}
	if body, err = change(body); err != nil {
		return nil, err
	}
	is, err := f.Decode(body)
	if err != nil {
		return nil, fmt.Errorf("cannot edit the file: %w", err)
	}
	if err := checkTrees(was, is, keys, name, want); err != nil {
		return nil, err
	}
	return slices.Concat(mark, body), nil
}

func checkTrees(was, is any, keys []string, name string, want map[string]any) error {
	at, ok := was.(map[string]any)
	for _, key := range keys {
		if !ok {
			break
		}
		if at[key] == nil && want != nil {
			at[key] = map[string]any{}
		}
		at, ok = at[key].(map[string]any)
	}
	if !ok {
		return errors.New("cannot edit the file: the servers are not in an object")
	}
	if want != nil {
		at[name] = want
	} else if delete(at, name); len(at) == 0 {
		if root, _ := is.(map[string]any); root != nil && root[keys[0]] == nil {
			root[keys[0]] = at // in TOML, the parent of a table may exist only through it
		}
	}
	if !reflect.DeepEqual(was, is) {
		return errors.New("cannot edit the file without changing something else; edit it by hand")
	}
	return nil
}
