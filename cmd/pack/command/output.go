package command

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"junction/cmd/pack/manifest"
)

// output is the folder of the file {{output}} of one call. Processes that the command has left may
// change the folder while it is read. The methods accept nil, which means that there is no such file.
type output struct {
	dir  string
	root *os.Root // the folder as it was before the command ran: another one in its place is not read
}

// outputName is the name of the file in its folder.
const outputName = "output"

// newOutput makes the folder, and sets the placeholder {{output}} to the path of the file. It returns
// nil if the tool does not use the placeholder.
func newOutput(t *manifest.Tool, given map[string]any) (*output, error) {
	if !t.WritesFile() {
		return nil, nil
	}
	dir, err := os.MkdirTemp("", "junction-pack-")
	if err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		os.RemoveAll(dir)
		return nil, err
	}
	given[manifest.OutputFile] = filepath.Join(dir, outputName)
	return &output{dir, root}, nil
}

// remove removes the folder.
func (o *output) remove() {
	if o != nil {
		o.root.Close()
		os.RemoveAll(o.dir)
	}
}

// read returns what the command has written. All questions are about the open file, because its name
// may belong to another one at any time. The root follows no link out of the folder, and O_NONBLOCK
// keeps a pipe from blocking.
func (o *output) read(t *manifest.Tool) (data []byte, cut bool, err error) {
	f, err := o.root.OpenFile(outputName, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, fmt.Errorf("%s ended without writing its output file", t.Name)
	}
	if err != nil {
		return nil, false, o.unreadable(t)
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, false, o.unreadable(t)
	case !info.Mode().IsRegular():
		return nil, false, irregular(t)
	case info.Size() > int64(t.MaxOutput) && !t.CutsOutput():
		return nil, false, fmt.Errorf("%s wrote a file of %d bytes, more than its limit of %d (max_output)",
			t.Name, info.Size(), t.MaxOutput)
	}
	data, err = io.ReadAll(io.LimitReader(f, int64(t.MaxOutput)))
	if err != nil {
		return nil, false, o.unreadable(t)
	}
	return data, info.Size() > int64(t.MaxOutput), nil
}

// unreadable returns the error for a file that cannot be opened or read.
func (o *output) unreadable(t *manifest.Tool) error {
	if info, err := o.root.Lstat(outputName); err == nil && !info.Mode().IsRegular() {
		return irregular(t)
	}
	return fmt.Errorf("cannot read the output file of %s", t.Name)
}

func irregular(t *manifest.Tool) error {
	return fmt.Errorf("%s wrote something that is no regular file", t.Name)
}
