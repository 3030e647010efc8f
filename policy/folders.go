package policy

import (
	"path/filepath"
	"slices"

	"junction/upstream/folder"
)

// This file narrows the folders that a subject may name.

// PermitsFolder reports whether the policies of the subject permit a folder: an absolute, clean path. Rights
// without any policy permit none.
func (r *Rights) PermitsFolder(path string) bool {
	matched := false
	for e := range r.all {
		inside := func(folders string) bool { return folder.Contains(folders, path) }
		if matched = true; e.folders != nil && !slices.ContainsFunc(e.folders, inside) {
			return false
		}
	}
	return matched
}

// folders returns clean paths; nil for nil.
func folders(paths []string) (list []string) {
	if paths == nil {
		return nil
	}
	list = []string{}
	for _, path := range paths {
		list = append(list, filepath.Clean(path))
	}
	return list
}
