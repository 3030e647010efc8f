package fetch

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"junction/cmd/pack/tree"
	"junction/upstream/pace"
	"junction/upstream/prose"
)

const (
	maxTime    = 5 * time.Minute // of one download
	maxFetched = 512 << 20       // bytes of the downloaded objects
	checkSize  = 200 * time.Millisecond
)

// Result is what was fetched.
type Result struct {
	Commit string
	Notes  []string // for the user
}

// Fetch fetches a source into the folder dir, which it creates. temp is an existing folder for the
// download. After an error, dir may have some of the files.
func Fetch(ctx context.Context, s Source, temp, dir string) (*Result, error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	if _, err := exec.LookPath("git"); err != nil {
		return nil, errors.New("there is no program git; install it")
	}
	repo, err := os.MkdirTemp(temp, ".git-*")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(repo)
	g := git{repo, maxFetched, tree.MaxBytes}
	if _, err := g.run(ctx, "init", "--quiet", "--bare", "--template=", repo); err != nil {
		return nil, err
	}
	if err := g.fetch(ctx, s); err != nil {
		return nil, fmt.Errorf("cannot fetch %s: %w", s, err)
	}
	r := &Result{}
	head, err := g.run(ctx, "rev-parse", "--verify", "--quiet", "--end-of-options", "FETCH_HEAD^{commit}")
	if r.Commit = strings.TrimSpace(string(head)); err != nil || !commit.MatchString(r.Commit) {
		return nil, fmt.Errorf("cannot fetch %s: it is no commit; name a branch, a tag or a commit", s)
	}
	if s.IsCommit() && r.Commit != s.Ref {
		return nil, fmt.Errorf("cannot fetch %s: the server sent the commit %s", s, r.Commit)
	}
	r.Notes, err = g.extract(ctx, r.Commit, dir)
	return r, err
}

// git runs the program git for one bare repository.
type git struct {
	repo     string
	download int64 // limit of the downloaded objects, in bytes
	files    int64 // limit of the files of a commit, in bytes
}

// inherited are the variables that git gets: folders, proxies and certificates. Other variables can
// make git run programs, or change its behaviour.
var inherited = []string{"PATH", "HOME", "USER", "LANG", "LC_ALL", "TMPDIR", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR",
	"http_proxy", "https_proxy", "HTTPS_PROXY", "no_proxy", "NO_PROXY", "all_proxy", "ALL_PROXY",
	"SSL_CERT_FILE", "SSL_CERT_DIR", "GIT_SSL_CAINFO", "GIT_SSL_CAPATH", "GIT_PROXY_SSL_CAINFO", "GIT_CONFIG_GLOBAL",
	"SYSTEMROOT", "USERPROFILE", "APPDATA", "LOCALAPPDATA", "PROGRAMDATA", "TEMP", "TMP", "DBUS_SESSION_BUS_ADDRESS"}

func environment() []string {
	env := []string{
		"GIT_TERMINAL_PROMPT=0", "GIT_ASKPASS=", // no questions
		"GIT_ALLOW_PROTOCOL=https", // overrides the user's configuration of git
		"GIT_NO_LAZY_FETCH=1", "GIT_ATTR_NOSYSTEM=1", "GIT_OPTIONAL_LOCKS=0", "LC_ALL=C",
	}
	for _, v := range os.Environ() {
		name, _, _ := strings.Cut(v, "=")
		is := func(other string) bool { return strings.EqualFold(name, other) }
		if name != "LC_ALL" && slices.ContainsFunc(inherited, is) {
			env = append(env, v)
		}
	}
	return env
}

// command returns a git command on the repository.
func (g git) command(ctx context.Context, args ...string) *exec.Cmd {
	words := []string{"--git-dir=" + g.repo, "--no-pager"}
	for _, setting := range []string{"core.hooksPath=" + os.DevNull, "core.attributesFile=" + os.DevNull,
		"core.fsmonitor=false", "protocol.allow=never", "protocol.https.allow=always", "gc.auto=0",
		"maintenance.auto=false", "submodule.recurse=false", "fetch.recurseSubmodules=false"} {
		words = append(words, "-c", setting)
	}
	cmd := exec.CommandContext(ctx, "git", append(words, args...)...)
	cmd.Dir, cmd.Env = g.repo, environment()
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// run runs a git command and returns its output.
func (g git) run(ctx context.Context, args ...string) ([]byte, error) {
	cmd := g.command(ctx, args...)
	out, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return nil, fmt.Errorf("git %s: %s", args[0], outputOf(exit.Stderr))
	}
	return out, err
}

// outputOf returns the last lines of what git has written, in one line. Some of it comes from the
// server.
func outputOf(stderr []byte) string {
	lines := strings.Split(strings.TrimSpace(string(stderr)), "\n")
	text := prose.Flat(strings.Join(lines[max(0, len(lines)-3):], "; "))
	return cmp.Or(prose.Cut(text, 300), "it failed without a message")
}

// fetch downloads the objects of one commit. It ends git if the download takes too long or becomes
// too large.
func (g git) fetch(ctx context.Context, s Source) error {
	ctx, cancel := context.WithTimeoutCause(ctx, maxTime, fmt.Errorf("it took longer than %v", maxTime))
	defer cancel()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	large := fmt.Errorf("it is larger than %d MiB", g.download>>20)
	go func() { // ends with ctx
		for pace.Sleep(ctx, checkSize, nil) {
			if sizeOf(g.repo) > g.download {
				stop(large)
			}
		}
	}()
	_, err := g.run(ctx, "fetch", "--quiet", "--depth=1", "--no-tags", "--no-recurse-submodules",
		"--no-auto-maintenance", "--no-write-commit-graph", "--", s.URL, cmp.Or(s.Ref, "HEAD"))
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return fmt.Errorf("%w; check the name, the ref and the network: git must be able to fetch it "+
			"without a question", err)
	}
	if sizeOf(g.repo) > g.download { // the end came between two looks
		return large
	}
	return nil
}

// sizeOf returns the size of all files of a folder, as far as they can be read.
func sizeOf(dir string) (size int64) {
	filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			if info, err := e.Info(); err == nil {
				size += info.Size()
			}
		}
		return nil // a file that cannot be read is ignored: git removes files at the same time
	})
	return size
}

// entry is a file of a commit.
type entry struct{ mode, kind, object, path string }

// maxListing limits the list of the files of a commit: a small repository can have billions of
// files, if its folders are one and the same.
const maxListing = tree.MaxFiles << 10

// list returns the files of a commit.
func (g git) list(ctx context.Context, commit string) ([]entry, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cmd := g.command(ctx, "ls-tree", "-r", "-z", "--full-tree", "--end-of-options", commit)
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	out, err := io.ReadAll(io.LimitReader(pipe, maxListing+1))
	if len(out) > maxListing {
		cancel()
		cmd.Wait()
		return nil, fmt.Errorf("the repository cannot be a pack: %w", tree.ErrTooLarge)
	}
	if err := errors.Join(err, cmd.Wait()); err != nil {
		return nil, fmt.Errorf("git ls-tree: %w", err)
	}
	var list []entry
	for line := range bytes.SplitSeq(bytes.TrimSuffix(out, []byte{0}), []byte{0}) {
		about, path, ok := strings.Cut(string(line), "\t")
		fields := strings.Fields(about)
		if len(line) == 0 {
			continue
		}
		if !ok || len(fields) != 3 {
			return nil, fmt.Errorf("git ls-tree printed %s", prose.Quote(string(line)))
		}
		list = append(list, entry{fields[0], fields[1], fields[2], path})
	}
	return list, nil
}
