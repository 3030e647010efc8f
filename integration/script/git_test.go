//go:build unix

package script

import (
	"encoding/pem"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
)

// cmdGitServer is the command gitserver NAME of the scripts. It serves the repositories of the folder
// git over HTTPS, with git itself, and sets $NAME to its URL, and $GIT_SSL_CAINFO to a file with its
// certificate.
func cmdGitServer(ts *testscript.TestScript, neg bool, args []string) {
	once(ts, neg, len(args) == 1, "gitserver NAME")
	git, err := exec.LookPath("git")
	ts.Check(err)
	folder := ts.MkAbs("git")
	ts.Check(os.MkdirAll(folder, 0o700))
	h := httptest.NewTLSServer(&cgi.Handler{Path: git, Args: []string{"http-backend"},
		Env:    []string{"GIT_PROJECT_ROOT=" + folder, "GIT_HTTP_EXPORT_ALL=1", "HOME=" + folder},
		Stderr: ts.Stderr()})
	ts.Defer(h.Close)
	file := ts.MkAbs("git-ca.pem")
	ts.Check(os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: h.Certificate().Raw}), 0o600))
	setenv(ts, args[0], h.URL)
	setenv(ts, "GIT_SSL_CAINFO", file)
}

// cmdCommit is the command commit REPO FOLDER [TAG] of the scripts. It makes the files of a folder
// the next commit of a repository, which it creates, and sets $COMMIT. An existing tag is moved.
func cmdCommit(ts *testscript.TestScript, neg bool, args []string) {
	once(ts, neg, len(args) == 2 || len(args) == 3, "commit REPO FOLDER [TAG]")
	repo, folder := filepath.Join(ts.MkAbs("git"), args[0]), ts.MkAbs(args[1])
	git := func(words ...string) string {
		cmd := exec.Command("git", append([]string{"--git-dir=" + repo, "--work-tree=" + folder}, words...)...)
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + ts.MkAbs("git"), "GIT_CONFIG_GLOBAL=/dev/null",
			"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_AUTHOR_DATE=2026-01-01T00:00:00Z",
			"GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com", "GIT_COMMITTER_DATE=2026-01-01T00:00:00Z"}
		cmd.Dir = folder
		out, err := cmd.CombinedOutput()
		if err != nil {
			ts.Fatalf("git %s: %v\n%s", strings.Join(words, " "), err, out)
		}
		return strings.TrimSpace(string(out))
	}
	if _, err := os.Stat(repo); err != nil {
		git("init", "--quiet", "--initial-branch=main")
	}
	git("add", "--all", "--force")
	git("commit", "--quiet", "--allow-empty", "-m", "next")
	if len(args) == 3 {
		git("tag", "--force", args[2])
	}
	setenv(ts, "COMMIT", git("rev-parse", "HEAD"))
}
