package clients

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"junction/cmd/junction/base/revision"
	"junction/cmd/junction/desk/clients/format"
)

// A Home is where the files of clients are looked for.
type Home struct {
	OS      string                           // a GOOS
	Dir     string                           // the home folder
	Project string                           // the folder whose project files count; "" for none
	Getenv  func(name string) (string, bool) // os.LookupEnv, except in tests
}

// HomeOf returns where the client files of this user are. project may be relative; "" means that no
// project counts.
func HomeOf(project string) (Home, error) {
	dir, err := os.UserHomeDir()
	if err != nil {
		return Home{}, fmt.Errorf("cannot find the home folder: %w; set HOME", err)
	}
	if project != "" {
		if project, err = filepath.Abs(project); err != nil {
			return Home{}, err
		}
	}
	return Home{OS: runtime.GOOS, Dir: dir, Project: project, Getenv: os.LookupEnv}, nil
}

// path is a file below one of the folders that a system has for configuration.
type path struct {
	base base
	file string // with slashes; may begin with an environment variable as $NAME/, and have * for one folder
	os   string // the only GOOS with this file; "" for all

	keys     []string // that lead to the servers; nil for those of the client
	readOnly bool     // Connect does not write the file
}

type base int

const (
	home      base = iota // the home folder, or what project files are in
	config                // XDG_CONFIG_HOME, also on macOS and Windows
	appConfig             // the folder of the system: XDG_CONFIG_HOME, Application Support or APPDATA
)

// Scope says for whom a client uses a server.
type Scope string

const (
	User    Scope = "user"    // in every project
	Project Scope = "project" // in the project whose folder holds the file
	Local   Scope = "local"   // in one project, and the file is the user's
)

// A Place is one list of servers in one file.
type Place struct {
	Client *Client
	Scope  Scope
	File   string

	keys   []string
	folder string // of the project; "" for the user's servers
	named  bool   // the file is no client's: a person has named it

	readOnly bool // Connect does not write the file
}

// foreign reports whether somebody else may have written the file: it came with a project, or from
// anywhere.
func (p Place) foreign() bool { return p.Scope == Project || p.named }

// ofProject reports whether the client starts the servers of the place in the folder of a project.
func (p Place) ofProject() bool { return p.Scope != User && p.folder != "" }

// Places returns where servers may be, whether or not the files exist.
func (h Home) Places() []Place {
	var list []Place
	for _, c := range table() {
		list = append(list, h.Of(c)...)
	}
	return list
}

// Of returns the places of one client.
func (h Home) Of(c *Client) []Place {
	var list []Place
	for _, p := range c.user {
		file, ok := h.file(p)
		if !ok {
			continue
		}
		keys := p.keys
		if keys == nil {
			keys = c.keys
		}
		for _, file := range inFolders(file) {
			list = append(list, Place{Client: c, Scope: User, File: file, keys: keys, readOnly: p.readOnly})
		}
		if c.projects && h.Project != "" {
			keys := []string{"projects", h.Project, "mcpServers"}
			list = append(list, Place{Client: c, Scope: Local, File: file, keys: keys, folder: h.Project})
		}
	}
	if h.Project == "" {
		return list
	}
	for _, p := range c.project {
		file := filepath.Join(h.Project, filepath.FromSlash(p.file))
		users := func(other Place) bool { return other.Scope == User && revision.SamePath(other.File, file) }
		if slices.ContainsFunc(list, users) { // the project is the home folder
			continue
		}
		list = append(list, Place{Client: c, Scope: Project, File: file, keys: c.keys, folder: h.Project})
	}
	return list
}

// OtherProjects returns the places of the servers that Claude Code has for other projects than
// h.Project, if their folders exist. A file that cannot be read has none.
func (h Home) OtherProjects() []Place {
	var list []Place
	for _, c := range table() {
		for _, p := range h.Of(c) {
			if !c.projects || p.Scope != User {
				continue
			}
			text, err := revision.Read(p.File)
			if err != nil {
				continue
			}
			projects, _ := c.format.Servers(text, []string{"projects"})
			for _, project := range projects {
				servers, _ := project.Fields["mcpServers"].(map[string]any)
				info, err := os.Stat(project.Name)
				if len(servers) == 0 || err != nil || !info.IsDir() || revision.SamePath(project.Name, h.Project) {
					continue
				}
				keys := []string{"projects", project.Name, "mcpServers"}
				list = append(list, Place{Client: c, Scope: Local, File: p.File, keys: keys, folder: project.Name})
			}
		}
	}
	return list
}

