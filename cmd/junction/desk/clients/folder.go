package clients

import (
	"net/url"
	"slices"
	"strings"
	"unicode"

	"junction/cmd/junction/desk/clients/format"
	"junction/upstream/loopback"
)

// FolderHeader is the header in which a client says in which folder it is.
const FolderHeader = "Junction-Folder"

// A folderForm is how the entry of Junction refers to the folder of the project in which the client works. The
// zero value is that of a client that replaces no such reference.
type folderForm struct {
	headers  string // the key of the headers in an entry
	value    string // of FolderHeader there
	argument string // of --folder of junction stdio; "" means that the client starts commands in the folder
	shell    bool   // value is a variable of a shell, which Windows does not have
	// ofProject means that only the file of a project may have the reference: in the user's file, the whole entry
	// fails in a window without a folder.
	ofProject bool
	// latin means that a request with a folder of letters beyond Latin-1 fails: the client cannot send the header.
	latin bool
}

// workspace is the folder of a window in the files of VS Code and Cursor.
const workspace = "${workspaceFolder}"

// Forms of the folder. PWD is the folder in which a client was started that starts in a shell.
var (
	ofShell     = folderForm{headers: "headers", value: "${PWD:-}", shell: true, latin: true}
	ofBraces    = folderForm{headers: "headers", value: "{env:PWD}", shell: true, latin: true}
	ofVariables = folderForm{headers: "env_http_headers", value: "PWD", shell: true}
	ofEditor    = folderForm{headers: "headers", value: workspace, argument: workspace, latin: true}
)

// inProjects returns the form for the files of projects only.
func (f folderForm) inProjects() folderForm {
	f.ofProject = true
	return f
}

// formOf returns the form for an entry in the file of a scope. An endpoint on another machine does not get the
// folder: it does not have it, and need not learn its name.
func (c *Client) formOf(t Target, scope Scope, goos string) folderForm {
	u, err := url.Parse(t.URL)
	if err != nil || !loopback.Host(u.Hostname()) || c.folder.ofProject && scope != Project ||
		c.folder.shell && goos == "windows" {
		return folderForm{}
	}
	return c.folder
}

// Bridges reports whether the entry for a target must start junction stdio, because the client cannot send a
// folder with such letters in a header: all its requests would fail. folder is that of the project, or the home
// folder, where the projects of a user are.
func (c *Client) Bridges(t Target, p Place, h Home) bool {
	folder := h.Dir
	if p.Scope == Project {
		folder = p.folder
	}
	beyond := func(r rune) bool { return r > unicode.MaxLatin1 }
	return c.formOf(t, p.Scope, h.OS).latin && strings.ContainsFunc(folder, beyond)
}

// withFolder adds the header to an entry with a URL.
func (f folderForm) withFolder(o format.Object) format.Object {
	if f.headers == "" {
		return o
	}
	header := format.Member{Key: FolderHeader, Value: f.value}
	for i, m := range o {
		if headers, ok := m.Value.(format.Object); ok && m.Key == f.headers {
			o = slices.Clone(o)
			o[i].Value = append(slices.Clone(headers), header)
			return o
		}
	}
	return append(o, format.Member{Key: f.headers, Value: format.Object{header}})
}

// flags returns the flags of junction stdio.
func (f folderForm) flags() []string {
	if f.argument == "" {
		return nil
	}
	return []string{"--folder", f.argument}
}
