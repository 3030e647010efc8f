package redact

import "bytes"

// secretShape describes tokens of one kind: a prefix that the issuer documented for this purpose,
// followed by a run of characters. Secrets without a prefix, such as passwords or the secret part
// of an AWS key, are not found, because guesses also match harmless texts.
type secretShape struct {
	name, prefix string
	run          *alphabet
	// length of the run; a max of 0 is no limit, and a run longer than max does not match
	min, max int
	end      func(text []byte, i int, known *searched) (end int, ok bool) // replaces the run
}

// alphabet is a set of bytes.
type alphabet [256]bool

func newAlphabet(members string) *alphabet {
	a := new(alphabet)
	for _, c := range []byte(members) {
		a[c] = true
	}
	return a
}

const upper, lower, digit = "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz", "0123456789"

var (
	upperCase      = newAlphabet(upper + digit)
	wordCharacters = newAlphabet(upper + lower + digit)
	tokenBody      = newAlphabet(upper + lower + digit + "_-")
	dottedBody     = newAlphabet(upper + lower + digit + "_-.")
	// base64Text is base64 inside JSON: with line breaks and slashes, which may be escaped.
	base64Text = newAlphabet(upper + lower + digit + "+/=\\\r\n")
	// base64URI is base64 in a data: URI. Browsers accept no base64url there.
	base64URI     = newAlphabet(upper + lower + digit + "+/")
	base64Padding = newAlphabet("=")
)

const pemBegin, pemEnd = "-----BEGIN ", "-----END "

// secretShapes are tried in this order.
var secretShapes = []*secretShape{
	{name: "GitHub token", prefix: "ghp_", run: wordCharacters, min: 36},
	{name: "GitHub token", prefix: "gho_", run: wordCharacters, min: 36},
	{name: "GitHub token", prefix: "ghu_", run: wordCharacters, min: 36},
	{name: "GitHub token", prefix: "ghs_", run: dottedBody, min: 36}, // tokens of apps may be longer and contain dots
	{name: "GitHub token", prefix: "ghr_", run: wordCharacters, min: 36},
	{name: "GitHub token", prefix: "github_pat_", run: newAlphabet(upper + lower + digit + "_"), min: 50},
	{name: "GitLab token", prefix: "glpat-", run: dottedBody, min: 20},
	{name: "AWS key", prefix: "AKIA", run: upperCase, min: 16, max: 16},
	{name: "AWS key", prefix: "ASIA", run: upperCase, min: 16, max: 16},
	{name: "Slack token", prefix: "xoxa-", run: tokenBody, min: 20},
	{name: "Slack token", prefix: "xoxb-", run: tokenBody, min: 20},
	{name: "Slack token", prefix: "xoxe-", run: tokenBody, min: 20},
	{name: "Slack token", prefix: "xoxp-", run: tokenBody, min: 20},
	{name: "Slack token", prefix: "xoxr-", run: tokenBody, min: 20},
	{name: "Slack token", prefix: "xoxs-", run: tokenBody, min: 20},
	{name: "Slack token", prefix: "xapp-", run: tokenBody, min: 20},
	{name: "Stripe key", prefix: "sk_live_", run: wordCharacters, min: 16},
	{name: "Stripe key", prefix: "rk_live_", run: wordCharacters, min: 16},
	{name: "Google key", prefix: "AIza", run: tokenBody, min: 35, max: 35},
	{name: "npm token", prefix: "npm_", run: wordCharacters, min: 36, max: 36},
	{name: "PyPI token", prefix: "pypi-Ag", run: tokenBody, min: 50},
	{name: "Hugging Face token", prefix: "hf_", run: wordCharacters, min: 34, max: 40},
	{name: "Anthropic key", prefix: "sk-ant-", run: tokenBody, min: 32},
	{name: "OpenAI key", prefix: "sk-proj-", run: tokenBody, min: 32},
	{name: "OpenAI key", prefix: "sk-svcacct-", run: tokenBody, min: 32},
	{name: "OpenAI key", prefix: "sk-admin-", run: tokenBody, min: 32},
	{name: "API key", prefix: "sk-or-v1-", run: tokenBody, min: 32},
	{name: "API key", prefix: "sk-", run: wordCharacters, min: 32},
	{name: "Junction key", prefix: "jct_key_", run: tokenBody, min: 32},
	{name: "Junction token", prefix: "jct_at_", run: tokenBody, min: 32},
	{name: "JWT", prefix: "eyJ", end: signedJWT},
	{name: "private key", prefix: pemBegin, end: privateKey},
}

// secretPairs is the set of byte pairs at the first or second place of a prefix. So a search that
// looks at every second pair finds each prefix.
var secretPairs = func() (pairs [1 << 16 / 64]uint64) {
	for _, s := range secretShapes {
		for i := range 2 {
			pair := uint16(s.prefix[i])<<8 | uint16(s.prefix[i+1])
			pairs[pair/64] |= 1 << (pair % 64)
		}
	}
	return pairs
}()

// shapesOf holds the shapes by the first byte of their prefix.
var shapesOf = func() (byFirstByte [256][]*secretShape) {
	for _, s := range secretShapes {
		byFirstByte[s.prefix[0]] = append(byFirstByte[s.prefix[0]], s)
	}
	return byFirstByte
}()

