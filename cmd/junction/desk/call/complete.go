package call

import (
	"context"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"junction/cmd/junction/base/cli"
	"junction/upstream/prose"
)

// CompleteTools proposes the tools of the endpoint. file points to the value of --config.
func CompleteTools(file *string) cli.Completion {
	return (&clientFlags{file: file}).completeTools(false)
}

// completeTools proposes the tools of the endpoint, and their arguments as KEY=.
func (f *clientFlags) completeTools(withArguments bool) cli.Completion {
	return func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 && !withArguments {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		*f.file = cli.CompletionFile(f.file)
		f.timeout = cli.CompletionTime
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
					found = cli.Matching(tool.keys(), args[1:], word)
					space |= cobra.ShellCompDirectiveNoSpace
				}
				return err
			}
			tools, err := e.tools(ctx)
			for _, t := range tools {
				found = append(found, t.name+"\t"+prose.Cut(prose.Flat(t.title), listWidth/2))
			}
			found = cli.Matching(found, nil, word)
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
