// Package shell writes command lines for people, who read them at a terminal and paste them into a
// POSIX shell. It also shows the hidden characters of texts that people read. The words and the texts
// may come from strangers.
package shell

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// safe are the bytes, besides letters and digits, that no shell reads as anything else.
const safe = "@%+=:,./_-"

// Quote returns a word so that a shell reads it as one word with the same bytes. A word of letters,
// digits and a few signs stays as it is, and other words are in single quotes. A word with hidden
// characters is written as $'…', with escapes.
func Quote(word string) string {
	plain := word != "" && word[0] != '='
	hides := false
	for _, r := range word {
		isLetter := r < utf8.RuneSelf && (unicode.IsLetter(r) || unicode.IsDigit(r))
		plain = plain && (isLetter || strings.ContainsRune(safe, r))
		hides = hides || concealed(r)
	}
	switch {
	case plain:
		return word
	case !hides:
		return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
	}
	return "$'" + escaped(word) + "'"
}

// escaped returns the word for $'…'. It has no quote and no exclamation mark, so that a shell that
// does not know $'…' reads one word, too.
func escaped(word string) string {
	var b strings.Builder
	for len(word) > 0 {
		r, size := utf8.DecodeRuneInString(word)
		switch {
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case r == '\\':
			b.WriteString(`\\`)
		case r == '\'', r == '!', concealed(r):
			for _, c := range []byte(word[:size]) {
				fmt.Fprintf(&b, `\%03o`, c)
			}
		default:
			b.WriteRune(r)
		}
		word = word[size:]
	}
	return b.String()
}

// concealed reports whether Quote escapes a character. Marks would change the letters before them.
func concealed(r rune) bool { return Hidden(r) || unicode.Is(unicode.M, r) }

// Junction returns a command line of this program: words are the command and its arguments. config is the
// value of --config, which stands before a word --; "" leaves it out.
func Junction(config string, words ...string) string { return Program("junction", config, words...) }

// Program is Junction with another first word, such as the path of this program.
func Program(program, config string, words ...string) string {
	line := append([]string{program}, words...)
	if config != "" {
		at := slices.Index(line, "--")
		if at < 0 {
			at = len(line)
		}
		line = slices.Insert(line, at, "--config", config)
	}
	return Join(line...)
}

// Join returns a command line.
func Join(words ...string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = Quote(w)
		if i == 0 && quoted[0] == w && strings.Contains(w, "=") { // it would be an assignment
			quoted[0] = "'" + w + "'"
		}
	}
	return strings.Join(quoted, " ")
}

// Hidden reports whether a character is invisible or ambiguous: a control or formatting character
// (also for text direction), an unusual space, a variation selector, a filler, a tag or private
// use.
func Hidden(r rune) bool {
	switch {
	case r == ' ' || '!' <= r && r <= '~':
		return false
	case !unicode.IsPrint(r), unicode.Is(unicode.Variation_Selector, r),
		unicode.Is(unicode.Other_Default_Ignorable_Code_Point, r):
		return true
	}
	return r == 0x2800 || r == utf8.RuneError // a braille pattern without dots; invalid UTF-8
}
