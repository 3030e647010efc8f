package clients

import (
	"os"
	"path/filepath"

	"junction/upstream/shell"
)

// relatives returns the words of a command that are paths relative to the folder in which it works. base is that
// folder; "" if it is not known.
func (e *Entry) relatives(base string) []string {
	var words []string
	for i, v := range e.Command {
		word := ""
		if len(v) == 1 && v[0].kind == plainText || i == 0 { // a reference is no path that can be looked up
			word = v.Expand(unset)
		}
		words = append(words, word)
	}
	if base == "" {
		return shell.Relative(words, nil)
	}
	return shell.Relative(words, func(path string) bool {
		_, err := os.Lstat(filepath.Join(base, path))
		return err == nil
	})
}
