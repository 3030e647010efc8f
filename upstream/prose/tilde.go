package prose

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// Tilde returns a text for people with ~ for the home folder of this user, where a word begins with the folder. A
// word in quotes, the value of a flag, and what is in brackets of YAML stay whole: nothing reads ~ there. On Windows
// it returns the text, because no shell there reads ~.
func Tilde(text string) string {
	home, _ := os.UserHomeDir() // without one, nothing is shorter
	if runtime.GOOS == "windows" {
		return text
	}
	return tilde(text, home)
}

// tilde is Tilde for a home folder.
func tilde(text, home string) string {
	begin := home + string(filepath.Separator)
	if home == "" || home == string(filepath.Separator) {
		return text
	}
	var b strings.Builder
	for {
		before, rest, found := strings.Cut(text, begin)
		b.WriteString(before)
		if !found {
			return b.String()
		}
		so := b.String()
		begins := so == "" || strings.ContainsAny(so[len(so)-1:], " \n\t(")
		if begins && balanced(so, "{", "}") && balanced(so, "[", "]") {
			b.WriteString("~" + string(filepath.Separator))
		} else {
			b.WriteString(begin)
		}
		text = rest
	}
}

// balanced reports whether a text has as many closing as opening brackets.
func balanced(text, opening, closing string) bool {
	return strings.Count(text, opening) == strings.Count(text, closing)
}
