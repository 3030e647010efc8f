package clients

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// This file finds out in which folder a command works: in a fixed one, or in that of each client's window.

// FolderWord stands in Junction's configuration for the folder of the client of a call; it is no variable.
// isolationFolder is the word of isolation for an entry that has it.
const (
	FolderWord      = "${folder}"
	isolationFolder = "folder"
)

// windowVariables are the variables with the folder of a client. Those of Junction's own environment mean the
// folder in which Junction was started.
var windowVariables = []string{"PWD", "OLDPWD", "CLAUDE_PROJECT_DIR"}

// start is where a client starts the commands of the user's file.
type start int

const (
	startsAnywhere start = iota // it is not known
	startsInFolder              // in the folder of the window
	startsAtHome                // in the home folder
)

// base returns the folder in which a relative path of the entry begins; "" if each window has its own, or
// if it is not known.
func (r *reader) base() string {
	switch {
	case r.place.folder != "": // of the project, of the file that a person has named, or where add was typed
		return r.place.folder
	case r.place.Client.starts == startsAtHome:
		return r.home.Dir
	}
	return ""
}

// dots reports whether "." in the entry is the folder of a window. In Junction's own configuration it is not.
func (r *reader) dots() bool {
	return r.place.folder != "" || r.place.Client.ID != "" && r.place.Client.starts != startsAtHome
}

// isWindow reports whether a variable is the folder of a window: that of the client, or FolderWord in an entry
// of Junction.
func (r *reader) isWindow(variable string) bool {
	own := r.place.Client.ID == ""
	return own && "${"+variable+"}" == FolderWord ||
		(!own || r.place.folder != "") && slices.Contains(windowVariables, variable)
}

// Fixed reports whether the server is a command of a project that works in the folder of the project, whichever
// client calls it.
func (s *Server) Fixed() bool {
	return s.ofProject() && s.Entry != nil && s.Entry.Runs() && !s.Entry.Windows
}

// pin replaces the folder of a window by that of the project. The error says that there is none.
func (r *reader) pin(v *Value, what string) error {
	for i, p := range *v {
		if p.kind != window {
			continue
		}
		if r.place.folder == "" {
			return fmt.Errorf("%s has %s, which is another folder in each window; Junction can name the folder of a "+
				"client only as a whole argument or variable of a command, or behind = or :; write the full path of "+
				"one folder", what, p.text)
		}
		*v = slices.Clone(*v)
		(*v)[i] = part{kind: folder, text: r.place.folder}
	}
	return nil
}

// inherit names the folder of the window for variables with it that the command gets from the environment.
func (e *Entry) inherit(r *reader) {
	e.InheritEnv = slices.DeleteFunc(e.InheritEnv, func(name string) bool {
		if !slices.Contains(windowVariables, name) {
			return false
		}
		e.Env[name] = Value{{kind: window, text: name}}
		return true
	})
}

// settle decides in which folder a command works. cwd is the folder that the client's file names, or "".
func (e *Entry) settle(r *reader, cwd string) error {
	if err := r.pinProgram(e); err != nil {
		return err
	}
	for i := 1; i < len(e.Command); i++ {
		if err := e.window(r, &e.Command[i], "its command"); err != nil {
			return err
		}
	}
	for name, v := range e.Env {
		if err := e.window(r, &v, "env."+name); err != nil {
			return err
		}
		e.Env[name] = v
	}
	base, relative := r.base(), e.relatives(r.base())
	switch given := r.directory(cwd); {
	case cwd != "" && given != nil:
		e.Dir = given
		e.Windows = e.Windows || slices.ContainsFunc(given, func(p part) bool { return p.kind == window })
	case base != "" && (len(relative) > 0 && (r.place.folder != "" || exists(base, relative)) ||
		r.place.ofProject() && !e.Windows):
		e.Dir = Value{{text: base}} // clients start the servers of a project in its folder
	case base == "" && len(relative) > 0 && r.place.Client.starts == startsInFolder:
		e.Dir, e.Windows = Value{{kind: window, text: relative[0]}}, true
	}
	if typed := r.place.Client.ID == ""; r.place.ofProject() || typed {
		e.Named = r.place.folder
	}
	if r.place.Client.ID != "" || r.place.folder == "" { // the look of an imported server has it
		return nil
	}
	if len(relative) > 0 && cwd == "" {
		r.note("it works in %s, where the relative path %s begins", r.home.Short(base), short(relative[0]))
	}
	if e.Windows {
		r.note("each folder of a client gets a process of its own (isolation: folder); for one folder, write its path "+
			"in place of %s", FolderWord)
	}
	return nil
}

