// Package approval makes the form in which a user sees the exact call that a policy wants approved,
// and reads the answer.
package approval

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"junction/proxy/visible"
	"junction/upstream/raw"
)

// The answers that a user can choose. The form shows these texts, so that it is the same in every
// version of the protocol.
const (
	Once     = "Allow once"
	Remember = "Allow and remember for this exact call"
	No       = "Do not allow"
)

// Chosen returns the user's choice; "" if the user did not accept.
func Chosen(answer []byte) string {
	o, _ := raw.Parse(answer) // what is missing or ambiguous is ""
	if action, _ := o.String("action"); action != "accept" {
		return ""
	}
	content, _ := o.Object("content")
	text, _ := content.String("answer")
	return text
}

// Form returns the params of the elicitation that shows a call: the server, the kind of the target
// (tool, prompt or resource), its own name there, and the JSON of the arguments. nil arguments are
// not mentioned. The text is Junction's own; texts of upstreams begin with the upstream's name in
// brackets.
func Form(server, kind, name string, arguments []byte) []byte {
	message := fmt.Sprintf("This call needs your approval.\nServer: %s\n%s: %s", server,
		strings.ToUpper(kind[:1])+kind[1:], shown(name, maxShown))
	if arguments != nil {
		message += "\nArguments: " + shownArguments(arguments)
	}
	b := raw.AppendQuote([]byte(`{"message":`), message)
	b = append(b, `,"requestedSchema":{"type":"object","properties":{"answer":{"type":"string",`+
		`"title":"Allow this call?","enum":["`+Once+`","`+Remember+`","`+No+`"]}},"required":["answer"]}}`...)
	return b
}

// maxShown bounds the arguments in an approval form, in bytes. The form reports omitted arguments
// and bytes. Each argument may have at least leastShown bytes.
const (
	maxShown   = 2000
	leastShown = 60
)

// shownArguments formats the arguments of a call for the user. It cuts each long argument
// separately, so that none hides another.
func shownArguments(text []byte) string {
	o, err := raw.Parse(text)
	if err != nil || len(text) <= maxShown {
		return shown(string(text), maxShown)
	}
	var b strings.Builder
	b.WriteByte('{')
	i, each := 0, max(leastShown, maxShown/max(1, o.Len()))
	for m := range o.All() {
		if i > 0 {
			b.WriteByte(',')
		}
		if b.Len() > 2*maxShown {
			fmt.Fprintf(&b, " … (%d more arguments are not shown)", o.Len()-i)
			break
		}
		b.WriteString(shown(string(m.Key), leastShown) + ":" + shown(string(m.Value), each))
		i++
	}
	return b.String() + "}"
}

// shown formats a text for a user's decision. It makes invisible characters visible and reports the
// number of omitted bytes.
func shown(text string, limit int) string {
	if len(text) <= limit {
		return visible.Text(text)
	}
	for limit > 0 && !utf8.RuneStart(text[limit]) {
		limit--
	}
	return visible.Text(text[:limit]) + fmt.Sprintf(" … (%d more bytes are not shown)", len(text)-limit)
}
