package config

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/user"
	"path/filepath"
	"slices"

	"junction/policy"
	"junction/upstream"
	"junction/upstream/files"
	"junction/upstream/folder"
	"junction/upstream/prose"
	"junction/upstream/sandbox"
)

// This file is about the folders that clients may name: the section folders, the list that junction folders
// keeps, and the files that no folder may contain.

// Folders is the file's folders section: the folders of this machine that clients may name, for
// upstreams with isolation: folder.
type Folders struct {
	// Clients may name these folders and every folder in them. Absolute paths. Default: none.
	//
	// Junction follows the links of these paths when it starts, and no link in the folders. It never
	// accepts / or a home folder itself, a hidden folder, Library and AppData of a home folder, or a
	// folder with files of Junction in it.
	Within []string `yaml:"within" example:"[/home/ann/src]" change:"call,both"`
	// Clients may name neither these folders, nor a folder in them, nor a folder that contains one of
	// them. Absolute paths.
	Except []string `yaml:"except" example:"[/home/ann/src/private]" change:"call,both"`
}

// lists returns the two lists with their keys.
func (f *Folders) lists() map[string][]string {
	return map[string][]string{"folders.within": f.Within, "folders.except": f.Except}
}

// meet returns the folders that both sections permit.
func (f Folders) meet(o Folders) (both Folders) {
	for _, a := range f.Within {
		for _, b := range o.Within {
			a, b := filepath.Clean(a), filepath.Clean(b)
			if folder.Contains(a, b) {
				a = b // the inner one
			} else if !folder.Contains(b, a) {
				continue
			}
			if !slices.Contains(both.Within, a) {
				both.Within = append(both.Within, a)
			}
		}
	}
	both.Except = union(f.Except, o.Except)
	return both
}

// validateFolders adds to d the mistakes in the section folders.
func (c *Config) validateFolders(d *decoder) {
	for key, list := range c.Folders.lists() {
		for i, path := range list {
			at := fmt.Sprintf("%s[%d]", key, i)
			d.check(at, folder.PathProblem(path))
		}
	}
}

// folderOwn returns the files that no folder of a client may contain, and the folders that no such folder may
// be in: those of Junction, and for entries with a sandbox those of the other entries.
func (c *Config) folderOwn(d *decoder) (list []folder.Own) {
	add := func(entry string, deciders sandbox.Deciders) {
		for _, decider := range deciders {
			list = append(list, folder.Own{What: decider.What, Path: decider.Path, Entry: entry})
		}
	}
	add("", c.decidersOfJunction(d))
	for _, name := range slices.Sorted(maps.Keys(c.Upstreams)) {
		u, at := c.Upstreams[name], " of upstreams."+name
		add(name, c.programs(d, name))
		if c.Packs[name] != "" {
			add(name, d.packDeciders(c, name))
		}
		if u.Dir != "" && !folder.Named(u.Dir) {
			list = append(list, folder.Own{What: "dir" + at, Path: absolute(u.Dir), Entry: name})
		}
		if u.Sandbox == nil {
			continue
		}
		for _, path := range u.Sandbox.Write {
			if !folder.Named(path) {
				list = append(list, folder.Own{What: "a path of write" + at, Path: absolute(path), Entry: name})
			}
		}
	}
	return list
}

// absolute returns the path of a file that the configuration names.
func absolute(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		return abs
	}
	return path
}

// FolderRules returns the rules of a Guard for the folders that clients may name. file is the configuration
// file, and list has what junction folders permits.
func (c *Config) FolderRules(file string, list *folder.List) folder.Rules {
	r := folder.Rules{Within: c.Folders.Within, Own: slices.Clone(c.Own), Homes: homes(),
		Permit: func(path string) string { return Command(file, "folders", "allow", path) }}
	for _, path := range c.Folders.Except {
		r.Own = append(r.Own, folder.Own{What: "a folder of folders.except", Path: path})
	}
	if list != nil {
		r.Allowed = list.Roots
	}
	return r
}

// FolderGuard returns the Guard for the folders that clients may name. It asks the list of junction folders
// at each call.
func (c *Config) FolderGuard(file string, getenv func(string) (string, bool)) (*folder.Guard, error) {
	list, err := c.PermittedFolders(file, getenv)
	if err != nil {
		return nil, err
	}
	return folder.New(c.FolderRules(file, list)), nil
}

// homes returns the home folders of the user of this process: by the environment, and by the system.
func homes() (list []string) {
	if home, err := os.UserHomeDir(); err == nil && filepath.IsAbs(home) {
		list = append(list, filepath.Clean(home))
	}
	if own, err := user.Current(); err == nil && filepath.IsAbs(own.HomeDir) && own.HomeDir != "/" &&
		!slices.Contains(list, filepath.Clean(own.HomeDir)) {
		list = append(list, filepath.Clean(own.HomeDir))
	}
	return slices.DeleteFunc(list, func(home string) bool { return filepath.Dir(home) == home }) // of a service
}

