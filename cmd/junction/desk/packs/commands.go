package packs

import (
	"io"

	"github.com/spf13/cobra"

	"junction/cmd/junction/base/cli"
	"junction/cmd/junction/desk/entries"
	"junction/cmd/pack/lock"
)

// run is one run of a command.
type run struct {
	edit     *entries.Editor
	lockFile string
	lock     *lock.File
	stdout   io.Writer
	json     bool
}

// open reads the configuration file and the lock file. With create, the first need not exist.
func open(stdout io.Writer, file string, asJSON, create bool) (*run, error) {
	e, err := entries.Edit(stdout, file, asJSON, create)
	if err != nil {
		return nil, err
	}
	r := &run{edit: e, lockFile: lock.Path(e.Path()), stdout: stdout, json: asJSON}
	r.lock, err = lock.Read(r.lockFile)
	return r, err
}

// Command is `junction packs`. file points to the value of --config.
func Command(stdout io.Writer, file *string) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "packs",
		Short: "Install, list and update packs of tools",
		Long: `Manage packs. A pack is a folder that describes tools.
An upstream with the key pack serves it, by the program junction-pack.

install fetches a pack from a git repository into the folder packs beside the configuration file. It
pins the commit, shows what the pack would run, asks, writes commit and checksum to packs.lock, and adds
a disabled upstream. It runs nothing of the pack. A pack whose files differ from packs.lock is refused.`,
		Example: `  junction packs install acme/tools@v1.2.0
  junction packs enable tools
  junction packs update tools
  junction packs list`,
		Args: cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.PersistentFlags().BoolVar(&asJSON, "json", false, "print JSON")
	begin := func(create bool) (*run, error) { return open(stdout, *file, asJSON, create) }
	named := func(use, short, long string, do func(*run, *cobra.Command, string) error) *cobra.Command {
		return &cobra.Command{
			Use: use + " NAME", Short: short, Long: long, Example: "  junction packs " + use + " tools",
			Args: oneName, ValidArgsFunction: completePacks(file),
			RunE: func(cmd *cobra.Command, args []string) error {
				r, err := begin(false)
				if err != nil {
					return err
				}
				r.edit.Enter = cli.EnterOf(cmd)
				return do(r, cmd, args[0])
			}}
	}
	cmd.AddCommand(
		installCommand(begin),
		&cobra.Command{Use: "list", Aliases: []string{"ls"}, Short: "List the packs of the configuration file",
			Args: cli.NoArguments, RunE: func(*cobra.Command, []string) error {
				r, err := begin(false)
				if err != nil {
					return err
				}
				return r.list()
			}},
		named("show", "Show where a pack comes from and what it would run", "", (*run).show),
		enableCommand(named),
		named("disable", "Disable the upstream of a pack", "", (*run).disable),
		updateCommand(named),
		named("remove", "Remove a pack, its upstream and its files",
			"Remove the upstream of a pack, and of an installed pack its folder and its entry in packs.lock.",
			(*run).remove),
	)
	return cmd
}

// oneName accepts the name of one pack.
func oneName(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return cli.Usagef("%s needs the name of one pack; junction packs list shows them", cmd.Name())
	}
	return nil
}

// completePacks proposes the names of the packs of the configuration file.
func completePacks(file *string) cli.Completion {
	return func(_ *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
		var names []string
		if e, err := entries.Edit(io.Discard, *file, false, false); err == nil && len(args) == 0 {
			for _, p := range e.Packs() {
				names = append(names, p.Name)
			}
		}
		return cli.Matching(names, nil, word), cobra.ShellCompDirectiveNoFileComp
	}
}

func installCommand(begin func(create bool) (*run, error)) *cobra.Command {
	var o installOptions
	cmd := &cobra.Command{
		Use:   "install [OWNER/REPO@REF | URL@REF]",
		Short: "Install a pack from a git repository, or all packs of packs.lock",
		Long: `Fetch a pack from a git repository over HTTPS with the program git, and add a disabled upstream. REF
is a branch, a tag or a full commit (default: the default branch). Nothing of the pack runs, also no
hooks, filters or submodules. Credentials for private repositories come from git credential.

install shows what the pack would run, and asks. Without a terminal it needs --yes.

Without an argument, install restores the packs of packs.lock whose folder is missing or changed. It
shows each of them, and asks.`,
		Example: `  junction packs install acme/tools@v1.2.0
  junction packs install https://git.example.com/team/tools.git@main \
      --name team --env TEAM_TOKEN
  junction packs install`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return cli.Usagef("install takes one repository, and got %d", len(args))
			}
			return nil
		},
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := begin(len(args) > 0)
			if err != nil {
				return err
			}
			if len(args) == 0 {
				return r.restore(cmd, o.yes)
			}
			return r.install(cmd, args[0], o)
		},
	}
	cmd.Flags().StringVar(&o.name, "name", "", "`name` of the pack and its upstream (default: that of the repository)")
	cmd.Flags().StringArrayVarP(&o.env, "env", "e", nil,
		"an environment variable of the pack, `NAME=VALUE`, or NAME for that of Junction; may be repeated")
	cli.YesFlag(cmd, &o.yes)
	return cmd
}

func enableCommand(named func(use, short, long string, do func(*run, *cobra.Command, string) error) *cobra.Command,
) *cobra.Command {
	var yes bool
	cmd := named("enable", "Show what a pack would run, and enable its upstream",
		"Show what a pack would run, ask, and enable its upstream. A running junction starts the pack.",
		func(r *run, cmd *cobra.Command, name string) error { return r.enable(cmd, name, yes) })
	cli.YesFlag(cmd, &yes)
	return cmd
}

func updateCommand(named func(use, short, long string, do func(*run, *cobra.Command, string) error) *cobra.Command,
) *cobra.Command {
	var to string
	var yes bool
	cmd := named("update", "Update an installed pack and show what changes",
		`Fetch the ref of a pack again. If its commit has changed, show the differences of what the pack would
run, ask, and replace the pack. A running junction starts the new pack, and lets calls of the old one
finish.`,
		func(r *run, cmd *cobra.Command, name string) error { return r.update(cmd, name, to, yes) })
	cmd.Flags().StringVar(&to, "to", "", "another branch, tag or commit, as `REF`")
	cli.YesFlag(cmd, &yes)
	return cmd
}
