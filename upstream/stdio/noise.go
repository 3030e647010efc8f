package stdio

import (
	"fmt"
	"regexp"
	"sync/atomic"

	"junction/upstream/transport"
)

// Noise is a kind of output of a server that has written no message to its standard output.
type Noise int

// The kinds of noise.
const (
	NoiseText     Noise = iota // lines that are no JSON, such as a banner
	NoiseFramed                // a header Content-Length before each message, as language servers have
	NoiseIndented              // JSON over several lines
)

// NoiseError is the error of a request that was not answered in time, by a server that has written
// lines to its standard output, and none of them is a message.
type NoiseError struct {
	Kind Noise
	line string // the first one
	err  error  // why the request has ended
}

// Error includes the line.
func (e *NoiseError) Error() string {
	if e.Kind == NoiseText {
		return e.Public() + ": " + e.line
	}
	return e.Public()
}

// Public returns the error without words of the server.
func (e *NoiseError) Public() string {
	what := "a line that is no message to its standard output"
	switch e.Kind {
	case NoiseFramed:
		what = "Content-Length before its messages, which MCP does not have"
	case NoiseIndented:
		what = "JSON over several lines, and MCP has one message in each line"
	}
	return fmt.Sprintf("%v; the server wrote %s", e.err, what)
}

func (e *NoiseError) Unwrap() error { return e.err }

// output is what a server has written to its standard output so far.
type output struct {
	spoke atomic.Bool            // at least one message
	noise atomic.Pointer[string] // the first line that is none; nil if there is none
}

// odd records a line that is no message.
func (o *output) odd(line []byte) {
	if o.noise.Load() == nil && !o.spoke.Load() {
		text := transport.Shorten(clean(line), shownLine)
		o.noise.CompareAndSwap(nil, &text)
	}
}

// explain returns the error of a request that was not answered in time.
func (o *output) explain(err error) error {
	line := o.noise.Load()
	if line == nil || o.spoke.Load() {
		return err
	}
	e := &NoiseError{line: *line, err: err}
	switch {
	case framed.MatchString(*line):
		e.Kind = NoiseFramed
	case indented.MatchString(*line):
		e.Kind = NoiseIndented
	}
	return e
}

var (
	framed   = regexp.MustCompile(`(?i)^\s*content-(?:length|type)\s*:`)
	indented = regexp.MustCompile(`^\s*[{\[]\s*$`) // the first line of such a message
)
