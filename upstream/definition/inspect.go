package definition

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/upstream/raw"
	"junction/upstream/transport"
)

// Finding is something about a definition that a person should know.
type Finding struct {
	Grave  bool   // something is missing, or looks like an attack; otherwise some clients have trouble with it
	Text   string // what is wrong, the same words for all items
	Detail string // of this one; "" for none
	Advice string // what to do, the same words for all items
}

const (
	longDescription = 2 << 10 // where clients begin to cut
	deepSchema      = 5       // levels of objects in objects
	manyProperties  = 100     // of one schema, all levels together
)

// AdviceAuthor is the advice about a fault that only the server's author can mend.
const AdviceAuthor = "tell the server's author"

const adviceRead = "read the definition before a model does; leave the tool out with enabled: false, or pin it"

// Title returns the title of an item, which old tools have among their annotations.
func Title(definition raw.Object) string {
	if title, err := definition.String("title"); err == nil {
		return title
	}
	annotations, _ := definition.Object("annotations")
	title, _ := annotations.String("title")
	return title
}

// Inspection is of one item.
type Inspection struct {
	Found []Finding

	properties int
}

// Find adds a finding, if the item has none of that text yet.
func (n *Inspection) Find(grave bool, text, detail, advice string) {
	if !slices.ContainsFunc(n.Found, func(f Finding) bool { return f.Text == text }) {
		n.Found = append(n.Found, Finding{grave, text, detail, advice})
	}
}

// Tool looks at what is there in tools only.
func (n *Inspection) Tool(definition raw.Object, headerProblem string) {
	if headerProblem != "" {
		n.Find(true, "not offered to clients of "+mcp.ProtocolVersion20260728, headerProblem, AdviceAuthor)
	}
	switch description, err := definition.String("description"); {
	case err != nil || strings.TrimSpace(description) == "":
		n.Find(false, "no description: a model has to guess", "", AdviceAuthor)
	case len(description) > longDescription:
		n.Find(false, "a description of more than 2 KB: some clients cut it, and every conversation pays for it",
			fmt.Sprintf("%.1f KB", float64(len(description))/1000),
			AdviceAuthor+", or leave out tools that no client needs (enabled: false)")
	}
	schema, err := definition.Object("inputSchema")
	if err != nil {
		return
	}
	for _, word := range []string{"anyOf", "oneOf", "allOf", "not", "enum"} {
		if _, err := schema.Get(word); err == nil {
			n.Find(false, "an inputSchema that begins with "+word+": some models' APIs refuse the whole list then", "",
				AdviceAuthor)
		}
	}
	if _, err := schema.Get("properties"); err != nil {
		n.Find(false, "an inputSchema without properties: some models' APIs refuse the whole list then", "",
			AdviceAuthor)
	}
	n.schema(schema, 1)
	if n.properties > manyProperties {
		n.Find(false, "a schema with very many properties: models fill it in badly, and some APIs refuse it",
			fmt.Sprint(n.properties), AdviceAuthor)
	}
}

// lazily compiles an expression when it is first used: these are large, and most processes never
// check anything.
func lazily(expression string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expression) })
}

// propertyName is what models' APIs take for the name of an argument.
var propertyName = lazily(`^[A-Za-z0-9_.-]{1,64}$`)

// schema looks at a schema and at those in it; level counts the objects that it is in.
func (n *Inspection) schema(o raw.Object, level int) {
	const trouble = ": some models' APIs refuse the whole list then"
	if ref, err := o.String("$ref"); err == nil && !strings.HasPrefix(ref, "#") {
		n.Find(false, "a $ref to somewhere else, which clients cannot follow", transport.Line([]byte(ref)),
			AdviceAuthor)
	}
	if kind, err := o.String("type"); err == nil && kind == "array" {
		_, err := o.Get("items")
		if _, also := o.Get("prefixItems"); err != nil && also != nil {
			n.Find(false, "an array without items"+trouble, "", AdviceAuthor)
		}
	}
	if properties, err := o.Object("properties"); err == nil {
		if level > deepSchema {
			n.Find(false, "a schema of more than 5 levels: models fill it in badly, and some APIs refuse it", "",
				AdviceAuthor)
		}
		var names []string
		for _, m := range properties.Members() {
			name, _ := m.Name()
			names = append(names, name)
			if !propertyName().MatchString(name) {
				n.Find(false, "an argument whose name some models' APIs refuse, with the whole list: they want 1 to "+
					"64 of A-Z a-z 0-9 _ . -", transport.Line([]byte(name)), AdviceAuthor)
			}
			n.properties++
			n.sub(m.Value, level+1)
		}
		required, _ := o.Elements("required")
		for _, r := range required {
			if name, err := raw.String(r); err == nil && !slices.Contains(names, name) {
				n.Find(false, "it requires an argument that it does not declare", transport.Line([]byte(name)),
					AdviceAuthor)
			}
		}
	}
	for _, m := range o.Members() {
		switch name, _ := m.Name(); name {
		case "items", "additionalProperties", "not", "if", "then", "else":
			n.sub(m.Value, level)
		case "anyOf", "oneOf", "allOf", "prefixItems":
			all, _ := raw.Elements(m.Value)
			for _, v := range all {
				n.sub(v, level)
			}
		case "$defs", "definitions", "patternProperties":
			all, _ := raw.Parse(m.Value)
			for _, d := range all.Members() {
				n.sub(d.Value, level)
			}
		}
	}
}

