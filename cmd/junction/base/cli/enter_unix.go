//go:build unix

package cli

import (
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// enterAt reads a typed line of a terminal, if there is one. A terminal has a line only after Enter.
func enterAt(in io.Reader) func() bool {
	file, ok := in.(*os.File)
	if !ok || file.Fd() >= unix.FD_SETSIZE {
		return nil
	}
	fd := int(file.Fd())
	return func() bool {
		var set unix.FdSet
		set.Set(fd)
		if n, err := unix.Select(fd+1, &set, nil, nil, &unix.Timeval{}); n <= 0 || err != nil {
			return false
		}
		_, err := file.Read(make([]byte, maxLine)) // no more than one line
		return err == nil
	}
}
