// Package format reads and edits the lists of servers in texts of JSON with comments, of TOML and of
// YAML. An edit adds or removes one server, changes no other byte, and is checked against what the
// text means before and after.
//
// jsonc.go and jsonedit.go have JSON, and the check of every edit. jsonlist.go edits a list of a JSON
// text. toml.go has TOML, and yaml.go has YAML. The package knows no client and no file: the caller
// says below which keys the servers are.
package format

// A Format reads and edits the text of a file. None of the methods changes its argument.
type Format interface {
	// Decode returns what a text without a byte order mark means.
	Decode(body []byte) (any, error)
	// Servers returns what is below keys, in the order of the file.
	Servers(text []byte, keys []string) ([]Server, error)
	// Add puts a server at the end of those below keys, which it creates if necessary. The server
	// must not exist.
	Add(text []byte, keys []string, name string, entry Object) ([]byte, error)
	// Remove takes a server out, which must exist.
	Remove(text []byte, keys []string, name string) ([]byte, error)
	// Block returns what Restore needs to put a server back as it is written; "" if the server
	// cannot be put back.
	Block(text []byte, keys []string, s Server) string
	// Restore puts a server back that was removed. The server must not exist.
	Restore(text []byte, keys []string, name, block string) ([]byte, error)
}

// A Server is a server as a file has it.
type Server struct {
	Name   string
	Line   int
	Fields map[string]any // nil if the value is not a mapping
}

// An Object is a mapping that keeps its order.
type Object []Member

// A Member is a key of an Object with its value.
type Member struct {
	Key   string
	Value any // string, bool, []string, Object, []Object, written, or what encoding/json decodes
}

// written is a value of a member as a file has it.
type written string

// Tree returns o as encoding/json would decode it.
func (o Object) Tree() map[string]any {
	m := map[string]any{}
	for _, e := range o {
		switch v := e.Value.(type) {
		case Object:
			m[e.Key] = v.Tree()
		case []string:
			list := make([]any, len(v))
			for i, s := range v {
				list[i] = s
			}
			m[e.Key] = list
		default:
			m[e.Key] = v
		}
	}
	return m
}

// Tree returns the members of a text of JSON; none if it cannot be parsed.
func Tree(text []byte) map[string]any {
	_, body := split(text)
	tree, _ := JSON{}.Decode(body)
	root, _ := tree.(map[string]any)
	return root
}

// A SyntaxError is a file that cannot be parsed.
type SyntaxError struct {
	Line int // 0 if it is unknown
	Err  error
}

// AtLine returns Line.
func (e *SyntaxError) AtLine() int { return e.Line }

func (e *SyntaxError) Error() string { return e.Err.Error() }
func (e *SyntaxError) Unwrap() error { return e.Err }
