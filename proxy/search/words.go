package search

import (
	"iter"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxWord bounds a term in bytes; a longer word is cut.
const maxWord = 24

// Words returns the terms of a text: lower-case words without their endings, such as issue for
// Issues. A word such as createIssue counts as create, as issue and as createissue. Each Han, Kana
// or Hangul letter is a word, because such texts have no spaces. Frequent English words are left
// out.
func Words(text string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for word := range strings.FieldsFuncSeq(text, func(r rune) bool { return !alphanumeric(r) }) {
			if !wordParts(word, yield) {
				return
			}
		}
	}
}

func alphanumeric(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }

// wordParts yields the terms of a word, and reports whether to go on.
func wordParts(word string, yield func(string) bool) bool {
	begin, parts := 0, 0
	var before rune
	for i, r := range word {
		next, _ := utf8.DecodeRuneInString(word[i+utf8.RuneLen(r):])
		if i > begin && boundary(before, r, next) {
			if !yieldTerm(word[begin:i], yield) {
				return false
			}
			begin, parts = i, parts+1
		}
		before = r
	}
	if begin > 0 && !ideographic(before) && parts < 4 { // GitHub is github, too
		if !yieldTerm(word, yield) {
			return false
		}
	}
	return yieldTerm(word[begin:], yield)
}

// boundary reports whether a part of a word begins at r: a capital after a small letter, the last
// of several capitals before a small letter, or a letter of a script without spaces.
func boundary(before, r, next rune) bool {
	if ideographic(r) || ideographic(before) {
		return true
	}
	return unicode.IsUpper(r) && (unicode.IsLower(before) || unicode.IsUpper(before) && unicode.IsLower(next))
}

func ideographic(r rune) bool {
	return r >= 0x1100 && unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul)
}

// yieldTerm yields the term of a word, unless it is a stop word.
func yieldTerm(word string, yield func(string) bool) bool {
	if len(word) > maxWord {
		word = strings.ToValidUTF8(word[:maxWord], "") // without half a character
	}
	word = strings.ToLower(word)
	if stopWords[word] {
		return true
	}
	return yield(stem(word))
}

// stem removes the ending of an English word, so that its forms are one term. It is a small part of
// Porter's algorithm: plurals, -ed, -ing and a final e.
func stem(w string) string {
	if len(w) < 4 || !smallLetters(w) {
		return w
	}
	switch {
	case strings.HasSuffix(w, "ies") && len(w) > 4:
		w = w[:len(w)-3] + "y"
	case strings.HasSuffix(w, "sses"), strings.HasSuffix(w, "xes"), strings.HasSuffix(w, "ches"),
		strings.HasSuffix(w, "shes"):
		w = w[:len(w)-2]
	case strings.HasSuffix(w, "s") && !strings.HasSuffix(w, "ss") && !strings.HasSuffix(w, "us") &&
		!strings.HasSuffix(w, "is"):
		w = w[:len(w)-1]
	}
	for _, ending := range [...]string{"ing", "ed"} {
		if rest, ok := strings.CutSuffix(w, ending); ok && len(rest) >= 3 && strings.ContainsAny(rest, "aeiouy") {
			w = rest
			if n := len(w); w[n-1] == w[n-2] && !strings.ContainsRune("lsz", rune(w[n-1])) {
				w = w[:n-1] // stopped, stop
			}
			break
		}
	}
	if len(w) > 3 {
		w = strings.TrimSuffix(w, "e") // create, creating
	}
	return w
}

func smallLetters(w string) bool { return strings.Trim(w, "abcdefghijklmnopqrstuvwxyz") == "" }

// stopWords are words that do not help to find a tool. Verbs of tools, such as get and list, are
// not among them.
var stopWords = func() map[string]bool {
	set := map[string]bool{}
	for word := range strings.FieldsSeq(`a am an and are as at be by can could do does for from has have how i if
		in into is it its me my need of on or our please s should so that the their them then there these this to
		tool tools want was we what when where which will with would you your`) {
		set[word] = true
	}
	return set
}()
