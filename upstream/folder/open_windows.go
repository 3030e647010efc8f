package folder

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/windows"
)

// openFolder opens a folder, one part of its absolute path after another, and follows no link: a part that
// is a link or a junction is refused, and one that was put in the place of a part after the look at it is
// another file.
func openFolder(path string) (o opened, err error) {
	at := filepath.VolumeName(path) + `\`
	root, err := os.OpenRoot(at)
	if err != nil {
		return opened{}, reason(at, err)
	}
	defer func() { root.Close() }()
	here, err := root.Open(".")
	if err != nil {
		return opened{}, reason(at, err)
	}
	defer func() {
		if here != nil {
			here.Close()
		}
	}()
	if err := o.pass(here); err != nil {
		return opened{}, reason(at, err)
	}
	for name := range strings.SplitSeq(strings.Trim(path[len(filepath.VolumeName(path)):], `\`), `\`) {
		if name == "" {
			break
		}
		at = filepath.Join(at, name)
		look, err := root.Lstat(name)
		switch {
		case err != nil:
			return opened{}, reason(at, err)
		case look.Mode()&(fs.ModeSymlink|fs.ModeIrregular) != 0:
			return opened{}, fmt.Errorf("%s is a link, which is not followed; name the folder to which it leads",
				plain(at))
		case !look.IsDir():
			return opened{}, fmt.Errorf("%s is a file; name a folder", plain(at))
		}
		next, err := root.OpenRoot(name)
		if err != nil {
			return opened{}, reason(at, err)
		}
		root.Close()
		root = next
		here.Close()
		if here, err = root.Open("."); err != nil {
			return opened{}, reason(at, err)
		}
		if now, err := here.Stat(); err != nil || !os.SameFile(look, now) {
			return opened{}, fmt.Errorf("%s has changed while it was opened; try again", plain(at))
		}
		if err := o.pass(here); err != nil {
			return opened{}, reason(at, err)
		}
	}
	o.dir, here = here, nil
	return o, nil
}

// pass notes an open folder as the last one.
func (o *opened) pass(dir *os.File) error {
	var info windows.ByHandleFileInformation
	if err := windows.GetFileInformationByHandle(windows.Handle(dir.Fd()), &info); err != nil {
		return err
	}
	o.id = identity{device: uint64(info.VolumeSerialNumber),
		file: uint64(info.FileIndexHigh)<<32 | uint64(info.FileIndexLow), born: info.CreationTime.Nanoseconds()}
	o.path = append(o.path, o.id.node())
	return nil
}

func reason(at string, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s does not exist", plain(at))
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("the user of Junction may not open %s", plain(at))
	}
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		err = p.Err
	}
	return fmt.Errorf("%s cannot be opened: %w", plain(at), err)
}

// nodeOfInfo opens the file, because its description has no numbers.
func nodeOfInfo(path string, _ fs.FileInfo) (node, bool) {
	f, err := os.Open(path)
	if err != nil {
		return node{}, false
	}
	defer f.Close()
	var o opened
	if o.pass(f) != nil {
		return node{}, false
	}
	return o.id.node(), true
}

// sameText reports whether two paths of the same length may be equal.
func sameText(a, b string) bool { return strings.EqualFold(a, b) }

func (id identity) node() node { return node{id.device, id.file} }
