package transport

import (
	"net/url"
	"slices"
	"strings"
)

// Scheme is a scheme of the URLs of servers.
type Scheme struct {
	Word, Port string
	// Secure means that nobody on the way reads what is sent. Credentials need it, except on this machine.
	Secure bool
}

// schemes has a row for each scheme.
var schemes = []Scheme{{Word: "http", Port: "80"}, {Word: "https", Port: "443", Secure: true}}

// SchemeOf returns the row of the scheme of a URL; false if no server is reached by it. u may be nil.
func SchemeOf(u *url.URL) (Scheme, bool) {
	i := slices.IndexFunc(schemes, func(s Scheme) bool { return u != nil && s.Word == u.Scheme })
	if i < 0 {
		return Scheme{}, false
	}
	return schemes[i], true
}

// SchemeWords returns the schemes in a sentence.
func SchemeWords() string {
	var words []string
	for _, s := range schemes {
		words = append(words, s.Word)
	}
	return strings.Join(words, " or ")
}