// Folder returns the folder of the project whose servers the place has; "" for those of the user.
func (p Place) Folder() string { return p.folder }

// Place returns the place of the servers of a client with a scope: the first file that exists, else the
// first one whose folder does, or the first one of the system. ok is false where the client has no
// such file on the system.
func (h Home) Place(c *Client, scope Scope) (p Place, ok bool) {
	hasFolder := false
	for _, candidate := range h.Of(c) {
		if candidate.Scope != scope || candidate.readOnly {
			continue
		}
		if _, err := os.Stat(candidate.File); err == nil {
			return candidate, true
		}
		_, err := os.Stat(filepath.Dir(candidate.File))
		if !ok || err == nil && !hasFolder {
			p, ok, hasFolder = candidate, true, err == nil
		}
	}
	return p, ok
}

// PlacesOf returns the lists of servers in a file that the user names: those of the client that
// keeps its servers there, or that of any client with the form of the file.
func (h Home) PlacesOf(file string) ([]Place, error) {
	var list []Place
	for _, p := range h.Places() {
		if revision.SamePath(p.File, file) {
			list = append(list, p)
		}
	}
	if len(list) > 0 {
		return list, nil
	}
	text, err := revision.Read(file)
	if err != nil {
		return nil, err
	}
	for _, c := range table() {
		if c.format != formatOf(file) {
			continue
		}
		servers, err := c.format.Servers(text, c.keys)
		if err != nil {
			return nil, err
		}
		if servers != nil {
			folder := filepath.Dir(file)
			anyone := &Client{ID: c.ID, Name: "file", format: c.format, syntax: c.syntax | c.alike, habits: c.habits}
			return []Place{{Client: anyone, Scope: User, File: file, keys: c.keys, folder: folder,
				named: true}}, nil
		}
	}
	return nil, nil
}

// file returns the path of p; ok is false where the system does not have it.
func (h Home) file(p path) (string, bool) {
	if p.os != "" && p.os != h.OS {
		return "", false
	}
	name := p.file
	dir := h.Dir
	if variable, rest, ok := strings.Cut(name, "/"); ok && strings.HasPrefix(variable, "$") {
		value, _ := h.Getenv(variable[1:])
		if !filepath.IsAbs(value) {
			return "", false
		}
		dir, name = value, rest
	} else if p.base == config || p.base == appConfig {
		dir = h.configDir(p.base)
	}
	return filepath.Join(dir, filepath.FromSlash(name)), true
}

// formatOf returns the format of a file by the end of its name.
func formatOf(file string) format.Format {
	switch strings.ToLower(filepath.Ext(file)) {
	case ".toml":
		return format.TOML{}
	case ".yaml", ".yml":
		return format.YAML{}
	}
	return format.JSON{}
}

// maxProfiles is the most folders that * in a path stands for.
const maxProfiles = 100

// inFolders returns the files that a path with * for one folder stands for, in the order of their
// names.
func inFolders(file string) []string {
	parent, rest, ok := strings.Cut(file, string(filepath.Separator)+"*"+string(filepath.Separator))
	if !ok {
		return []string{file}
	}
	dir, err := os.Open(parent)
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(maxProfiles)
	slices.Sort(names)
	for i, name := range names {
		names[i] = filepath.Join(parent, name, rest)
	}
	return names
}

func (h Home) configDir(b base) string {
	if b == appConfig && h.OS == "darwin" {
		return filepath.Join(h.Dir, "Library", "Application Support")
	}
	if b == appConfig && h.OS == "windows" {
		if dir, _ := h.Getenv("APPDATA"); dir != "" {
			return dir
		}
		return filepath.Join(h.Dir, "AppData", "Roaming")
	}
	if dir, _ := h.Getenv("XDG_CONFIG_HOME"); filepath.IsAbs(dir) {
		return dir
	}
	return filepath.Join(h.Dir, ".config")
}

// Short returns a path with ~ for the home folder, for people.
func (h Home) Short(file string) string {
	return revision.Short(file, h.Dir)
}
