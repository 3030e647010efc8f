package process

import (
	"io"
	"regexp"
	"sync"
	"testing"
	"time"
)

// Output is what a process has written so far, for several readers.
type Output struct {
	mu      sync.Mutex
	text    []byte
	changed chan struct{} // closed and replaced whenever text grows
	copied  io.Writer     // where it also goes; nil is nowhere
}

// NewOutput returns an empty output.
func NewOutput() *Output { return &Output{changed: make(chan struct{})} }

// Write implements io.Writer.
func (o *Output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text = append(o.text, b...)
	if o.copied != nil {
		o.copied.Write(b) // a writer of a test, which keeps it in memory
	}
	close(o.changed)
	o.changed = make(chan struct{})
	return len(b), nil
}

// String returns all that was written so far.
func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return string(o.text)
}

// Copy has what is written from now on also written to w; nil ends that.
func (o *Output) Copy(w io.Writer) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.copied = w
}

// Len returns the number of bytes that were written so far.
func (o *Output) Len() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.text)
}

// Tail returns at most the last n bytes.
func (o *Output) Tail(n int) string {
	s := o.String()
	return s[max(0, len(s)-n):]
}

// MustMatch waits until the output matches and returns the groups of the first match. The process
// that writes it must not end before; a nil ended never does.
func (o *Output) MustMatch(t testing.TB, r *regexp.Regexp, patience time.Duration, ended <-chan struct{}) []string {
	t.Helper()
	return o.MustMatchAfter(t, 0, r, patience, ended)
}

// MustMatchAfter is MustMatch of what was written after the first bytes.
func (o *Output) MustMatchAfter(
	t testing.TB, first int, r *regexp.Regexp, patience time.Duration, ended <-chan struct{},
) []string {
	t.Helper()
	enough := time.After(patience)
	for over := false; ; {
		o.mu.Lock()
		found, changed := r.FindSubmatch(o.text[first:]), o.changed
		o.mu.Unlock()
		switch {
		case found != nil:
			groups := make([]string, len(found))
			for i, g := range found {
				groups[i] = string(g)
			}
			return groups
		case over:
			t.Fatalf("the process has ended, and nothing matches %s in:\n%s", r, o.Tail(4000))
		}
		select {
		case <-changed:
		case <-ended:
			over = true // look once more: all is written by now
		case <-enough:
			t.Fatalf("nothing matches %s within %v in:\n%s", r, patience, o.Tail(4000))
		}
	}
}
