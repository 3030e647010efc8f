// Package lock reads and writes the lock file of packs. It has the repository and the commit of
// each installed pack, and the checksum that its folder must have.
//
// The lock file, packs.lock, is in the folder of the configuration file. An installed pack is in
// the folder packs beside it, in a folder with its name and its commit: packs/NAME@COMMIT. The
// configuration names this folder, and with it the commit.
package lock

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"

	"junction/cmd/pack/tree"
	"junction/upstream/files"
	"junction/upstream/shell"
)

// Folder is the name of the folder of installed packs.
const Folder = "packs"

// maxFile limits the size of a lock file.
const maxFile = 1 << 20

// Pack is one installed pack.
type Pack struct {
	Source   string `json:"source"` // the URL of the repository
	Ref      string `json:"ref"`    // the branch, tag or commit that was asked for; "" is the default branch
	Commit   string `json:"commit"`
	Checksum string `json:"checksum"` // of the folder, see package tree
}

// File is the content of a lock file.
type File struct {
	Version int             `json:"version"`
	Packs   map[string]Pack `json:"packs"` // by name
}

// Path returns the path of the lock file for a configuration file.
func Path(config string) string { return filepath.Join(filepath.Dir(config), "packs.lock") }

// Read reads a lock file. If there is none, it is empty.
func Read(file string) (*File, error) {
	l := &File{Version: 1, Packs: map[string]Pack{}}
	text, err := files.Read(file, maxFile)
	if errors.Is(err, fs.ErrNotExist) {
		return l, nil
	}
	if err == nil {
		d := json.NewDecoder(bytes.NewReader(text))
		d.DisallowUnknownFields()
		err = d.Decode(l)
	}
	if err == nil && l.Version != 1 {
		err = fmt.Errorf("it has version %d, and this junction knows version 1; use a newer junction", l.Version)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read the lock file %s: %w", file, err)
	}
	return l, nil
}

// Write replaces a lock file.
func (l *File) Write(file string) error {
	text, err := json.MarshalIndent(l, "", "  ")
	if err == nil {
		err = files.WriteSync(file, append(text, '\n'))
	}
	if err != nil {
		return fmt.Errorf("cannot write the lock file %s: %w", file, err)
	}
	return nil
}

// installed is the form of the folders of installed packs.
var installed = regexp.MustCompile(`^([A-Za-z0-9_][A-Za-z0-9_-]{0,31})@([0-9a-fA-F]{40}|[0-9a-fA-F]{64})$`)

// Split returns the name and the commit of an installed pack from the path of its folder. ok is
// false for other packs.
func Split(path string) (name, commit string, ok bool) {
	m := installed.FindStringSubmatch(filepath.Base(path))
	if m == nil {
		return "", "", false
	}
	return m[1], m[2], true
}

// Dir returns the path of the folder of a pack, relative to the configuration file.
func Dir(name, commit string) string { return Folder + "/" + name + "@" + commit }

// Check compares the folder of an installed pack with the lock file, and returns its checksum. For
// packs that were not installed, it checks nothing and returns "". It returns an error for a folder
// inside of an installed pack, because only the whole folder has a checksum.
//
// named is the value of --config in suggested commands; "" leaves it out.
func Check(config, named, path string) (checksum string, err error) {
	name, commit, ok := Split(path)
	if !ok {
		for above := filepath.Dir(path); above != filepath.Dir(above); above = filepath.Dir(above) {
			if _, _, inside := Split(above); inside {
				return "", fmt.Errorf("is a part of the installed pack %s; name the folder of the whole pack",
					filepath.Base(above))
			}
		}
		return "", nil
	}
	l, err := Read(Path(config))
	if err != nil {
		return "", err
	}
	p, ok := l.Packs[name]
	switch {
	case !ok:
		return "", fmt.Errorf("is an installed pack that %s does not have; install it again with: %s",
			filepath.Base(Path(config)), shell.Junction(named, "packs", "install", "OWNER/REPO@"+commit))
	case p.Commit != commit:
		return "", fmt.Errorf("has the commit %s, and %s has %s; correct the file that is wrong",
			commit, filepath.Base(Path(config)), p.Commit)
	case !strings.HasPrefix(p.Checksum, "sha256:"):
		return "", fmt.Errorf("has no checksum in %s; run: %s, and install it again",
			filepath.Base(Path(config)), shell.Junction(named, "packs", "remove", name))
	}
	sum, err := tree.Sum(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", errors.New("is not there; fetch it with: " + shell.Junction(named, "packs", "install"))
	}
	if err != nil {
		return "", err
	}
	return p.Checksum, Mismatch(sum, p.Checksum, named)
}

// Mismatch returns an error if a checksum differs from the lock file. named is as for Check.
func Mismatch(is, want, named string) error {
	if is == want {
		return nil
	}
	return fmt.Errorf("has the checksum %s, and packs.lock has %s: its files were changed; "+
		"restore them with: %s", is, want, shell.Junction(named, "packs", "install"))
}
