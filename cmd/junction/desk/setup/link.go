package setup

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"junction/cmd/junction/base/cli"
	"junction/cmd/junction/base/config"
	"junction/cmd/junction/base/revision"
	"junction/cmd/junction/desk/service"
	"junction/upstream/files"
	"junction/upstream/prose"
)

// links is what a setup has linked, so that a shell finds the programs by their names.
type links struct {
	Files   []link   `json:"files,omitempty"`
	Folders []string `json:"folders,omitempty"` // created for the links, the innermost first
}

// link is a symbolic link and the program that it names.
type link struct {
	File string `json:"file"`
	To   string `json:"to"`
}

// callable returns junction if the shell finds this program by that name, and otherwise the path of it.
func callable() string {
	if program, named := byName(); program != "" && !named {
		return program
	}
	return "junction"
}

// command returns a command line about the file that works in this shell.
func (g *guide) command(words ...string) string {
	return config.CommandOf(cmp.Or(g.name, "junction"), g.file, words...)
}

// byName returns the path of this program, and whether a shell finds it as junction. The path is "" if it is
// not known.
func byName() (program string, named bool) {
	program, err := service.Program()
	if err != nil {
		return "", false
	}
	found, err := exec.LookPath("junction")
	return program, err == nil && revision.SamePath(found, program)
}

// link offers to link the program into ~/.local/bin, if this shell does not find it by its name. --yes
// accepts only where the link is found at once. It sets called, the last line of the setup.
func (g *guide) link() error {
	program, named := byName()
	if named || program == "" {
		return nil
	}
	if other, err := exec.LookPath("junction"); err == nil {
		g.called = fmt.Sprintf("The command junction is another program here: %s. Run this one as %s.",
			prose.OneLine(g.home.Short(other)), prose.OneLine(program))
		return nil
	}
	dir := filepath.Join(g.home.Dir, ".local", "bin")
	inPath := slices.ContainsFunc(filepath.SplitList(os.Getenv("PATH")), func(one string) bool {
		return one != "" && (filepath.Clean(one) == dir || revision.SamePath(one, dir))
	})
	file := filepath.Join(dir, filepath.Base(program))
	_, err := os.Lstat(file)
	there, offered := err == nil, runtime.GOOS != "windows" && g.home.Dir != "" && (!g.yes || inPath)
	switch {
	case there && revision.SamePath(file, program): // PATH does not have the folder
		g.name = file
		g.called = g.lacks(dir, file)
		return nil
	case there && offered:
		g.called = fmt.Sprintf("This shell does not find junction. %s is another file, which stays; run Junction "+
			"as %s.", g.home.Short(file), program)
		return nil
	case !offered:
		g.called = fmt.Sprintf("This shell does not find junction. Run it as %s.", program)
		return nil
	}
	fmt.Fprintln(g.stdout)
	agreed, err := g.agree(fmt.Sprintf("This shell does not find junction by its name. Link it into %s?",
		g.home.Short(dir)))
	if err != nil {
		return err
	}
	if !agreed {
		g.called = fmt.Sprintf("This shell does not find junction. Run it as %s.", program)
		return nil
	}
	return g.linkInto(dir, program, inPath)
}

// linkInto links this program into a folder, and junction-pack, which stands beside it. The record has each
// link before it is made.
func (g *guide) linkInto(dir, program string, inPath bool) error {
	l := &g.record.Links
	for folder := dir; ; folder = filepath.Dir(folder) {
		if _, err := os.Stat(folder); !errors.Is(err, fs.ErrNotExist) {
			break
		}
		l.Folders = append(l.Folders, folder)
	}
	var made []string
	for _, name := range []string{"junction", config.PackProgram} {
		to := program
		if name != "junction" {
			to = filepath.Join(filepath.Dir(program), name)
		}
		file := filepath.Join(dir, name)
		if _, err := os.Stat(to); err != nil {
			continue
		}
		if _, err := os.Lstat(file); err == nil { // it is of somebody else
			continue
		}
		l.Files = append(l.Files, link{file, to})
		if err := g.record.save(); err != nil {
			return err
		}
		err := os.MkdirAll(dir, 0o755)
		if err == nil {
			err = os.Symlink(to, file) // fails if the file exists by now
		}
		if err != nil {
			l.Files = l.Files[:len(l.Files)-1]
			cli.Tellf(g.stderr, "Cannot link %s: %v. Run it as %s.\n", g.home.Short(file), files.Reason(err), to)
			return g.record.save()
		}
		made = append(made, name)
	}
	g.say("Linked %s into %s.", strings.Join(made, " and "), g.home.Short(dir))
	g.name = "junction"
	if !inPath {
		g.name = filepath.Join(dir, "junction")
		g.called = g.lacks(dir, g.name)
	}
	return nil
}

// lacks returns the sentence about a folder with the program that PATH lacks.
func (g *guide) lacks(dir, file string) string {
	return fmt.Sprintf("PATH of this shell lacks %s. Many systems add it at the next login; until then, run %s.",
		g.home.Short(dir), file)
}

// unlink removes the links that still name what the setup has linked, and the folders that it has created
// for them, if they are empty.
func (g *guide) unlink() error {
	l := &g.record.Links
	var removed []string
	var failures []error
	l.Files = slices.DeleteFunc(l.Files, func(one link) bool {
		if to, err := os.Readlink(one.File); err != nil || to != one.To { // another file by now
			return true
		}
		if err := os.Remove(one.File); err != nil {
			failures = append(failures, fmt.Errorf("cannot remove %s: %w", one.File, files.Reason(err)))
			return false
		}
		removed = append(removed, g.home.Short(one.File))
		return true
	})
	if len(removed) > 0 {
		g.say("Removed the links %s.", strings.Join(removed, ", "))
	}
	if len(l.Files) == 0 {
		for _, folder := range l.Folders {
			os.Remove(folder) // if it is empty
		}
		l.Folders = nil
	}
	return errors.Join(failures...)
}
