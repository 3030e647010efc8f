package clients

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
)

// Secrets are found by the name of their field and by their own look. To take an ordinary value for
// a secret does no harm: it moves to a file.

// secretWords are parts of names; secretNames are whole words of names.
var (
	secretWords = regexp.MustCompile(`(?i)token|secret|passw|credential|authorization|` +
		`(api|private|access)[_-]?key|connection[_-]?string`)
	secretNames = regexp.MustCompile(`(?i)(^|[_.-])(key|keys|pat|auth|dsn|pwd|pass|cookie|bearer|webhook)([_.-]|$)|` +
		`(?-i:[a-z](Key|Auth|Pass)$)`)
	// notSecret are values that no secret has: switches, small numbers, nothing.
	notSecret = regexp.MustCompile(`^(|true|false|yes|no|on|off|null|none|\d{1,7}|[a-zA-Z])$`)
)

// secretName reports whether a field of that name holds a secret.
func secretName(name string) bool {
	return secretWords.MatchString(name) || secretNames.MatchString(name)
}

// shapes are secrets that are known by their look, wherever they are.
var shapes = regexp.MustCompile(strings.Join([]string{
	`\b(?:sk|pk|rk)[-_][A-Za-z0-9_-]{16,}`, `\bgh[pousr]_[A-Za-z0-9]{16,}`, `\bgithub_pat_[A-Za-z0-9_]{16,}`,
	`\bglpat-[A-Za-z0-9_.-]{16,}`, `\bxox[a-z]-[A-Za-z0-9-]{10,}`, `\bxapp-[A-Za-z0-9-]{10,}`,
	`\bA[KS]IA[A-Z0-9]{16}\b`, `\bAIza[A-Za-z0-9_-]{30,}`, `\bya29\.[A-Za-z0-9_-]+`,
	`\bey[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*`,
	`\b(?:ntn|npm|hf|shpat|figd|lin_api|gsk|jct_key|dop_v1|secret)[-_][A-Za-z0-9_-]{16,}`,
	`\b(?:ctx7sk|pypi|tvly|fc|pplx|xai)[-_][A-Za-z0-9_-]{16,}`,
	`\bSG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}`, `\bBSA[A-Za-z0-9_-]{20,}`,
	`(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*`,
}, "|"))

// random is a long word in which letters and digits are mixed.
var random = regexp.MustCompile(`[A-Za-z0-9_-]{32,}`)

func isRandom(word string) bool {
	digits, letters := 0, 0
	for _, c := range word {
		switch {
		case c >= '0' && c <= '9':
			digits++
		case c != '_' && c != '-':
			letters++
		}
	}
	return digits >= 5 && letters >= 5
}

var (
	passwordInURL = regexp.MustCompile(`[A-Za-z][A-Za-z0-9+.-]*://[^/\s:@]*:([^/\s@]+)@`)
	secretInQuery = regexp.MustCompile(`[?&]([A-Za-z0-9_.-]+)=([^&#\s]+)`)
	scheme        = regexp.MustCompile(`^(?i)(bearer|basic|token|apikey)\s+`)
)

// conceal marks the secrets of a value. name is the name of its field, and label that of a file for
// a secret.
func (v Value) conceal(name, label string) Value {
	var out Value
	for _, p := range v {
		if p.kind != plainText {
			out = append(out, p)
			continue
		}
		if len(v) == 1 && secretName(name) && !notSecret.MatchString(p.text) {
			begin := len(scheme.FindString(p.text))
			return append(Value{}.literal(p.text[:begin]), part{kind: secret, text: p.text[begin:], label: label})
		}
		done := 0
		for _, span := range secretSpans(p.text) {
			out = append(out.literal(p.text[done:span[0]]),
				part{kind: secret, text: p.text[span[0]:span[1]], label: label})
			done = span[1]
		}
		out = out.literal(p.text[done:])
	}
	return out
}

// secretSpans returns where in a text secrets are, in order.
func secretSpans(text string) [][2]int {
	var spans [][2]int
	for _, m := range shapes.FindAllStringIndex(text, -1) {
		spans = append(spans, [2]int{m[0], m[1]})
	}
	for _, m := range random.FindAllStringIndex(text, -1) {
		if isRandom(text[m[0]:m[1]]) && !strings.HasSuffix(text[:m[0]], "sha256:") { // a digest is public
			spans = append(spans, [2]int{m[0], m[1]})
		}
	}
	for _, m := range passwordInURL.FindAllStringSubmatchIndex(text, -1) {
		spans = append(spans, [2]int{m[2], m[3]})
	}
	for _, m := range secretInQuery.FindAllStringSubmatchIndex(text, -1) {
		if secretName(text[m[2]:m[3]]) && !notSecret.MatchString(text[m[4]:m[5]]) {
			spans = append(spans, [2]int{m[4], m[5]})
		}
	}
	return disjoint(spans)
}

// disjoint sorts spans and joins those that overlap.
func disjoint(spans [][2]int) (out [][2]int) {
	slices.SortFunc(spans, func(a, b [2]int) int { return cmp.Compare(a[0], b[0]) })
	for _, s := range spans {
		if n := len(out); n > 0 && s[0] < out[n-1][1] {
			out[n-1][1] = max(out[n-1][1], s[1])
			continue
		}
		out = append(out, s)
	}
	return out
}

// The forms in which an argument says what its value is for. The value of a flag may have one of the
// other forms: --header=NAME: VALUE, --env=NAME=VALUE.
var (
	flagWithValue = regexp.MustCompile(`^(?s)(--?[A-Za-z][A-Za-z0-9_.-]*)=(.+)$`)
	assignment    = regexp.MustCompile(`^(?s)([A-Za-z_][A-Za-z0-9_]*)=(.+)$`)
	headerLine    = regexp.MustCompile(`^(?s)([A-Za-z][A-Za-z0-9-]*):\s*(.+)$`)
	flagOnly      = regexp.MustCompile(`^--?[A-Za-z][A-Za-z0-9_.-]*$`)
)

// concealArguments marks the secrets in the arguments of a program.
func concealArguments(args []string, read func(string) Value) []Value {
	out := make([]Value, len(args))
	for i, arg := range args {
		label := "argument"
		name, value := "", arg
		for _, form := range []*regexp.Regexp{flagWithValue, assignment, headerLine} {
			if m := form.FindStringSubmatch(value); m != nil && !strings.HasPrefix(m[2], "//") {
				if name, value = m[1], m[2]; secretName(name) {
					break
				}
			}
		}
		if name == "" && i > 0 && flagOnly.MatchString(args[i-1]) && !strings.HasPrefix(arg, "-") {
			name = args[i-1]
		}
		if name != "" {
			label = strings.Trim(name, "-")
		}
		if !secretName(name) {
			out[i] = read(arg).conceal("", label)
			continue
		}
		out[i] = append(read(arg[:len(arg)-len(value)]), read(value).conceal(name, label)...)
	}
	return out
}
