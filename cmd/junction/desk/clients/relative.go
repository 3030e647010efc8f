package clients

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// relatives returns the words of a command that are paths relative to the folder in which it works: the
// program, a script, and arguments that exist there. base is that folder; "" if it is not known.
func (e *Entry) relatives(base string) (words []string) {
	if len(e.Command) == 0 || container(e.Command[0]) {
		return nil
	}
	if program := plainWord(e.Command[0]); isRelative(program) && strings.ContainsAny(program, `/\`) {
		words = append(words, program)
	}
	pack := installs(e.Command[0]) // the next word that is no flag is the package
	interprets := slices.Contains(interpreters, baseName(e.Command[0].Expand(unset)))
	module := false
	for _, v := range e.Command[1:] {
		word := plainWord(v)
		flag := strings.HasPrefix(word, "-")
		first := interprets && !flag && word != ""
		if first {
			interprets = false
		}
		switch {
		case word == "-m" || word == "--module":
			module = true
			continue
		case flag:
			_, word, _ = strings.Cut(word, "=")
		case pack && word != "":
			pack = false
			continue
		case module:
			module = false
			if hasModule(base, word) {
				words = append(words, word)
			}
			continue
		}
		if isRelative(word) && (dotted(word) || has(base, word) || base == "" && first && !flag) {
			words = append(words, word)
		}
	}
	return words
}

// plainWord returns a value that has no reference; "" for another one.
func plainWord(v Value) string {
	if len(v) == 1 && v[0].kind == plainText {
		return v[0].text
	}
	return ""
}

// maxPath is the number of bytes of the longest word that is looked up as a path.
const maxPath = 1 << 10

// isRelative reports whether a word can be a relative path.
func isRelative(word string) bool {
	return word != "" && len(word) < maxPath && !filepath.IsAbs(word) && filepath.VolumeName(word) == "" &&
		!strings.ContainsAny(word[:1], `~@/\$-`) && !strings.Contains(word, "://") &&
		!strings.ContainsAny(word, "\n\x00")
}

// dotted reports whether a word is a relative path by its form.
func dotted(word string) bool {
	word = strings.ReplaceAll(word, `\`, "/")
	return word == "." || word == ".." || strings.HasPrefix(word, "./") || strings.HasPrefix(word, "../")
}

// has reports whether a folder has a file or folder at a relative path.
func has(base, word string) bool {
	if base == "" {
		return false
	}
	_, err := os.Lstat(filepath.Join(base, word))
	return err == nil
}

// hasModule reports whether a folder has a module of Python.
func hasModule(base, name string) bool {
	path := strings.ReplaceAll(name, ".", "/")
	return name != "" && (has(base, path+".py") || has(base, path+"/__main__.py"))
}

// container reports whether a program runs commands where the folders of this machine have other paths.
func container(program Value) bool {
	return slices.Contains([]string{"docker", "podman"}, baseName(program.Expand(unset)))
}

// baseName returns the name of a program without its folder and the ending of Windows.
func baseName(program string) string {
	return strings.TrimSuffix(filepath.Base(strings.ReplaceAll(program, `\`, "/")), ".exe")
}