// pinProgram replaces the folder of a window in the program: the project's own program is run for all.
func (r *reader) pinProgram(e *Entry) error {
	if !e.Runs() {
		return nil
	}
	return r.pin(&e.Command[0], "its program")
}

// window finds the folder of a window in a value: as a whole, or behind = or :. In another place, the folder of
// the project takes its place.
func (e *Entry) window(r *reader, v *Value, what string) error {
	last := len(*v) - 1
	at := slices.IndexFunc(*v, func(p part) bool { return p.kind == window })
	switch {
	case at < 0:
		return nil
	case at != last || last > 0 && !strings.HasSuffix((*v)[last-1].text, "=") &&
		!strings.HasSuffix((*v)[last-1].text, ":"):
		return r.pin(v, what)
	}
	e.Windows = true
	return nil
}

// named is value for an argument or a variable of a command, which may name the folder of the window.
func (r *reader) named(text string) Value {
	v := r.value(text)
	if named := r.naming(v); named != nil {
		return named
	}
	return v
}

// naming returns a value that names the folder of the window in other words than a variable: "." or, in the
// file of a project, the path of its folder. It returns nil for another value.
func (r *reader) naming(v Value) Value {
	if len(v) != 1 || v[0].kind != plainText {
		return nil
	}
	before, text := "", v[0].text
	if i := strings.LastIndexByte(text, '='); i >= 0 {
		before, text = text[:i+1], text[i+1:]
	}
	dot := r.dots() && (text == "." || text == "./" || text == `.\`)
	path := r.place.ofProject() && filepath.IsAbs(text) && filepath.Clean(text) == filepath.Clean(r.place.folder)
	if !dot && !path {
		return nil
	}
	return append(Value{}.literal(before), part{kind: window, text: text})
}

// directory returns the folder that cwd of a client's file names; nil if it is none that Junction can have.
func (r *reader) directory(cwd string) Value {
	if cwd == "" {
		return nil
	}
	if rest, ok := strings.CutPrefix(cwd, "~/"); ok {
		return Value{{text: filepath.Join(r.home.Dir, rest)}}
	}
	v, base := r.value(cwd), r.base()
	if named := r.naming(v); named != nil && base == "" {
		v = named
	}
	if len(v) == 1 && v[0].kind == window && !r.place.ofProject() {
		return v
	}
	if r.pin(&v, "cwd") != nil {
		r.note("not imported: cwd is below the folder of each window; write the full path of one folder into dir")
		return nil
	}
	text := v.Expand(r.home.Getenv)
	switch {
	case r.place.ofProject() && !filepath.IsAbs(text):
		return Value{{text: filepath.Join(base, text)}}
	case filepath.IsAbs(text), len(v.Variables()) > 0, filepath.VolumeName(text) != "":
		return v
	case base != "":
		return Value{{text: filepath.Join(base, text)}}
	}
	r.note("not imported: cwd is a relative path, and the client's file does not say in which folder it begins; " +
		"write the full path into dir")
	return nil
}

// exists reports whether one of some relative paths exists in a folder.
func exists(base string, relative []string) bool {
	return slices.ContainsFunc(relative, func(path string) bool {
		_, err := os.Lstat(filepath.Join(base, path))
		return err == nil
	})
}
