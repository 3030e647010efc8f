package entries

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"junction/cmd/junction/base/cli"
	"junction/cmd/junction/base/config"
	"junction/cmd/junction/desk/clients"
	"junction/upstream/folder"
	"junction/upstream/prose"
)

// This file permits the folders that clients may name, when an entry works in them (isolation: folder): without a
// permitted folder, each call of the entry fails.

// maxProposed is the most folders that one question proposes: a person has to read them.
const maxProposed = 30

// Permitting asks which folders clients may name, if one of the new entries works in them. It proposes those that
// the files of the clients name, and more, as far as they can be permitted and are not. yes accepts these. Without
// a terminal and without yes, it returns none. If folders.within of the file has the folders, the file decides.
func Permitting(cmd *cobra.Command, c *config.Config, file string, home *clients.Home, list []*New, more []string,
	yes bool) ([]string, error) {
	var names []string
	has := c.MayName(file, os.LookupEnv)
	for _, n := range list {
		if n.Entry.Windows {
			names = append(names, n.Name)
			if n.Entry.Named != "" { // Permit permits it: the person has agreed to the entry
				has = append(has, folder.NewRoot(n.Entry.Named))
			}
		}
	}
	if len(names) == 0 || len(c.Folders.Within) > 0 {
		return nil, nil
	}
	known := Proposed(c, file, home, has, more)
	switch {
	case len(known) == 0 && len(has) > 0:
		return nil, nil
	case yes:
		return known, nil
	case !cli.CanAsk(cmd):
		return nil, nil
	}
	return whichFolders(cmd, c.Permissible(file), home, names, known)
}

// whichFolders asks which folders clients may name. known are proposed.
func whichFolders(cmd *cobra.Command, check func(string) (folder.Root, error), home *clients.Home, names,
	known []string) ([]string, error) {
	verb, answers := "work", "Folders, separated by commas, such as ~/src [none]:"
	if len(names) == 1 {
		verb = "works"
	}
	question := fmt.Sprintf("%s %s only in folders that you permit, with the folders in them. Which folders may "+
		"clients name?", strings.Join(names, ", "), verb)
	if len(known) > 0 {
		question += "\n  " + strings.Join(shortened(home, known), "\n  ")
		answers = "Yes for all of these, no for none, or other folders, separated by commas [yes]:"
	}
	for {
		line, err := cli.QuestionsOf(cmd).Line(question + "\n" + answers)
		if err != nil {
			return nil, err
		}
		if line == "" {
			return known, nil
		}
		if agreed, is := cli.YesOrNo(line); is && agreed {
			return known, nil
		} else if is || strings.EqualFold(line, "none") {
			return nil, nil
		}
		chosen, err := typedFolders(line, home, check)
		if err == nil {
			return chosen, nil
		}
		cli.Tellf(cmd.ErrOrStderr(), "%s.\n", prose.OneLine(err.Error()))
	}
}

// typedFolders returns the folders of an answer, which can all be permitted.
func typedFolders(line string, home *clients.Home, check func(string) (folder.Root, error)) (list []string,
	err error) {
	for path := range strings.SplitSeq(line, ",") {
		path = strings.TrimSpace(path)
		if rest, ok := strings.CutPrefix(path, "~/"); ok {
			path = filepath.Join(home.Dir, rest)
		}
		if path == "" {
			continue
		}
		if path, err = filepath.Abs(path); err != nil {
			return nil, err
		}
		if _, err := check(path); err != nil {
			return nil, err
		}
		list = append(list, path)
	}
	return list, nil
}

// Proposed returns the folders in which the clients were used, and more, that can be permitted, and that has does not
// permit yet. It leaves out a folder in another one of them.
func Proposed(c *config.Config, file string, home *clients.Home, has []folder.Root, more []string) []string {
	all := slices.Clone(more)
	for _, one := range clients.All() {
		all = append(all, home.Visited(one)...)
	}
	slices.Sort(all)
	check := c.Permissible(file)
	var list []string
	for _, path := range slices.Compact(all) {
		inner := func(outer string) bool { return folder.Contains(outer, path) }
		if len(list) == maxProposed || Permits(has, path) || slices.ContainsFunc(list, inner) {
			continue
		}
		if _, err := check(path); err == nil {
			list = append(list, path)
		}
	}
	return list
}

// Permits reports whether one of the roots permits a folder.
func Permits(roots []folder.Root, path string) bool {
	return slices.ContainsFunc(roots, func(r folder.Root) bool {
		return folder.Contains(r.Name, path) || folder.Contains(r.Real, path)
	})
}

func shortened(home *clients.Home, paths []string) (list []string) {
	for _, path := range paths {
		list = append(list, prose.OneLine(home.Short(path)))
	}
	return list
}

// Permit permits clients to name the folders in which new folder entries were found or typed, and those of
// Permitting: the person has agreed to these. It returns the folders, and sentences about them; "" without such
// an entry. If folders.within of the file has the folders, the file decides.
func Permit(ctx context.Context, c *config.Config, file string, home *clients.Home, agreed []string,
	list ...*clients.Entry) (folders []string, text string) {
	windows, refused := false, ""
	check := c.Permissible(file)
	add := func(path string) {
		if path == "" || slices.Contains(folders, path) {
			return
		}
		if _, err := check(path); err != nil {
			refused += "Clients may not name " + prose.OneLine(home.Short(path)) + ": " + prose.OneLine(err.Error()) +
				". "
			return
		}
		folders = append(folders, path)
	}
	for _, e := range list {
		if windows = windows || e.Windows; e.Windows {
			add(e.Named)
		}
	}
	if !windows || len(c.Folders.Within) > 0 {
		return nil, ""
	}
	for _, path := range agreed {
		add(path)
	}
	if len(folders) > 0 {
		if _, err := c.AllowFolders(ctx, file, os.LookupEnv, folders...); err != nil {
			folders, refused = nil, refused+"Clients may name no more folders: "+prose.OneLine(err.Error())+". "
		}
	}
	allow := config.Command(file, "folders", "allow", "FOLDER")
	switch {
	case len(folders) == 1:
		return folders, refused + "Clients may name " + shortened(home, folders)[0] + " and the folders in it. To " +
			"permit another folder: " + allow
	case len(folders) > 1:
		return folders, refused + "Clients may name " + strings.Join(shortened(home, folders), ", ") + " and the " +
			"folders in them. To permit another folder: " + allow
	case len(c.MayName(file, os.LookupEnv)) > 0:
		return nil, refused + "Clients may name the folders of " + config.Command(file, "folders", "list") +
			". To permit another folder: " + allow
	}
	return nil, refused + "Clients may name no folder yet, so that calls from a folder fail. To permit the " +
		"folders in which you work: " + allow
}
