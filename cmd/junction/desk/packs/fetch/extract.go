package fetch

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"junction/cmd/pack/tree"
	"junction/upstream/prose"
)

// The modes of files in git.
const (
	plainFile   = "100644"
	programFile = "100755"
	symlink     = "120000"
	submodule   = "160000"
)

// extract writes the files of a commit into dir, which it creates. It writes the content of the
// objects unchanged, and runs nothing of it.
func (g git) extract(ctx context.Context, commit, dir string) (notes []string, err error) {
	list, err := g.list(ctx, commit)
	if err != nil {
		return nil, err
	}
	if err := checkPaths(list); err != nil {
		return nil, err
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	read, done, err := g.objects(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	left := g.files
	var links []entry
	targets := map[string]string{}
	for _, e := range list {
		switch e.mode {
		case submodule:
			notes = append(notes, fmt.Sprintf("The submodule %s was not fetched.", prose.Quote(e.path)))
			continue
		case symlink, plainFile, programFile:
		default:
			return nil, fmt.Errorf("the file %s has the mode %s, which packs do not have", prose.Quote(e.path), e.mode)
		}
		if parent := path.Dir(e.path); parent != "." {
			if err := root.MkdirAll(filepath.FromSlash(parent), 0o755); err != nil {
				return nil, err
			}
		}
		text, err := read(e.object, left)
		if err != nil {
			return nil, fmt.Errorf("cannot read the file %s: %w", prose.Quote(e.path), err)
		}
		if left -= int64(len(text)); e.mode == symlink {
			links, targets[e.path] = append(links, e), string(text)
			continue
		}
		if err := write(root, e, text); err != nil {
			return nil, err
		}
	}
	return notes, link(root, dir, links, targets)
}

// checkPaths refuses paths that leave the folder, paths with a name that git uses, and two paths
// that are the same on systems that ignore case.
func checkPaths(list []entry) error {
	if len(list) > tree.MaxFiles {
		return fmt.Errorf("the repository cannot be a pack: %w", tree.ErrTooLarge)
	}
	seen := map[string]string{}
	for _, e := range list {
		strange := !filepath.IsLocal(filepath.FromSlash(e.path)) || strings.ContainsFunc(e.path, odd)
		for part := range strings.SplitSeq(strings.ToLower(e.path), "/") {
			part = strings.TrimRight(part, ". ")
			strange = strange || part == "" || part == ".git" || strings.HasPrefix(part, "git~")
		}
		if strange {
			return fmt.Errorf("the file %s has a name that packs do not have", prose.Quote(e.path))
		}
		if other, twice := seen[strings.ToLower(e.path)]; twice {
			return fmt.Errorf("the files %s and %s have the same name on some systems",
				prose.Quote(other), prose.Quote(e.path))
		}
		seen[strings.ToLower(e.path)] = e.path
	}
	return nil
}

// odd reports whether a character has a special meaning in names of some system, or for a terminal.
func odd(r rune) bool {
	return r < ' ' || r == 0x7f || r == '\\' || r == ':' || r == '\uFFFD' ||
		r >= '\u200b' && r <= '\u200f' || r >= '\u202a' && r <= '\u202e' || r >= '\u2066' && r <= '\u2069'
}

func write(root *os.Root, e entry, text []byte) error {
	mode := os.FileMode(0o644)
	if e.mode == programFile {
		mode = 0o755
	}
	f, err := root.OpenFile(filepath.FromSlash(e.path), os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Close())
}

// link creates the symbolic links, after all files. Each must lead to a file or folder of the pack.
func link(root *os.Root, dir string, links []entry, targets map[string]string) error {
	for _, e := range links {
		target := targets[e.path]
		if path.IsAbs(target) || filepath.IsAbs(target) || strings.ContainsFunc(target, odd) ||
			!filepath.IsLocal(filepath.FromSlash(path.Join(path.Dir(e.path), target))) {
			return outside(e.path, target)
		}
		if err := root.Symlink(filepath.FromSlash(target), filepath.FromSlash(e.path)); err != nil {
			return err
		}
	}
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return err
	}
	for _, e := range links { // a link may lead through others
		to, err := filepath.EvalSymlinks(filepath.Join(dir, filepath.FromSlash(e.path)))
		if err != nil || to != real && !strings.HasPrefix(to, real+string(filepath.Separator)) {
			return outside(e.path, targets[e.path])
		}
	}
	return nil
}

func outside(file, target string) error {
	return fmt.Errorf("the link %s leads to %s, which is no file of the pack", prose.Quote(file), prose.Quote(target))
}

// objects returns a function that reads objects of at most limit bytes, and one that ends the
// program that reads them.
func (g git) objects(ctx context.Context) (read func(object string, limit int64) ([]byte, error), done func(),
	err error) {
	cmd := g.command(ctx, "cat-file", "--batch")
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, nil, err
	}
	r := bufio.NewReader(out)
	read = func(object string, limit int64) ([]byte, error) {
		if _, err := io.WriteString(in, object+"\n"); err != nil {
			return nil, err
		}
		head, err := r.ReadString('\n')
		if err != nil {
			return nil, err
		}
		fields := strings.Fields(head)
		if len(fields) != 3 || !slices.Equal(fields[:2], []string{object, "blob"}) {
			return nil, fmt.Errorf("git has no such object")
		}
		size, err := strconv.ParseInt(fields[2], 10, 64)
		if err != nil || size < 0 {
			return nil, fmt.Errorf("git printed %s", prose.Quote(head))
		}
		if size > limit {
			return nil, tree.ErrTooLarge
		}
		var b bytes.Buffer
		if _, err := io.CopyN(&b, r, size); err != nil {
			return nil, err
		}
		_, err = r.Discard(1) // the line end
		return b.Bytes(), err
	}
	return read, func() {
		in.Close()
		cmd.Cancel()
		cmd.Wait()
	}, nil
}
