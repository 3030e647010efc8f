package definition

import "strings"

// Work bounds the checks of a definition, whose schemas a server can make as expensive as it likes. It counts
// steps: about one for each byte that is looked at, once for each level of a schema. A check that runs out of
// steps stops, and its result means nothing: see Over. A nil Work has no bound.
type Work struct {
	left, done int
}

// NewWork returns a Work of so many steps.
func NewWork(steps int) *Work { return &Work{left: steps} }

// Done returns the steps that were taken.
func (w *Work) Done() int { return w.done }

// Over reports whether the steps did not suffice.
func (w *Work) Over() bool { return w != nil && w.left < 0 }

// take counts steps before they are taken. It returns false if they must not be taken.
func (w *Work) take(steps int) bool {
	switch {
	case w == nil:
		return true
	case w.left < 0:
		return false
	case w.left < steps:
		w.left = -1
		return false
	}
	w.left -= steps
	w.done += steps
	return true
}

// What a regular expression costs to parse, in steps. A class of Unicode, such as \pL, has hundreds of
// ranges.
const (
	patternByte  = 100
	patternClass = 8000
)

// stepsOf returns the steps to parse a regular expression.
func stepsOf(pattern string) int {
	return patternByte*len(pattern) + patternClass*(strings.Count(pattern, `\p`)+strings.Count(pattern, `\P`))
}
