package policy

import "fmt"

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

// UnmarshalText rejects unknown words.
func (r *Remember) UnmarshalText(text []byte) error {
	switch *r = Remember(text); *r {
	case "once", "call", "tool", "server":
		return nil
	}
	return fmt.Errorf("%s is none of once, call, tool, server", show(string(text)))
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
