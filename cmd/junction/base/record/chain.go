package record

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Every line of the audit has a number and the hash of the line before it, so that verification
// finds changed, added and missing lines. The hash has no key: a user who may write the file can
// compute a new chain from the changed line on, and can cut off the end. A key would not prevent
// that, because the user that may write the file can also read the keys of the program. So the
// program repeats the last hash in its log once an hour. An attacker must also change the log, which
// belongs to another user or another machine.

// Link is the position of a line in the chain. The zero value is the position before the first line.
type Link struct {
	Number uint64 // of the line, from 1
	Hash   string // SHA-256 of the line without its line feed, in hexadecimal; "" before the first line
}

// Next returns the position of the line that follows.
func (l Link) Next(line []byte) Link {
	sum := sha256.Sum256(bytes.TrimSuffix(line, []byte("\n")))
	return Link{l.Number + 1, hex.EncodeToString(sum[:])}
}

// String returns the form that the log and junction audit verify --known use.
func (l Link) String() string { return strconv.FormatUint(l.Number, 10) + ":" + l.Hash }

// Chained is the part of a line that links it to the line before.
type Chained struct {
	Number uint64 `json:"number"` // 0 in lines that the program has not written
	After  string `json:"after"`  // the hash of the line before; "" in the first line
}

// appendLinked appends lines to b, each with its number and the hash of the line before.
func (l *Link) appendLinked(b, lines []byte) []byte {
	for line := range bytes.Lines(lines) {
		start := len(b)
		b = append(b, bytes.TrimSuffix(line, []byte("}\n"))...)
		b = strconv.AppendUint(append(b, `,"number":`...), l.Number+1, 10)
		b = append(append(append(b, `,"after":"`...), l.Hash...), "\"}\n"...)
		*l = l.Next(b[start:])
	}
	return b
}

// Files returns the files of an audit, the oldest first: those that a rotation has renamed to names
// that begin with the name of the file, and the file itself. Without any, the list is empty. A file
// that is also there uncompressed is left out: a rotation compresses it at present, or has failed to.
// A file that cannot be read is in the list.
func Files(file string) ([]string, error) {
	entries, err := os.ReadDir(filepath.Dir(file))
	if err != nil {
		return nil, err
	}
	type part struct {
		name  string
		first uint64
		info  fs.FileInfo
	}
	var parts []part
	base := filepath.Base(file)
	for _, e := range entries {
		rest, ok := strings.CutPrefix(e.Name(), base)
		if !ok || rest != "" && rest[0] != '.' && rest[0] != '-' {
			continue
		}
		name := filepath.Join(filepath.Dir(file), e.Name())
		if plain, compressed := strings.CutSuffix(name, ".gz"); compressed && isFile(plain) {
			continue
		}
		info, err := os.Stat(name)
		if err != nil || !info.Mode().IsRegular() {
			continue
		}
		first, _ := firstNumber(name) // without one, it is among the oldest
		if first == 0 && rest == "" {
			first = 1<<64 - 1 // the file itself is the newest, also before it has a line
		}
		parts = append(parts, part{name, first, info})
	}
	slices.SortFunc(parts, func(a, b part) int {
		return cmp.Or(cmp.Compare(a.first, b.first), a.info.ModTime().Compare(b.info.ModTime()))
	})
	var names []string
	for _, p := range parts {
		names = append(names, p.name)
	}
	return names, nil
}

func isFile(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.Mode().IsRegular()
}

// OpenFile opens a file of an audit for reading. It decompresses files that end in .gz.
func OpenFile(name string) (io.ReadCloser, error) {
	f, err := os.Open(name)
	if err != nil || filepath.Ext(name) != ".gz" {
		return f, err
	}
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return struct {
		io.Reader
		io.Closer
	}{z, f}, nil
}

// firstNumber returns the number of the first line of a file that has one; 0 if none has.
func firstNumber(name string) (number uint64, err error) {
	err = eachLine(name, func(line []byte) bool {
		c, ok := ParseLink(line)
		number = c.Number
		return !ok || number == 0
	})
	return number, err
}

// ParseLink reads the link of a line. It returns false if the line is no JSON object.
func ParseLink(line []byte) (Chained, bool) {
	var c Chained
	err := json.Unmarshal(line, &c)
	return c, err == nil
}

// eachLine calls f with the whole lines of a file until f returns false. f must not keep a line.
func eachLine(name string, f func(line []byte) bool) error {
	file, err := OpenFile(name)
	if err != nil {
		return err
	}
	defer file.Close()
	lines := NewLines(file)
	for {
		line, err := lines.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil || !f(line) {
			return err
		}
	}
}

// tail limits how many bytes at the end of a file are searched for the last line with a number.
const tail = maxLine

// lastLink returns the position of the last whole line of a file that has a number, and whether the
// file ends in the middle of a line.
func lastLink(name string) (last Link, torn bool, err error) {
	if filepath.Ext(name) == ".gz" {
		err = eachLine(name, func(line []byte) bool {
			if c, ok := ParseLink(line); ok && c.Number > 0 {
				last = Link{Number: c.Number - 1}.Next(line)
			}
			return true
		})
		return last, false, err
	}
	f, err := os.Open(name)
	if err != nil {
		return Link{}, false, err
	}
	defer f.Close()
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return Link{}, false, err
	}
	for n := int64(64 << 10); ; n *= 4 {
		n = min(n, size, tail)
		text := make([]byte, n)
		if _, err := f.ReadAt(text, size-n); err != nil && err != io.EOF {
			return Link{}, false, err
		}
		torn = n > 0 && text[n-1] != '\n'
		if last, ok := lastOf(text, n == size); ok || n == size || n == tail {
			return last, torn, nil
		}
	}
}

// lastOf returns the position of the last whole line of a text with a number. whole is false if the
// text may begin in the middle of a line.
func lastOf(text []byte, whole bool) (Link, bool) {
	text = text[:bytes.LastIndexByte(text, '\n')+1]
	for len(text) > 0 {
		start := bytes.LastIndexByte(text[:len(text)-1], '\n') + 1
		if start == 0 && !whole {
			break
		}
		if c, ok := ParseLink(text[start:]); ok && c.Number > 0 {
			return Link{Number: c.Number - 1}.Next(text[start:]), true
		}
		text = text[:start]
	}
	return Link{}, false
}

// resume returns the position after which the lines of a file continue: the position of its last line,
// or, if the file is empty, of the last line before a rotation. With an error, it is the position of the
// last line that could be read.
func resume(file string) (last Link, torn bool, err error) {
	last, torn, err = lastLink(file)
	if err != nil || last.Number > 0 {
		return last, torn, err
	}
	names, err := Files(file)
	if err != nil {
		return last, torn, err
	}
	var unread error // of the newest file that cannot be read to its end
	for _, name := range slices.Backward(names) {
		before, _, err := lastLink(name)
		if err != nil && unread == nil {
			unread = fmt.Errorf("%s: %w", name, err)
		}
		if before.Number > 0 {
			return before, torn, unread
		}
	}
	return last, torn, unread
}
