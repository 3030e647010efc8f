package clients

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"junction/upstream/files"
)

// maxFile bounds the files that are read.
const maxFile = 10 << 20

// ReadFile returns the content of a regular file of at most 10 MiB. The error does not name
// the file.
func ReadFile(file string) ([]byte, error) {
	text, err := files.Read(file, maxFile)
	if _, large := errors.AsType[*files.TooLargeError](err); large {
		return nil, fmt.Errorf("is larger than %d MiB", maxFile>>20)
	} else if errors.Is(err, files.ErrIrregular) {
		return nil, errors.New("is not a regular file")
	}
	return text, err
}

// ErrChanged means that another program has changed a file after it was read.
var ErrChanged = errors.New("has changed in the meantime; try again")

// Replace writes the new content of a file whose content is old, or creates the file if old is nil.
// A symbolic link stays one. Mode and owner stay those of the file. The old content goes to a backup
// beside the file, which only its owner can read, and whose path is returned; with keep false there is
// none. Of two processes that replace the same content at once, one gets an error.
func Replace(file string, old, content []byte, keep bool) (backup string, err error) {
	if old == nil {
		return "", create(file, content)
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
	if now, err := ReadFile(file); err != nil || !bytes.Equal(now, old) {
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

// mostBackups is the number of backups of a configuration file that stay.
const mostBackups = 5

// Revise is Replace for Junction's own configuration file. It keeps a backup, and removes the
// backups before the last five.
func Revise(file string, old, content []byte) (backup string, err error) {
	if backup, err = Replace(file, old, content, true); backup != "" {
		prune(backup)
	}
	return backup, err
}

// backupName is the end of the name of a backup.
var backupName = regexp.MustCompile(`\.[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{6}(-[0-9]+)?\.bak$`)

// prune removes the oldest backups of the file whose newest backup is given. Errors are ignored: a
// backup that stays does no harm.
func prune(newest string) {
	dir, name := filepath.Split(newest)
	file := name[:len(name)-len(backupName.FindString(name))]
	entries, _ := os.ReadDir(filepath.Clean(dir))
	var backups []fs.FileInfo
	for _, e := range entries {
		end := backupName.FindString(e.Name())
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() && end != "" && file+end == e.Name() {
			backups = append(backups, info)
		}
	}
	slices.SortFunc(backups, func(a, b fs.FileInfo) int { return b.ModTime().Compare(a.ModTime()) })
	for _, old := range backups[min(mostBackups, len(backups)):] {
		os.Remove(filepath.Join(dir, old.Name()))
	}
}

// create writes a file that must not exist, readable by its owner only.
func create(file string, content []byte) error {
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
