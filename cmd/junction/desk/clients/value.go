package clients

import "slices"

// Literal returns a value that stands for text itself, whatever references it seems to have.
func Literal(text string) Value { return Value{}.literal(text) }

// Secret returns a value that Render moves to a file. label says what it is.
func Secret(label, text string) Value { return Value{{kind: secret, text: text, label: label}} }

// Variable returns a reference to an environment variable of Junction.
func Variable(name string) Value { return Value{{kind: variable, text: name}} }

// Typed returns a value that a person has typed. It may have Junction's own references, and what
// looks like a secret in a field of that name becomes one.
func (h Home) Typed(field, text string) Value {
	r := &reader{place: Place{Client: junctionItself()}, home: h, client: junctionItself().syntax}
	return r.value(text).conceal(field, field)
}

// IsLiteral reports whether the value has neither a reference nor a secret.
func (v Value) IsLiteral() bool {
	return !slices.ContainsFunc(v, func(p part) bool {
		return p.kind != plainText && p.kind != folder && p.kind != window
	})
}

// junctionItself is the client whose references are Junction's.
func junctionItself() *Client {
	return &Client{Name: "Junction", syntax: dollar | fallback | dollarEnv | dollarFile}
}

// CommandLine returns the command for people, without secrets.
func (e *Entry) CommandLine() []string {
	var words []string
	for _, v := range e.Command {
		word := ""
		for _, p := range v {
			switch p.kind {
			case secret:
				word += "…"
			case variable:
				word += "${" + p.text + "}"
			case fileRef:
				word += "${file:" + p.text + "}"
			case window:
				word += FolderWord
			default:
				word += p.text
			}
		}
		words = append(words, word)
	}
	return words
}
