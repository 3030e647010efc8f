package transport

import (
	"strings"
)

// A Challenge is one challenge of WWW-Authenticate (RFC 9110, section 11.6.1).
type Challenge struct {
	Scheme     string            // in lower case
	Parameters map[string]string // by names in lower case; of a doubled one the first
}

const (
	maxChallenges = 8        // of one response; further ones are ignored
	maxChallenge  = 16 << 10 // bytes of all
)

// Challenges parses the values of WWW-Authenticate. A value may have several challenges. Values without
// quotation marks are accepted with all characters but spaces and commas: servers send URLs so.
func Challenges(values []string) (all []Challenge) {
	text := strings.Join(values, ", ")
	text = text[:min(len(text), maxChallenge)]
	for text = skip(text); text != ""; text = skip(text) {
		word, rest := cutWord(text)
		if word == "" { // a character that begins nothing
			text = text[1:]
			continue
		}
		if value, after, ok := cutValue(rest); ok {
			if len(all) > 0 {
				if p, name := all[len(all)-1].Parameters, strings.ToLower(word); !has(p, name) {
					p[name] = value
				}
			}
			text = after
			continue
		}
		if len(all) == maxChallenges {
			return all
		}
		all = append(all, Challenge{strings.ToLower(word), map[string]string{}})
		text = rest
	}
	return all
}

// OfBearer returns the challenge for access tokens; ok is false if there is none.
func OfBearer(values []string) (c Challenge, ok bool) {
	for _, c := range Challenges(values) {
		if c.Scheme == "bearer" || c.Scheme == "dpop" {
			return c, true
		}
	}
	return Challenge{}, false
}

func has(m map[string]string, name string) bool {
	_, there := m[name]
	return there
}

func skip(text string) string { return strings.TrimLeft(text, " \t,") }

// cutWord cuts a token from the beginning (RFC 9110, section 5.6.2).
func cutWord(text string) (word, rest string) {
	n := 0
	for n < len(text) && (text[n] >= 'a' && text[n] <= 'z' || text[n] >= 'A' && text[n] <= 'Z' ||
		text[n] >= '0' && text[n] <= '9' || strings.IndexByte("!#$%&'*+-.^_`|~", text[n]) >= 0) {
		n++
	}
	return text[:n], text[n:]
}

// cutValue cuts = and a value from the beginning. ok is false if the text does not begin with =.
func cutValue(text string) (value, rest string, ok bool) {
	text, ok = strings.CutPrefix(strings.TrimLeft(text, " \t"), "=")
	if !ok {
		return "", "", false
	}
	text = strings.TrimLeft(text, " \t")
	if !strings.HasPrefix(text, `"`) {
		n := strings.IndexAny(text, " \t,")
		if n < 0 {
			n = len(text)
		}
		return text[:n], text[n:], true
	}
	var b strings.Builder
	for i := 1; i < len(text); i++ {
		switch {
		case text[i] == '"':
			return b.String(), text[i+1:], true
		case text[i] == '\\' && i+1 < len(text):
			i++
		}
		b.WriteByte(text[i])
	}
	return b.String(), "", true
}