// secretStart returns the first place from i on where a prefix could begin a token, or -1.
func secretStart(text []byte, i int) int {
	from := i
	for ; i+1 < len(text); i += 2 {
		pair := uint16(text[i])<<8 | uint16(text[i+1])
		if secretPairs[pair/64]&(1<<(pair%64)) == 0 {
			continue
		}
		for at := max(i-1, from); at <= i; at++ {
			for _, s := range shapesOf[text[at]] {
				if s.begins(text[at:]) && beginsWord(text, at) {
					return at
				}
			}
		}
	}
	return -1
}

// beginsWord reports whether a word may begin at i. A preceding letter is ignored if it ends an
// escape (\n or \u003d, of JSON within the text or of the text itself) or a terminal colour (ESC [
// 3 1 m).
func beginsWord(text []byte, i int) bool {
	if i == 0 || !wordCharacters[text[i-1]] {
		return true
	}
	if i > 1 && text[i-2] == '\\' || i > 5 && text[i-6] == '\\' && text[i-5] == 'u' {
		return true
	}
	if text[i-1] != 'm' {
		return false
	}
	for i -= 2; i >= 0 && ('0' <= text[i] && text[i] <= '9' || text[i] == ';'); i-- {
	}
	return i >= 0 && text[i] == '['
}

// span is a match of a rule in a text.
type span struct {
	start, end int
	rule       string
	as         markForm
	keep       bool   // the text may come back in an argument
	number     bool   // the text was removed as a number
	reference  string // of the kept text; "" for none
	suffix     string // if it is not "": what the name of a member gets at its end instead of a mark
}

// secrets appends the tokens in text to found.
func secrets(text []byte, found []span) []span {
	var known searched
	for i := secretStart(text, 0); i >= 0; i = secretStart(text, i) {
		next := i + 1
		for _, s := range shapesOf[text[i]] {
			if !s.begins(text[i:]) {
				continue
			}
			if end, ok := s.match(text, i+len(s.prefix), &known); ok {
				found, next = append(found, span{start: i, end: end, rule: s.name}), end
				break
			}
		}
		i = next
	}
	return found
}

// searched caches results of searches in one text, so that a text of many prefixes is not read
// again and again.
type searched struct {
	pemEnd int // place of the next end of a PEM block if looked is true; -1 if there is none
	looked bool
	header int // no JWT header ends before this place
}

// begins reports whether text begins with the prefix.
func (s *secretShape) begins(text []byte) bool {
	return len(text) >= len(s.prefix) && text[2] == s.prefix[2] && string(text[:len(s.prefix)]) == s.prefix
}

// match reports whether a token's prefix ends at i, and where the token ends.
func (s *secretShape) match(text []byte, i int, known *searched) (end int, ok bool) {
	if s.end != nil {
		return s.end(text, i, known)
	}
	n := runLength(text[i:], s.run, s.max)
	end = i + n
	return end, n >= s.min && (s.max == 0 || n <= s.max) && (end == len(text) || !wordCharacters[text[end]])
}

// runLength returns the number of bytes at the start of text that are in a. With most > 0 it counts
// to most+1 at most.
func runLength(text []byte, a *alphabet, most int) int {
	n := 0
	for n < len(text) && a[text[n]] && (most == 0 || n <= most) {
		n++
	}
	return n
}

// signedJWT matches the rest of a JWT's header, the payload (also an object) and the signature (RFC
// 7515, section 3.1).
func signedJWT(text []byte, i int, known *searched) (end int, ok bool) {
	if i < known.header {
		return 0, false
	}
	header := i + runLength(text[i:], tokenBody, 0)
	known.header = header
	if header-i < 8 || !bytes.HasPrefix(text[header:], []byte(".eyJ")) {
		return 0, false
	}
	payload := header + 1 + runLength(text[header+1:], tokenBody, 0)
	if payload-header < 12 || payload == len(text) || text[payload] != '.' {
		return 0, false
	}
	signature := runLength(text[payload+1:], tokenBody, 0)
	return payload + 1 + signature, signature >= 16
}

// privateKey matches a PEM block (RFC 7468) whose label ends in PRIVATE KEY, or OpenPGP's PRIVATE
// KEY BLOCK. The block's prefix ends at i. If the block has no end, the lines of base64 are the
// match.
func privateKey(text []byte, i int, known *searched) (end int, ok bool) {
	label, _, whole := bytes.Cut(text[i:min(len(text), i+80)], []byte("-----"))
	if !whole || !bytes.HasSuffix(bytes.TrimSuffix(label, []byte(" BLOCK")), []byte("PRIVATE KEY")) {
		return 0, false
	}
	body := i + len(label) + len("-----")
	if !known.looked || known.pemEnd >= 0 && known.pemEnd < body {
		known.looked, known.pemEnd = true, bytes.Index(text[body:], []byte(pemEnd))
		if known.pemEnd >= 0 {
			known.pemEnd += body
		}
	}
	// else the end belongs to another block
	if known.pemEnd >= 0 && !bytes.Contains(text[body:known.pemEnd], []byte(pemBegin)) {
		after := known.pemEnd + len(pemEnd)
		if line := bytes.Index(text[after:min(len(text), after+80)], []byte("-----")); line >= 0 {
			after += line + len("-----")
		}
		return after, true
	}
	n := runLength(text[body:], base64Text, 0)
	return body + n, n >= 32
}
