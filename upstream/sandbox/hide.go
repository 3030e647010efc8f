package sandbox

import (
	"slices"
	"strings"
)

// ForOthers returns an environment without Junction's own variables, which may be keys. It is for a
// program that Junction starts and that does not hide its environment.
func ForOthers(environment []string) []string {
	return slices.DeleteFunc(slices.Clone(environment), func(v string) bool {
		return strings.HasPrefix(strings.ToUpper(v), "JUNCTION_")
	})
}