// PermittedFolders returns the list of junction folders for a configuration file.
func (c *Config) PermittedFolders(file string, getenv func(string) (string, bool)) (*folder.List, error) {
	dir := KeyDir(c.Sessions.KeyFile, getenv)
	if dir == "" {
		return nil, errors.New("there is no place for the list of permitted folders; set HOME or XDG_STATE_HOME")
	}
	return folder.NewList(filepath.Join(dir, foldersDir, FolderOf(file)+".json")), nil
}

// foldersDir is the folder of the lists of PermittedFolders.
const foldersDir = "folders"

// warnFolders warns about folders that several principals share, that are those of one machine, and that
// nobody can name.
func (c *Config) warnFolders(d *decoder, warn func(path, format string, args ...any)) {
	for _, name := range inOrder(d, "upstreams", c.Upstreams) {
		if u := c.Upstreams[name]; c.Replicas.On() && u.Isolation == upstream.IsolationFolder && !u.Off() {
			which, when := "answers", "at the next call"
			if u.Stateful != nil && *u.Stateful {
				which, when = "has the state", "when that process has ended"
			}
			warn("upstreams."+name+".isolation", "with replicas, a folder is that of the machine of the process that "+
				"%s, so the same path may be another folder %s; use one process for this upstream", which, when)
		}
	}
	within := c.Folders.Within
	at, these := "folders.within", "these folders"
	if len(within) == 0 {
		at, these = "auth", "the folders of "+Command(d.File, "folders", "list")
		if list, err := c.PermittedFolders(d.File, d.refs.getenv); err != nil {
			return
		} else if roots, err := list.Roots(); err == nil && len(roots) == 0 {
			return // nothing is permitted
		}
	}
	narrowed := slices.ContainsFunc(c.Policies, func(e policy.Entry) bool { return e.Folders != nil })
	if c.Auth.several() && !narrowed {
		warn(at, "every principal can name each of %s, and read and change all of it through the upstreams with "+
			"isolation: folder; give each the folders that it needs (folders of a policy)", these)
	}
	guard := folder.New(c.FolderRules(d.File, nil))
	for i, path := range within {
		at := fmt.Sprintf("folders.within[%d]", i)
		if d.broken(at) {
			continue
		}
		if why := guard.Never(filepath.Join(path, "project")); why != "" {
			warn(at, "nobody can name a folder there: in %s, %s; name other folders", prose.Quote(path), why)
		} else if info, err := os.Stat(path); err != nil || !info.IsDir() {
			warn(at, "there is no folder %s", path)
		}
	}
}

// AllowFolders adds folders to the list of junction folders, and returns those that it did not have. It adds
// none if one of the paths cannot be permitted: it must be absolute, and a folder that nobody is kept from.
func (c *Config) AllowFolders(ctx context.Context, file string, getenv func(string) (string, bool),
	paths ...string) (added []folder.Root, err error) {
	list, err := c.PermittedFolders(file, getenv)
	if err != nil {
		return nil, err
	}
	check := c.Permissible(file)
	var roots []folder.Root
	for _, path := range paths {
		root, err := check(path)
		if err != nil {
			return nil, err
		}
		roots = append(roots, root)
	}
	return list.Allow(ctx, roots...)
}

// Permissible returns a function that returns the Root of a path that clients may be permitted to name, or why they
// may not.
func (c *Config) Permissible(file string) func(path string) (folder.Root, error) {
	guard := folder.New(c.FolderRules(file, nil))
	return func(path string) (folder.Root, error) {
		refused := func(why string) error { return fmt.Errorf("cannot permit %s: %s", prose.Quote(path), why) }
		if problem := folder.PathProblem(path); problem != "" {
			return folder.Root{}, refused("the path " + problem)
		}
		root := folder.NewRoot(path)
		if why := guard.Never(path); why != "" {
			return folder.Root{}, refused(why)
		}
		switch info, err := os.Stat(root.Real); {
		case err != nil:
			return folder.Root{}, fmt.Errorf("cannot permit %s: %w", prose.Quote(path), files.Reason(err))
		case !info.IsDir():
			return folder.Root{}, refused("it is a file; name a folder")
		}
		return root, nil
	}
}

// MayName returns the folders that clients may name: those of folders.within, and of the list of junction folders. It
// leaves out a list that cannot be read.
func (c *Config) MayName(file string, getenv func(string) (string, bool)) (roots []folder.Root) {
	for _, path := range c.Folders.Within {
		roots = append(roots, folder.Root{Name: filepath.Clean(path), Real: filepath.Clean(path)})
	}
	if list, err := c.PermittedFolders(file, getenv); err == nil {
		more, _ := list.Roots()
		roots = append(roots, more...)
	}
	return roots
}

// FolderEntries returns the names of the enabled upstreams that work in the folders of clients, sorted.
func (c *Config) FolderEntries() (names []string) {
	for _, name := range slices.Sorted(maps.Keys(c.Upstreams)) {
		if u := c.Upstreams[name]; u.Isolation == upstream.IsolationFolder && !u.Off() {
			names = append(names, name)
		}
	}
	return names
}
