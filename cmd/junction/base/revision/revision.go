// Package revision changes a file that a person may change, too: all of it or nothing, only if it is
// still as it was read, and with a backup.
package revision

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"junction/upstream/files"
)

// MaxSize bounds the files that are read, in bytes.
const MaxSize = 10 << 20

// Read returns the content of a regular file of at most 10 MiB. The error does not name
// the file.
func Read(file string) ([]byte, error) {
	text, err := files.Read(file, MaxSize)
	if _, large := errors.AsType[*files.TooLargeError](err); large {
		return nil, fmt.Errorf("is larger than %d MiB", MaxSize>>20)
	} else if errors.Is(err, files.ErrIrregular) {
		return nil, errors.New("is not a regular file")
	}
	return text, err
}

// ErrChanged means that another program has changed a file after it was read.
var ErrChanged = errors.New("has changed in the meantime; try again")

// insistFor is how long Insist tries.
const insistFor = 10 * time.Second

// Insist calls change, which reads a file and replaces it, again as long as another program changes the file in
// between. Replace takes turns, so that one of several programs always gets on.
func Insist(change func() error) error {
	for until := time.Now().Add(insistFor); ; {
		if err := change(); !errors.Is(err, ErrChanged) || time.Now().After(until) {
			return err
		}
	}
}

// Replace writes the new content of a file whose content is old, or creates the file if old is nil.
// A symbolic link stays one. The file keeps its mode and owner. The old content goes to a backup
// beside the file, which only its owner can read, and whose path is returned; with keep false there is
// none. Of two processes that replace the same content at once, one gets an error.
func Replace(file string, old, content []byte, keep bool) (backup string, err error) {
	if old == nil {
		defer files.Lock(filepath.Dir(file))() // else another process adds to a part of the content
		if err := Create(file, content); !errors.Is(err, fs.ErrExist) {
			return "", err
		}
		return "", ErrChanged
	}
	if file, err = filepath.EvalSymlinks(file); err != nil {
		return "", files.Reason(err)
	}
	info, err := os.Stat(file)
	if err != nil {
		return "", files.Reason(err)
	}
	if info.Mode().Perm()&0o200 == 0 {
		return "", errors.New("is read-only; make it writable first")
	}
	defer files.Lock(filepath.Dir(file))()
	unchanged := func() error { return still(file, old) }
	if err := unchanged(); err != nil {
		return "", err
	}
	if keep {
		if backup, err = backUp(file, old, info); err != nil {
			return "", fmt.Errorf("cannot make a backup beside it: %w", files.Reason(err))
		}
	}
	if err = files.ReplaceIf(file, content, unchanged); err != nil {
		if backup != "" {
			os.Remove(backup) // the file is as it was, or newer
		}
		return "", files.Reason(err)
	}
	return backup, nil
}

// still returns an error unless the content of a file is old.
func still(file string, old []byte) error {
	if now, err := Read(file); err != nil || !bytes.Equal(now, old) {
		return errors.Join(err, ErrChanged)
	}
	return nil
}

// Delete deletes a file whose content is old. The content goes to a backup beside the file, whose path is
// returned. Of a symbolic link, only the link is deleted.
func Delete(file string, old []byte) (backup string, err error) {
	info, err := os.Stat(file)
	if err != nil {
		return "", files.Reason(err)
	}
	defer files.Lock(filepath.Dir(file))()
	if err := still(file, old); err != nil {
		return "", err
	}
	if backup, err = backUp(file, old, info); err != nil {
		return "", fmt.Errorf("cannot make a backup beside it: %w", files.Reason(err))
	}
	if err = os.Remove(file); err != nil {
		os.Remove(backup)
		return "", files.Reason(err)
	}
	return backup, nil
}

const (
	mostBackups = 5         // of a configuration file that stay
	oneSitting  = time.Hour // within which the first backup stays, too
)

// Revise is Replace for Junction's own configuration file. It keeps a backup, and removes those before the last
// five. The first backup of the last hour stays, too: several commands in a row do not remove what a person had
// before them.
func Revise(file string, old, content []byte) (backup string, err error) {
	if backup, err = Replace(file, old, content, true); backup != "" {
		prune(backup)
	}
	return backup, err
}

// Urge is Revise for a change that does not wait for space, such as a revocation. On a full disk it makes no backup,
// and if that is not enough, it removes the older backups of the file, and leaves the newest.
func Urge(file string, old, content []byte) (backup string, err error) {
	if backup, err = Revise(file, old, content); !full(err) {
		return backup, err
	}
	if _, err = Replace(file, old, content, false); !full(err) {
		return "", err
	}
	for backups := Backups(file); full(err) && len(backups) > 1; backups = backups[:len(backups)-1] {
		if os.Remove(backups[len(backups)-1]) == nil {
			_, err = Replace(file, old, content, false)
		}
	}
	return "", err
}

