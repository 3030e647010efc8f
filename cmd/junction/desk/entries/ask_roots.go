package entries

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"junction/cmd/junction/base/cli"
	"junction/cmd/junction/base/config"
	"junction/cmd/junction/desk/clients"
	"junction/upstream"
	"junction/upstream/client"
	"junction/upstream/shell"
)

// This file finds out which new commands ask for the folders of their client.

const (
	rootsTime    = 10 * time.Second // for the start of one command
	rootsAtOnce  = 2                // processes that are started for this at the same time
	isolationKey = "isolation: folder"
)

// offline are the variables with which npx and uvx run only what is there already: an installation that is ended
// after rootsTime would stay broken.
var offline = map[string]string{"npm_config_offline": "true", "UV_OFFLINE": "1"}

// starts reports whether the command of an entry is started to find out whether it asks for roots. A program that
// may download a package is not, unless a variable prevents the download.
func starts(e *clients.Entry) bool {
	if !e.Runs() || e.Pack != "" || e.Off || e.Windows || len(e.Missing(Lookup)) > 0 || e.Lacks(Lookup) != "" {
		return false
	}
	program := e.Command[0].Expand(Lookup)
	return !shell.Installs(program) || slices.Contains([]string{"npx", "uvx"}, shell.ProgramName(program))
}

// start starts the command once, and sets Roots.
func (n *New) start(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, rootsTime)
	defer cancel()
	c := upstream.Config{Env: map[string]string{}, InheritEnv: n.Entry.InheritEnv, Dir: n.Entry.Dir.Expand(Lookup),
		ConnectTimeout: rootsTime, Era: client.EraLegacy}
	for _, v := range n.Entry.Command {
		c.Command = append(c.Command, v.Expand(Lookup))
	}
	for name, v := range n.Entry.Env {
		c.Env[name] = v.Expand(Lookup)
	}
	maps.Copy(c.Env, offline)
	asks, err := upstream.AsksForRoots(ctx, n.Name, c, upstream.Options{})
	n.Roots, n.Silent = asks, err != nil && !asks // status shows why it does not start
}

// installs reports whether the command runs a package, which start does not download.
func (n *New) installs() bool {
	return n.Entry.Runs() && shell.Installs(n.Entry.Command[0].Expand(Lookup))
}

// Silent returns the lines about the commands of which it is not known whether they ask for the folders of their
// client, by the likely reason.
func Silent(file string, list []*New) (lines []string) {
	var failed, absent []string
	for _, n := range list {
		switch {
		case !n.Silent:
		case n.installs():
			absent = append(absent, n.Name)
		default:
			failed = append(failed, n.Name)
		}
	}
	add := func(names []string, one, several string) {
		its, they := "", "they work"
		switch len(names) {
		case 0:
			return
		case 1:
			its, they = names[0]+" asks "+one, "it works"
		default:
			its = "these servers ask " + several + ": " + strings.Join(names, ", ")
		}
		lines = append(lines, "It is not known yet whether "+its+". When "+they+", this says it: "+
			config.Command(file, "doctor"))
	}
	const clients = "for the folders of clients, because "
	add(absent, clients+"its package may not be downloaded yet", clients+"their packages may not be downloaded yet")
	add(failed, clients+"it did not start", clients+"they did not start")
	return lines
}

// Folders offers to give each folder of a client a process of its own, for the new commands that ask for the
// folders of their client. The proposed answer is yes, but no for a command whose arguments name a folder, because
// that command works there for every client. yes accepts the proposed answer.
// Without a terminal and without yes, the notes have the line to set.
func Folders(cmd *cobra.Command, list []*New, yes bool) error {
	var without, with []*New
	for _, n := range list {
		switch {
		case !n.Roots || n.Entry.Windows:
		case n.named() == "":
			without = append(without, n)
		default:
			with = append(with, n)
		}
	}
	if err := offerWindows(cmd, without, true, yes); err != nil {
		return err
	}
	return offerWindows(cmd, with, false, yes)
}

// offerWindows is Folders for entries for which the same is proposed.
func offerWindows(cmd *cobra.Command, list []*New, proposed, yes bool) error {
	agreed, asked := proposed && yes, false
	if len(list) > 0 && !yes && cli.CanAsk(cmd) {
		var names []string
		for _, n := range list {
			names = append(names, n.Name)
		}
		question := strings.Join(names, ", ") + " ask clients for their folders (roots). Start a process of each"
		if len(names) == 1 {
			question = names[0] + " asks clients for their folders (roots). Start a process of it"
		}
		question += " for each folder of a client (" + isolationKey + ")?"
		if !proposed {
			question = namedQuestion(list)
		}
		asked = true
		var err error
		if agreed, err = cli.QuestionsOf(cmd).YesNo(question, proposed); err != nil {
			return err
		}
	}
	for _, n := range list {
		n.Entry.Windows = agreed
		switch named := n.named(); {
		case agreed:
			n.Note = fmt.Sprintf("%s asks for the folders of its client: each folder gets a process of its own "+
				"(%s)", n.Name, isolationKey)
		case asked: // the answer was no
		case named != "":
			n.Note = fmt.Sprintf("%s serves %s to all clients, though it asks for their folders; to give each "+
				"folder a process of its own, set %s", n.Name, named, isolationKey)
		default:
			n.Note = fmt.Sprintf("%s asks for the folders of its client, and gets none; to give each folder a "+
				"process of its own, set %s", n.Name, isolationKey)
		}
	}
	return nil
}

// namedQuestion returns the question about commands that name folders.
func namedQuestion(list []*New) string {
	const instead = "in the folder of each client instead (" + isolationKey + ")?"
	if n := list[0]; len(list) == 1 {
		return fmt.Sprintf("The command of %s names %s: it works there for all clients. Should it work %s", n.Name,
			n.named(), instead)
	}
	text := "These commands name folders, and work there for all clients:\n"
	for _, n := range list {
		text += "  " + n.Name + ": " + n.named() + "\n"
	}
	return text + "Should they work " + instead
}

// named returns the folders that the command names, as a list for people, or "".
func (n *New) named() string {
	command := make([]string, len(n.Entry.Command))
	for i, v := range n.Entry.Command {
		command[i] = v.Expand(Lookup)
	}
	return strings.Join(upstream.FoldersOf(command), " and ")
}
