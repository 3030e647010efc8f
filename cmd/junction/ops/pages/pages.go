// Package pages has the HTML pages for people: how to connect a client (connect.go), and the status
// of a running proxy (site.go) with its first page (overview.go), servers and calls (servers.go), what changes
// while a page is open (live.go), the last calls (calls.go), their figures (figures.go) and the operator's sign-ins
// (signin.go). Package frame has what they share.
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
