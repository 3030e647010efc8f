// Package pages has the HTML pages for people: how to connect a client (connect.go), and the pages of a running proxy.
// site.go lists those, overview.go, servers.go, server.go and recent.go fill them, live.go has what changes while a
// page is open, calls.go the last calls, figures.go their figures, history.go the last states, and signin.go the
// operator's sign-ins. Package frame has what all pages share.
package pages

import (
	"embed"
	"io/fs"

	"junction/cmd/junction/ops/pages/frame"
)

//go:embed files
var files embed.FS

// newPage reads the files of a page. sources are further directives of its policy, and more are further files.
func newPage(name, sources string, more ...string) (*frame.Page, error) {
	below, err := fs.Sub(files, "files")
	if err != nil {
		return nil, err
	}
	return frame.New(below, name, sources, more...)
}
