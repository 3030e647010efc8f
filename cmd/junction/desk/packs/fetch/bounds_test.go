//go:build unix

package fetch

import (
	"bytes"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"junction/cmd/pack/tree"
	"junction/integration/harness/needs"
)

// repository is a repository of a test, and its URL.
type repository struct {
	git
	t   *testing.T
	url string
}

// mustServe serves an empty repository over HTTPS, with git itself.
func mustServe(t *testing.T) *repository {
	t.Helper()
	needs.Git.Require(t)
	root := t.TempDir()
	r := &repository{git{repo: filepath.Join(root, "pack.git")}, t, ""}
	if err := os.Mkdir(r.repo, 0o700); err != nil {
		t.Fatal(err)
	}
	program, err := exec.LookPath("git")
	if err != nil {
		t.Fatal(err)
	}
	r.must("", "init", "--quiet", "--bare", "--initial-branch=main")
	s := httptest.NewTLSServer(&cgi.Handler{Path: program, Args: []string{"http-backend"},
		Env: []string{"GIT_PROJECT_ROOT=" + root, "GIT_HTTP_EXPORT_ALL=1", "HOME=" + root}, Stderr: t.Output()})
	t.Cleanup(s.Close)
	ca := filepath.Join(root, "ca.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	if err := os.WriteFile(ca, text, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("GIT_SSL_CAINFO", ca)
	t.Setenv("HOME", root)
	r.url = s.URL + "/pack.git"
	return r
}

// must runs git with a standard input, and returns its output.
func (r *repository) must(stdin string, args ...string) string {
	r.t.Helper()
	cmd := r.command(r.t.Context(), args...)
	for _, who := range []string{"AUTHOR", "COMMITTER"} {
		cmd.Env = append(cmd.Env, "GIT_"+who+"_NAME=a", "GIT_"+who+"_EMAIL=a@example.com")
	}
	cmd.Stdin = strings.NewReader(stdin)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		r.t.Fatalf("git %q: %v\n%s", args, err, errs.String())
	}
	return strings.TrimSpace(string(out))
}

// tree makes a tree of n files with the same content.
func (r *repository) tree(n int, content string) string {
	r.t.Helper()
	blob := r.must(content, "hash-object", "-w", "--stdin")
	var list strings.Builder
	for i := range n {
		fmt.Fprintf(&list, "%s blob %s\tf%d\n", plainFile, blob, i)
	}
	return r.must(list.String(), "mktree")
}

// TestOtherCommit: a person who names a commit gets this one. The object with the ID may be a tag,
// which leads to another commit.
func TestOtherCommit(t *testing.T) {
	r := mustServe(t)
	commit := r.must("", "commit-tree", "-m", "x", r.tree(1, "x"))
	r.must("", "update-ref", "refs/heads/main", commit)
	r.must("", "tag", "-a", "-m", "x", "v1", commit)
	tag := r.must("", "rev-parse", "v1")
	r.must("", "config", "uploadpack.allowAnySHA1InWant", "true")
	for ref, want := range map[string]string{commit: "", "v1": "", "main": "",
		tag: "cannot fetch " + r.url + "@" + tag + ": the server sent the commit " + commit} {
		got, err := Fetch(t.Context(), Source{r.url, ref}, t.TempDir(), filepath.Join(t.TempDir(), "pack"))
		if want == "" && (err != nil || got.Commit != commit) || want != "" && (err == nil || err.Error() != want) {
			t.Errorf("%s: %+v, %v; want %q", ref, got, err, want)
		}
	}
}

// TestLargeDownload: a repository with more objects than the limit is refused, also if the download is
// fast.
func TestLargeDownload(t *testing.T) {
	r := mustServe(t)
	r.must("", "update-ref", "refs/heads/main", r.must("", "commit-tree", "-m", "x", r.tree(1, "x")))
	for most, want := range map[int64]string{maxFetched: "", 1: "it is larger than 0 MiB"} {
		g := git{repo: t.TempDir(), download: most}
		if _, err := g.run(t.Context(), "init", "--quiet", "--bare", "--template=", g.repo); err != nil {
			t.Fatal(err)
		}
		err := g.fetch(t.Context(), Source{r.url, "main"})
		if want == "" && err != nil || want != "" && (err == nil || err.Error() != want) {
			t.Errorf("with a limit of %d bytes: %v, want %q", most, err, want)
		}
	}
}

// TestLargeFiles: small objects can become large files, and many. The files of a pack have a limit
// together.
func TestLargeFiles(t *testing.T) {
	r := mustServe(t)
	r.files = 20
	fits, large := r.tree(2, "ten bytes\n"), r.tree(2, "more bytes\n")
	for id, want := range map[string]error{fits: nil, large: tree.ErrTooLarge} {
		if _, err := r.extract(t.Context(), id, filepath.Join(t.TempDir(), "pack")); !errors.Is(err, want) {
			t.Errorf("two files: %v, want %v", err, want)
		}
	}
	list := make([]entry, tree.MaxFiles+1)
	for i := range list {
		list[i].path = fmt.Sprint(i)
	}
	if err := checkPaths(list); !errors.Is(err, tree.ErrTooLarge) {
		t.Errorf("%d files: %v, want %v", len(list), err, tree.ErrTooLarge)
	}
	if err := checkPaths(list[1:]); err != nil {
		t.Errorf("%d files: %v", len(list)-1, err)
	}
}
