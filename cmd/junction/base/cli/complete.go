package cli

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"junction/cmd/junction/base/config"
	"junction/upstream/prose"
)

// completionTime is the time limit of a completion: a person waits for it.
const completionTime = 2 * time.Second

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
		c, _ := config.LoadForCommand(completionFile(file))
		if c == nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		names := slices.Sorted(maps.Keys(c.Upstreams))
		return Matching(names, args, word), cobra.ShellCompDirectiveNoFileComp
	}
}

// completionFile returns the configuration file: cobra completes without the hook that sets the
// default.
func completionFile(file *string) string {
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

// completeTools proposes the tools of the endpoint, and their arguments as KEY=.
func (f *clientFlags) completeTools(withArguments bool) Completion {
	return func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 && !withArguments {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		*f.file = completionFile(f.file)
		f.timeout = completionTime
		var found []string
		space := cobra.ShellCompDirectiveNoFileComp
		ctx := cmd.Context()
		if ctx == nil {
			ctx = context.Background()
		}
		// without an endpoint there is nothing to propose
		_ = f.connect(ctx, nil, func(ctx context.Context, e *endpoint) error {
			if len(args) > 0 {
				tool, err := e.tool(ctx, args[0])
				if err == nil {
					found = Matching(tool.keys(), args[1:], word)
					space |= cobra.ShellCompDirectiveNoSpace
				}
				return err
			}
			tools, err := e.tools(ctx)
			for _, t := range tools {
				found = append(found, t.name+"\t"+prose.Cut(prose.Flat(t.title), listWidth/2))
			}
			found = Matching(found, nil, word)
			return err
		})
		return found, space
	}
}

// keys returns the arguments of the tool in the form KEY=.
func (t listedTool) keys() []string {
	var keys []string
	for _, key := range slices.Sorted(maps.Keys(membersOf(membersOf(t.schema)["properties"]))) {
		keys = append(keys, prose.Flat(key)+"=")
	}
	return keys
}
