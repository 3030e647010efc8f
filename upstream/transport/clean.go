package transport

import "strings"

// Cleaner is an error that shortens words of a server.
type Cleaner interface {
	error
	// Clean returns the text of the error. clean removes what the reader must not see. It is applied
	// before the words are shortened, because it would not find a part of a match.
	Clean(clean func(string) string) string
}

// Clean returns the text of an error for a reader: see Cleaner. Errors of the chain that shorten words
// are in its text as they are.
func Clean(err error, clean func(string) string) string {
	text := err.Error()
	var replace func(error)
	replace = func(err error) {
		switch e := err.(type) {
		case Cleaner:
			if own := e.Error(); own != "" {
				text = strings.ReplaceAll(text, own, e.Clean(clean))
			}
		case interface{ Unwrap() error }:
			replace(e.Unwrap())
		case interface{ Unwrap() []error }:
			for _, err := range e.Unwrap() {
				replace(err)
			}
		}
	}
	replace(err)
	return clean(text)
}

// Text returns an error with the text of err, and without its chain: errors.Is finds nothing in it.
func Text(err error) error { return &textError{err} }

type textError struct{ err error }

func (e *textError) Error() string                          { return e.err.Error() }
func (e *textError) Clean(clean func(string) string) string { return Clean(e.err, clean) }
