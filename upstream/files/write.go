package files

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Temporary is the prefix of the names of files that are renamed when they are complete. A process
// that is killed may leave such a file behind.
const Temporary = ".new-"

// Write replaces the content of a file in one step: every reader finds the whole old content or the
// whole new content. Only the owner can read the file. After a loss of power, the content may be
// lost.
func Write(file string, content []byte) error { return write(file, content, false) }

// WriteSync is Write for content that must survive a loss of power.
func WriteSync(file string, content []byte) error { return write(file, content, true) }

func write(file string, content []byte, sync bool) error {
	temp, err := os.CreateTemp(filepath.Dir(file), Temporary+"*") // readable by its owner only
	if err != nil {
		return err
	}
	_, err = temp.Write(content)
	if sync {
		err = errors.Join(err, temp.Sync())
	}
	return rename(temp.Name(), file, errors.Join(err, temp.Close()))
}

// Replace is WriteSync for an existing file. The file keeps its mode and its owner. If file is a
// symbolic link, the file that it leads to is replaced.
func Replace(file string, content []byte) error {
	return ReplaceIf(file, content, func() error { return nil })
}

// ReplaceIf is Replace unless check fails. It calls check when the new content is on the disk, so that
// nearly no time passes between check and the replacement.
func ReplaceIf(file string, content []byte, check func() error) error {
	file, err := filepath.EvalSymlinks(file)
	if err != nil {
		return err
	}
	info, err := os.Stat(file)
	if err != nil {
		return err
	}
	temp, err := Sibling(file, content, info)
	if err == nil {
		err = check()
	}
	if err := rename(temp, file, err); err != nil {
		return err
	}
	return syncDir(filepath.Dir(file))
}

// Sibling writes content to a temporary file beside file, with the mode and the owner of info. It
// returns the name of the temporary file, which the caller must rename or remove; after an error
// there is none.
func Sibling(file string, content []byte, info fs.FileInfo) (temp string, err error) {
	f, err := os.CreateTemp(filepath.Dir(file), Temporary+"*")
	if err != nil {
		return "", err
	}
	_, err = f.Write(content)
	err = errors.Join(err, own(f, info), f.Chmod(info.Mode().Perm()), f.Sync(), f.Close())
	if err != nil {
		_ = os.Remove(f.Name())
		return "", err
	}
	return f.Name(), nil
}

// rename gives temp the name of file, unless writing temp failed. After an error temp is gone.
func rename(temp, file string, err error) error {
	if err == nil {
		err = os.Rename(temp, file)
	}
	if err != nil && temp != "" {
		_ = os.Remove(temp)
	}
	return err
}
