package cli

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"junction/cmd/junction/base/config"
)

// CompletionTime is the time limit of a completion: a person waits for it.
const CompletionTime = 2 * time.Second

// A Completion proposes the words for an argument, as cobra calls it.
type Completion = func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective)

// CompleteUpstreams proposes the names of the upstreams of the file, for the first most arguments. file
// points to the value of --config.
func CompleteUpstreams(file *string, most int) Completion {
	return func(_ *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
		if len(args) >= most {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		// A file with mistakes still has names.
		c, _ := config.LoadForCommand(CompletionFile(file))
		if c == nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		names := slices.Sorted(maps.Keys(c.Upstreams))
		return Matching(names, args, word), cobra.ShellCompDirectiveNoFileComp
	}
}

// CompletionFile returns the configuration file: cobra completes without the hook that sets the
// default.
func CompletionFile(file *string) string {
	if *file != "" {
		return *file
	}
	path, err := config.File("")
	if err != nil {
		return ""
	}
	return path
}

// Matching returns the names that begin with word and were not given yet.
func Matching(names, given []string, word string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		name, _, _ = strings.Cut(name, "\t")
		return !strings.HasPrefix(name, word) || slices.Contains(given, name)
	})
}
