package call

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"junction/cmd/junction/desk/clients"
)

// headerWorking is the header with the folder in which junction stdio or call was started. It counts less
// than clients.FolderHeader and the client's roots: some clients start commands in a folder of their own.
const headerWorking = "Junction-Working-Directory"

// A where is the folder in which this process runs, and the home folder of its user. "" means that the folder is
// not known.
type where struct{ working, home string }

// FolderHeader returns the header that names the folder of the caller to an endpoint, or nil. named is the folder that
// the person or the client's file names; without it, the working directory counts, but only for an endpoint on this
// machine. The error says why a named folder is none.
func FolderHeader(named, address string) (map[string]string, error) {
	return here().header(named, OnThisMachine(address))
}

// here returns the where of this process.
func here() (w where) {
	w.working, _ = os.Getwd()
	w.home, _ = os.UserHomeDir()
	return w
}

// header returns the header with the folder of the client, or nil. named is the folder that the client's file
// names; without it, the working directory counts, but only for an endpoint on this machine: another machine does
// not have the folder, and need not learn its name. The root and the home folder never count, because a
// desktop client starts commands there. With an invalid named folder, the error says why.
func (w where) header(named string, local bool) (map[string]string, error) {
	name, folder := clients.FolderHeader, named
	switch {
	case strings.Contains(named, "${"): // the client has not replaced it
		return nil, nil
	case named == "" && !local:
		return nil, nil
	case named == "":
		name, folder = headerWorking, w.working
	case !filepath.IsAbs(named):
		folder = filepath.Join(w.working, named)
	}
	if info, err := os.Stat(folder); named != "" && err != nil {
		return nil, fmt.Errorf("--folder: %w", err)
	} else if named != "" && !info.IsDir() {
		return nil, fmt.Errorf("--folder: %s is no folder", folder)
	}
	if folder == "" || !filepath.IsAbs(folder) || w.common(folder) {
		return nil, nil
	}
	return map[string]string{name: fileURL(folder)}, nil
}

// common reports whether a folder is the root or the home folder.
func (w where) common(folder string) bool {
	folder = filepath.Clean(folder)
	if folder == filepath.Dir(folder) || folder == filepath.Clean(w.home) {
		return true
	}
	home, err := os.Stat(w.home)
	if err != nil {
		return false
	}
	info, err := os.Stat(folder)
	return err == nil && os.SameFile(info, home)
}

// fileURL returns a path as a URL, which has only characters that each HTTP library sends.
func fileURL(path string) string {
	path = filepath.ToSlash(path)
	if !strings.HasPrefix(path, "/") { // C:/
		path = "/" + path
	}
	return (&url.URL{Scheme: "file", Path: path}).String()
}
