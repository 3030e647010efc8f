// Package skill reads the folder skills of a pack. Each folder with a SKILL.md in it is a skill of the
// extension io.modelcontextprotocol/skills (SEP-2640).
//
// skill.go has the folder with its skills, walk.go finds the files, and entry.go makes the entry of a
// skill, with the frontmatter as the file has it.
package skill

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"junction/cmd/pack/manifest"
	"junction/upstream/definition"
	"junction/upstream/files"
)

const (
	folderName = manifest.SkillsFolder
	scheme     = "skill://"
	fileName   = "SKILL.md"
)

// A Skill is one folder with a SKILL.md.
type Skill struct {
	URI, Name, Description string

	Entry []byte // as skills/list and skills/get return it
	Files []*File
}

// A File is one file of a skill. It does not change.
type File struct {
	URI    string
	Digest string // sha256: and 64 hexadecimal digits
	Size   int64

	path string // in the folder of the pack
}

// List is what a Folder had at one time.
type List struct {
	Skills   []*Skill          // by URI
	Problems manifest.Problems // why folders with a SKILL.md are left out

	files map[string]*File
}

// Folder is the folder skills of a pack. Nothing outside of the folder of the pack is read, also not
// through links.
type Folder struct {
	dir    string // of the pack
	frozen *List  // nil if changes of the files count

	mu   sync.Mutex
	sums map[string]sum // by path; guarded by mu
	last *List          // guarded by mu

	folders []string // that were seen; guarded by mu
}

// sum is the digest of a file that was read when it had this size and time.
type sum struct {
	size   int64
	time   time.Time
	digest string
}

// Open returns the folder skills of the pack in a folder; nil if there is none.
func Open(dir string) *Folder {
	if dir == "" {
		return nil
	}
	if info, err := os.Stat(filepath.Join(dir, folderName)); err != nil || !info.IsDir() {
		return nil
	}
	return &Folder{dir: dir, sums: map[string]sum{}, last: &List{}}
}

// Freeze keeps the skills as they are now: List returns them, and Read refuses changed files. It is for
// a pack whose checksum was compared. It must be called before the Folder is used concurrently.
func (f *Folder) Freeze() {
	if f != nil {
		f.frozen = f.read()
	}
}

// List returns the skills of the folder. A file is read again if its size or time has changed. A nil
// Folder has no skills.
func (f *Folder) List() *List {
	switch {
	case f == nil:
		return &List{}
	case f.frozen != nil:
		return f.frozen
	}
	return f.read()
}

// Watched returns a path in each folder whose changes may change the skills. They are no real files.
func (f *Folder) Watched() []string {
	if f == nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	watched := make([]string, len(f.folders))
	for i, at := range f.folders {
		watched[i] = filepath.Join(f.dir, filepath.FromSlash(at), fileName)
	}
	return watched
}

// Get returns the skill with the URI, or nil.
func (l *List) Get(uri string) *Skill {
	i, ok := slices.BinarySearchFunc(l.Skills, uri, func(s *Skill, uri string) int { return cmp.Compare(s.URI, uri) })
	if !ok {
		return nil
	}
	return l.Skills[i]
}

// ErrUnknown means that no skill has a file with the URI.
var ErrUnknown = errors.New("no skill has this file")

// Read returns the bytes of a file of a skill. Their digest is compared with the one that List has
// returned. After a change that kept size and time, List returns the new one.
func (f *Folder) Read(uri string) ([]byte, error) {
	if f == nil {
		return nil, ErrUnknown
	}
	f.mu.Lock()
	file := f.last.files[uri]
	f.mu.Unlock()
	if file == nil {
		if file = f.List().files[uri]; file == nil {
			return nil, ErrUnknown
		}
	}
	root, err := os.OpenRoot(f.dir)
	if err != nil {
		return nil, fmt.Errorf("cannot read the folder of the pack: %w", files.Reason(err))
	}
	defer root.Close()
	text, err := contentOf(root, file.path)
	if err == nil && digestOf(text) == file.Digest {
		return text, nil
	}
	if f.frozen != nil {
		return nil, fmt.Errorf("the file %s has changed since the checksum of the pack was compared; restore it with: "+
			"junction packs install", file.path)
	}
	f.mu.Lock()
	delete(f.sums, file.path)
	f.mu.Unlock()
	if f.List().files[uri] == nil { // it is in no skill any more
		return nil, ErrUnknown
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", file.path, files.Reason(err))
	}
	return text, nil
}

// Children returns the files and folders of a folder of a skill, by their URIs; folders end in a
// slash. ok is false if no skill has the folder.
func (l *List) Children(uri string) (children []string, ok bool) {
	prefix := strings.TrimSuffix(uri, "/") + "/"
	inside := slices.ContainsFunc(l.Skills, func(s *Skill) bool {
		return strings.HasPrefix(prefix, strings.TrimSuffix(s.URI, fileName))
	})
	if !inside {
		return nil, false
	}
	for file := range l.files {
		rest, below := strings.CutPrefix(file, prefix)
		if name, _, isFolder := strings.Cut(rest, "/"); isFolder {
			rest = name + "/"
		}
		if below {
			children = append(children, prefix+rest)
		}
	}
	slices.Sort(children)
	return slices.Compact(children), len(children) > 0
}

// Equal reports whether two lists have the same skills.
func (l *List) Equal(other *List) bool {
	return slices.EqualFunc(l.Skills, other.Skills, func(a, b *Skill) bool { return bytes.Equal(a.Entry, b.Entry) }) &&
		slices.EqualFunc(l.Problems, other.Problems, func(a, b manifest.Problem) bool { return a == b })
}

// contentOf reads a regular file of at most the size of a skill.
func contentOf(root *os.Root, path string) ([]byte, error) {
	info, err := root.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, files.ErrIrregular
	}
	file, err := root.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, definition.MaxSkillSize+1))
	if err == nil && len(text) > definition.MaxSkillSize {
		return nil, &files.TooLargeError{Size: int64(len(text)), Limit: definition.MaxSkillSize}
	}
	return text, err
}

func digestOf(text []byte) string {
	digest := sha256.Sum256(text)
	return "sha256:" + hex.EncodeToString(digest[:])
}

// fresh is how old the time of a file must be for its digest to be kept: a change soon after may
// have the same time.
const fresh = 2 * time.Second

// digest returns the digest of a file.
func (f *Folder) digest(root *os.Root, path string, info fs.FileInfo) (string, error) {
	if s := f.sums[path]; s.digest != "" && s.size == info.Size() && s.time.Equal(info.ModTime()) {
		return s.digest, nil
	}
	before := time.Now()
	text, err := contentOf(root, path)
	if err != nil {
		return "", err
	}
	if int64(len(text)) != info.Size() {
		return "", errors.New("it changes at the moment")
	}
	digest := digestOf(text)
	if delete(f.sums, path); before.Sub(info.ModTime()) > fresh {
		f.sums[path] = sum{info.Size(), info.ModTime(), digest}
	}
	return digest, nil
}
