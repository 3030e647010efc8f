package policy

import (
	"fmt"
	"slices"
	"strings"
)

// Span is how many calls one approval of a person may cover. A larger Span includes the smaller ones.
type Span uint8

const (
	SpanOnce   Span = iota // this call
	SpanCall               // the same call again
	SpanTool               // any call of the tool
	SpanServer             // any call of any tool of the server
)

// Remember is a Span in the file; "" is call.
type Remember string

// Words returns the words of the file.
func (Remember) Words() []string { return []string{"once", "call", "tool", "server"} }

// UnmarshalText rejects unknown words.
func (r *Remember) UnmarshalText(text []byte) error {
	if *r = Remember(text); !slices.Contains(r.Words(), string(*r)) {
		return fmt.Errorf("%s is none of %s", show(string(text)), strings.Join(r.Words(), ", "))
	}
	return nil
}

func (r Remember) span() Span {
	switch r {
	case "", "call":
		return SpanCall
	case "tool":
		return SpanTool
	case "server":
		return SpanServer
	}
	return SpanOnce
}
