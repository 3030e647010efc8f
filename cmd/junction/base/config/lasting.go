package config

import (
	"regexp"
	"slices"
	"strings"
)

// This file decides which warnings a running proxy reports, and in which order.

// Policies is the path of the policies, and of the warning that they hide all tools from all clients.
const Policies = "policies"

// MostWarnings is the most warnings of a file that a running proxy reports.
const MostWarnings = 50

// Restored is the key of an API key that confirms a revoked key, and the end of the path of a warning
// that nobody has confirmed it.
const Restored = "restored"

var restoredPath = regexp.MustCompile(`^auth\.api_keys\[\d+\]\.` + Restored + `$`)

// Revived reports whether a warning is about a revoked API key that is in the file again. Only a process
// that has served the file before gives such a warning.
func Revived(p Problem) bool { return restoredPath.MatchString(p.Path) }

// Grave reports whether an operator has to read a warning first: a mistake hides all tools from all
// clients, or a revoked API key is in force again.
func Grave(p Problem) bool { return p.Path == Policies || Revived(p) }

// Lasting returns the warnings that a running proxy reports until it reads the file again, the grave ones
// first, and the number of those beyond MostWarnings. It leaves out programs, folders and packs that an upstream
// lacks: the state of the upstream reports these, and they may come back.
func Lasting(warnings Problems) (list Problems, more int) {
	warnings = slices.Clone(warnings)
	slices.SortStableFunc(warnings, func(a, b Problem) int {
		switch {
		case Grave(a) == Grave(b):
			return 0
		case Grave(a):
			return -1
		}
		return 1
	})
	for _, p := range warnings {
		if strings.HasPrefix(p.Path, "upstreams.") && (strings.HasSuffix(p.Path, ".command") ||
			strings.HasSuffix(p.Path, ".dir") || strings.HasSuffix(p.Text, "; that upstream cannot start")) {
			continue
		}
		if len(list) == MostWarnings {
			more++
			continue
		}
		list = append(list, p)
	}
	return list, more
}
