// Package approval makes the form in which a user sees the exact call that a policy wants approved,
// and reads the answer.
package approval

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"junction/policy"
	"junction/proxy/canon"
	"junction/upstream/raw"
	"junction/upstream/shell"
)

// The answers that a user can choose. The form shows these texts, so that it is the same in every
// version of the protocol.
const (
	Once     = "Allow once"
	Remember = "Allow and remember for this exact call"
	No       = "Do not allow"

	anyOfTool   = "Allow any call of this tool"
	anyOfServer = "Allow any call of any tool of this server"
	forSession  = " until this session ends"
	forHour     = " for one hour"
)

// Offer is what the form of a call lets the user choose.
type Offer struct {
	Most    policy.Span // the most that an approval may cover
	Session bool        // an approval is remembered until a session ends; else for an hour
}

// choices returns the texts of the choices that allow the call, by what they cover.
func (o Offer) choices() []string {
	lasts := forHour
	if o.Session {
		lasts = forSession
	}
	// one of each span: else it does not compile
	var all [policy.SpanServer + 1]string = [...]string{Once, Remember, anyOfTool + lasts, anyOfServer + lasts}
	return all[:min(o.Most, policy.SpanServer)+1]
}

// Chosen returns what the user has allowed. It returns false if the user did not accept, or has chosen
// something that was not offered.
func (o Offer) Chosen(answer []byte) (policy.Span, bool) {
	given, _ := raw.Parse(answer) // what is missing or ambiguous is ""
	if action, _ := given.String("action"); action != "accept" {
		return 0, false
	}
	content, _ := given.Object("content")
	text, _ := content.String("answer")
	i := slices.Index(o.choices(), text)
	return policy.Span(max(i, 0)), i >= 0
}

// Bounds of a form. A call beyond them cannot be approved, because its user could not see all of it.
const (
	MaxShown = 32 << 10 // bytes of the whole text, with the escapes
	maxNames = 100      // arguments, other parameters and members of _meta
	maxDepth = 16       // of nested lists and objects
)

// Call is what a user approves: everything of a request that reaches the server.
type Call struct {
	Server    string
	Kind      string   // of the target: tool, prompt or resource
	Name      string   // its own name at the server, or its URI
	Folders   []string // of the client that the server works in: its folder, then its other roots; empty for none
	Arguments []byte   // JSON; nil for none
	Others    []byte   // JSON object of the other params; nil for none
	Meta      []byte   // JSON of _meta without the members that the protocol puts there; nil for none
	Offer     Offer
}

// Form returns the params of the elicitation that shows a call. The text is Junction's own; texts of
// upstreams begin with the upstream's name in brackets. The text shows everything of the call, with
// escapes for characters that the user would not see. The error says why it cannot.
func Form(c Call) ([]byte, error) {
	if !utf8.ValidString(c.Name) {
		return nil, fmt.Errorf("the name of the %s is not UTF-8", c.Kind)
	}
	f := form{left: maxNames}
	fmt.Fprintf(&f.text, "This call needs your approval.\nServer: %s\n%s: %s", c.Server,
		strings.ToUpper(c.Kind[:1])+c.Kind[1:], plain(c.Name))
	for i, folder := range c.Folders {
		switch i {
		case 0:
			fmt.Fprintf(&f.text, "\nFolder: %s", plain(folder))
		case 1:
			f.text.WriteString("\nOther folders:")
			fallthrough
		default:
			fmt.Fprintf(&f.text, "\n  %s", plain(folder))
		}
	}
	for _, part := range []struct {
		title, what string
		text        []byte
	}{
		{"Arguments", "arguments", c.Arguments},
		{"Other parameters", "parameters", c.Others},
		{"_meta", "_meta", c.Meta},
	} {
		if part.text == nil {
			continue
		}
		if err := f.show(part.title, part.text); err != nil {
			return nil, fmt.Errorf("%s: %w", part.what, err)
		}
	}
	if f.text.Len() > MaxShown {
		return nil, errLong
	}
	b := raw.AppendQuote([]byte(`{"message":`), f.text.String())
	return append(b, `,"requestedSchema":{"type":"object","properties":{"answer":{"type":"string",`+
		`"title":"Allow this call?","enum":["`+strings.Join(append(c.Offer.choices(), No), `","`)+
		`"]}},"required":["answer"]}}`...), nil
}

var (
	errLong = fmt.Errorf("it takes more than the %d bytes that a form shows", MaxShown)
	errMany = fmt.Errorf("there are more than the %d names that a form shows", maxNames)
	errDeep = fmt.Errorf("it is nested deeper than the %d levels that a form shows", maxDepth)
	// a program that reads the first of two equal names would execute another call than was shown
	errUnclear = errors.New("a name occurs twice, or a text is not valid Unicode, so that programs may read it " +
		"in different ways")
)

// form is the text of a form.
type form struct {
	text strings.Builder
	left int // names that it may still show
}

// show appends a part: each member in a line of its own, so that the direction of a text changes the
// display of no other member. Lines cannot be forged, because line breaks in values are escaped.
func (f *form) show(title string, text []byte) error {
	if len(text) > 8*MaxShown { // before it is read: escapes and white space may be shorter when shown
		return errLong
	}
	switch _, err := raw.Scan(text, maxDepth); {
	case errors.Is(err, raw.ErrDepth):
		return errDeep
	case err != nil:
		return err
	}
	if _, ok := canon.Value(text); !ok {
		return errUnclear
	}
	text, err := canon.Text(text)
	if err != nil {
		return err
	}
	o, err := raw.Parse(text)
	if err != nil || o.Len() == 0 { // null, {}, or no object
		fmt.Fprintf(&f.text, "\n%s: %s", title, shell.Visible(string(text)))
		return nil
	}
	if f.left -= o.Len(); f.left < 0 {
		return errMany
	}
	fmt.Fprintf(&f.text, "\n%s:", title)
	for m := range o.All() {
		name, err := m.Name()
		if err != nil {
			return errUnclear
		}
		shown := plain(name)
		if strings.Contains(name, ":") {
			shown = shell.Visible(string(m.Key))
		}
		fmt.Fprintf(&f.text, "\n  %s: %s", shown, shell.Visible(string(m.Value)))
	}
	return nil
}

// plain returns a name as it is if no reader can mistake it, and else as JSON with escapes.
func plain(name string) string {
	if quoted := shell.Visible(string(raw.Quote(name))); quoted != `"`+name+`"` || name == "" ||
		strings.Contains(name, " ") {
		return quoted
	}
	return name
}