// full reports whether an error says that there is no space.
func full(err error) bool { return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) }

// backupName is the end of the name of a backup.
var backupName = regexp.MustCompile(`\.[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{6}(-[0-9]+)?\.bak$`)

// prune removes the oldest backups of the file whose newest backup is given. Errors are ignored: a
// backup that stays does no harm.
func prune(newest string) {
	backups := Backups(newest[:len(newest)-len(backupName.FindString(newest))])
	first := -1 // of the last hour
	for i, name := range backups {
		if info, err := os.Stat(name); err == nil && time.Since(info.ModTime()) < oneSitting {
			first = i
		}
	}
	for i := mostBackups; i < len(backups); i++ {
		if i != first {
			os.Remove(backups[i])
		}
	}
}

// Newest returns the newest backup of a file, or "".
func Newest(file string) string {
	if backups := Backups(file); len(backups) > 0 {
		return backups[0]
	}
	return ""
}

// Lost is the end of a sentence about a file that does not exist: how a person gets it back; "" if that is not known.
// kept is the path of the content that was in force last, if Junction has kept it. A backup has the content before a
// change of a command, so that later changes are not in it. short returns a path for display.
func Lost(file, kept string, short func(string) string) string {
	backup := Newest(file)
	old, _ := os.Stat(backup)
	switch good, err := os.Stat(kept); {
	case err == nil && (old == nil || !good.ModTime().Before(old.ModTime())):
		return "; the content that was in force last is in " + short(kept) + ": copy that to " + short(file)
	case old != nil:
		return "; its newest backup, of " + old.ModTime().Format("2006-01-02 15:04") + ", is " + short(backup) +
			": copy that to " + short(file) + " (it lacks later changes)"
	}
	return ""
}

// Backups returns the backups of a file, the newest first. Those of a symbolic link are beside the file that it
// names. Those that cannot be seen are left out.
func Backups(file string) (names []string) {
	if real, err := filepath.EvalSymlinks(file); err == nil {
		file = real
	}
	dir, name := filepath.Split(file)
	entries, _ := os.ReadDir(filepath.Clean(dir))
	var backups []fs.FileInfo
	for _, e := range entries {
		end := backupName.FindString(e.Name())
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() && end != "" && name+end == e.Name() {
			backups = append(backups, info)
		}
	}
	slices.SortFunc(backups, func(a, b fs.FileInfo) int { return b.ModTime().Compare(a.ModTime()) })
	for _, b := range backups {
		names = append(names, filepath.Join(dir, b.Name()))
	}
	return names
}

// Create writes a file that must not exist, readable by its owner only.
func Create(file string, content []byte) error {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return files.Reason(err)
	}
	_, err = f.Write(content)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		os.Remove(file)
	}
	return files.Reason(err)
}

// backUp writes a copy of a file beside it, which only its owner can read. Its name has the time.
func backUp(file string, content []byte, info fs.FileInfo) (string, error) {
	temp, err := files.Sibling(file, content, info)
	if err != nil {
		return "", err
	}
	defer os.Remove(temp)
	if err := os.Chmod(temp, info.Mode().Perm()&0o700); err != nil {
		return "", err
	}
	stamp := file + "." + time.Now().Format("2006-01-02T150405")
	for i := 0; ; i++ {
		backup := stamp + ".bak"
		if i > 0 {
			backup = fmt.Sprintf("%s-%d.bak", stamp, i)
		}
		if err := os.Link(temp, backup); !errors.Is(err, fs.ErrExist) || i > 1000 {
			return backup, err
		}
	}
}

// An Error is a file that could not be read, or not be edited. Nothing was written to
// it. Err may have the method AtLine() int.
type Error struct {
	File string // as people know it
	Err  error
}

func (e *Error) Error() string {
	type atLine interface {
		error
		AtLine() int
	}
	if s, ok := errors.AsType[atLine](e.Err); ok && s.AtLine() > 0 {
		return fmt.Sprintf("%s line %d: %v", e.File, s.AtLine(), e.Err)
	}
	return fmt.Sprintf("%s: %v", e.File, e.Err)
}

func (e *Error) Unwrap() error { return e.Err }

// SamePath reports whether two paths are of one file.
func SamePath(a, b string) bool {
	if x, err := filepath.Abs(a); err == nil {
		a = x
	}
	if x, err := filepath.Abs(b); err == nil {
		b = x
	}
	if a == b {
		return true
	}
	x, err := os.Stat(a)
	if err != nil {
		return false
	}
	y, err := os.Stat(b)
	return err == nil && os.SameFile(x, y)
}

// Short returns a path with ~ for the home folder, for people. A home of "" shortens nothing.
func Short(file, home string) string {
	if rest, ok := strings.CutPrefix(file, home+string(filepath.Separator)); ok && home != "" {
		return "~" + string(filepath.Separator) + rest
	}
	return file
}
