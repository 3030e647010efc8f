package record

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
)

// maxLine limits a line of an audit, in bytes. The longest lines are those with the arguments of a
// call (audit.arguments), which are far shorter. A compressed file of few bytes can have a longer one.
const maxLine = 64 << 20

// ErrLongLine means that a file is no audit.
var ErrLongLine = fmt.Errorf("a line has more than %d MiB, so that the file is no audit", maxLine>>20)

// Lines reads the lines of a file of an audit, which may grow.
type Lines struct {
	in   *bufio.Reader
	most int    // limit of line
	line []byte // the last line, or the beginning of the next one
	done bool   // line is a whole one
}

// NewLines returns the lines of r.
func NewLines(r io.Reader) *Lines { return &Lines{in: bufio.NewReaderSize(r, 64<<10), most: maxLine} }

// Next returns the next whole line without its line feed. The line is valid until the next call. The
// error is io.EOF if there is no further line yet.
func (l *Lines) Next() ([]byte, error) {
	if l.done {
		l.line, l.done = l.line[:0], false
	}
	for {
		part, err := l.in.ReadSlice('\n')
		if len(l.line)+len(part) > l.most {
			return nil, ErrLongLine
		}
		l.line = append(l.line, part...)
		if err == nil {
			l.done = true
			return bytes.TrimSuffix(l.line, []byte("\n")), nil
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return nil, err
		}
	}
}

// Torn returns the number of bytes after the last whole line.
func (l *Lines) Torn() int {
	if l.done {
		return 0
	}
	return len(l.line)
}