func (n *Inspection) sub(v []byte, level int) {
	if o, err := raw.Parse(v); err == nil {
		n.schema(o, level)
	}
}

// Texts looks at every text in v, member names included; in is the nearest member that it is in.
func (n *Inspection) Texts(v []byte, in string) {
	switch v[0] {
	case '"':
		s, err := raw.String(v)
		if err != nil {
			n.Find(true, "bytes that are no text", "in "+in, adviceRead)
			return
		}
		n.text(s, in)
	case '[':
		all, _ := raw.Elements(v)
		for _, e := range all {
			n.Texts(e, in)
		}
	case '{':
		o, _ := raw.Parse(v)
		for _, m := range o.Members() {
			name, _ := m.Name()
			n.text(name, "a member's name")
			n.Texts(m.Value, name)
		}
	}
}

func (n *Inspection) text(s, in string) {
	if r, ok := hidden(s); ok {
		n.Find(true, "characters that a person cannot see, and a model reads", fmt.Sprintf("U+%04X in %s", r,
			transport.Line([]byte(in))), adviceRead)
	}
	if farOut().MatchString(s) {
		n.Find(true, "text behind so much white space that a person does not see it", "in "+transport.Line([]byte(in)),
			adviceRead)
	}
	if found := secretPlaces().FindString(s); found != "" {
		n.Find(false, "the definition speaks of places where secrets lie", fmt.Sprintf("%q in %s", found,
			transport.Line([]byte(in))), adviceRead)
	}
	if found := commanding().FindString(s); found != "" {
		n.Find(true, "words that look like orders to a model", fmt.Sprintf("%q in %s", excerpt(found),
			transport.Line([]byte(in))), adviceRead)
	}
}

// excerpt returns one line of at most 60 characters.
func excerpt(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	if r := []rune(s); len(r) > 60 {
		s = string(r[:59]) + "…"
	}
	return s
}

// farOut is text that white space moves out of the reader's window.
var farOut = lazily(`[^\S\n]{80,}\S|(?:[^\S\n]*\n){25,}[^\S\n]*\S`)

// commanding is what attacks on models through the definitions of tools look like: tags that
// pretend to be a prompt's, words against what was said before, and secrecy toward the person. It
// finds the careless ones.
var commanding = lazily(`(?is)` + strings.Join([]string{
	`<\s*/?\s*(?:important|system|instructions?|secret|hidden|assistant|system[-_ ]?prompt|critical)\s*>`,
	`\[/?(?:inst|system)\]|<\|[a-z_]{2,20}\|>`,
	`\b(?:ignore|disregard|forget|override)\b[^.;]{0,40}` +
		`\b(?:previous|prior|above|earlier|all other|system)\b[^.;]{0,30}` +
		`\b(?:instructions?|prompts?|rules|messages|tools?)\b`,
	`\b(?:do not|don't|never|must not)\b[^.;]{0,20}` +
		`\b(?:tell|mention|reveal|inform|notify|alert|disclose)\b[^.;]{0,40}` +
		`\b(?:user|human|person|anyone)\b`,
	`\bwithout (?:telling|asking|informing|notifying|alerting) (?:the |a )?(?:user|human|person|anyone)\b`,
}, "|"))

// secretPlaces are read by servers that manage them, and by those that steal.
var secretPlaces = lazily(`~/\.(?:ssh|aws|gnupg|netrc|cursor|kube)\b|\bid_(?:rsa|ed25519)\b`)

// hidden returns the first character that is not to be seen though it says something: of direction,
// of no width, of tags, and controls.
func hidden(s string) (rune, bool) {
	last := rune(0)
	for _, r := range s {
		switch {
		case r == '\n' || r == '\r' || r == '\t':
		case r == 0x200D && last > 0x2000: // it joins emoji
		case r == 0x200C || r == 0x200D: // scripts of the Middle East and of India need them between letters
			if !unicode.IsLetter(last) && !unicode.IsMark(last) || last < 0x0600 {
				return r, true
			}
		case unicode.Is(unicode.Prepended_Concatenation_Mark, r):
		case unicode.IsControl(r), unicode.Is(unicode.Cf, r), unicode.Is(unicode.Co, r), 0xE0100 <= r && r <= 0xE01EF,
			0xFE00 <= r && r <= 0xFE0D:
			return r, true
		case r == 0x034F, r == 0x115F, r == 0x1160, r == 0x2800, r == 0x3164, r == 0xFFA0:
			return r, true
		}
		last = r
	}
	return 0, false
}
