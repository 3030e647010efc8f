//go:build unix

package foreign

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"junction/integration/harness"
	"junction/integration/harness/process"
)

// skillFiles are the skills that all servers of these tests have.
var skillFiles = map[string]string{
	"refunds/SKILL.md":       "---\nname: refunds\ndescription: Refund customers.\nlicense: MIT\n---\nWrite [the mail](mail.md).\n",
	"refunds/mail.md":        "Dear customer ü\n",
	"git-workflow/SKILL.md":  "---\nname: git-workflow\ndescription: Branch and commit.\n---\nCommit often.\n",
	"git-workflow/a/b/c.txt": "deep",
}

// mustSkills makes a pack with skillFiles, and returns its folder.
func mustSkills(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	mustWriteFile(t, filepath.Join(dir, "pack.yaml"), "name: skills\n")
	for name, text := range skillFiles {
		mustWriteFile(t, filepath.Join(dir, "skills", name), text)
	}
	return dir
}

// mustWriteFile replaces a file at once, and makes the folders above it.
func mustWriteFile(t *testing.T, path, text string) {
	t.Helper()
	err := os.MkdirAll(filepath.Dir(path), 0o700)
	next := filepath.Join(t.TempDir(), "next")
	if err == nil {
		err = os.WriteFile(next, []byte(text), 0o600)
	}
	if err == nil {
		err = os.Rename(next, path)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// mustFastMCP serves a folder of skills with FastMCP over HTTP, and returns its URL.
func mustFastMCP(t *testing.T, python, folder string) string {
	t.Helper()
	_, port, err := net.SplitHostPort(process.FreePort(t))
	if err != nil {
		t.Fatal(err)
	}
	process.MustStartServer(t, exec.Command(python, "testdata/skills_fastmcp.py", folder, port),
		regexp.MustCompile(`Uvicorn running on`))
	return "http://127.0.0.1:" + port + "/mcp"
}

// verified are the digests of the files of each skill, by URI.
type verified map[string]map[string]string

// mustServed returns what a client finds in a folder of skills whose URIs have this beginning.
func mustServed(t *testing.T, folder, begin string) verified {
	t.Helper()
	all := verified{}
	err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(folder, path)
		if err != nil {
			return err
		}
		text, err := os.ReadFile(path)
		name, _, _ := strings.Cut(rel, "/")
		skill := begin + name + "/SKILL.md"
		if all[skill] == nil {
			all[skill] = map[string]string{}
		}
		all[skill][begin+rel] = fmt.Sprintf("sha256:%x", sha256.Sum256(text))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// skillClient is a client for skills that others wrote. It lists, gets and reads all skills of a URL,
// and fails if a size, a digest or the frontmatter does not match.
type skillClient struct {
	name    string
	command func(url string) *exec.Cmd
}

// want runs the client. It must verify exactly these skills.
func (c skillClient) want(t *testing.T, url string, want verified) {
	t.Helper()
	var said strings.Builder
	cmd := c.command(url)
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		t.Errorf("%s at %s: %v\n%.4000s", c.name, url, err, said.String())
		return
	}
	var got verified
	if err := json.Unmarshal(out, &got); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%s at %s verified %s (%v)\nwant %v", c.name, url, out, err, want)
	}
}

// TestForeignSkills has the clients of FastMCP and of rmcp verify the skills of both servers and of a
// pack: on /mcp and on the endpoint of each, after a change of the files, and after a restart; in one
// process, and over three members. FastMCP serves HTTP, rmcp and the pack serve stdio. The client of
// rmcp also compares the directories with the lists of files, where resources/directory/read exists.
func TestForeignSkills(t *testing.T) {
	harness.WithoutShort(t)
	python, rmcp := os.Getenv("JUNCTION_FASTMCP"), os.Getenv("JUNCTION_RMCP")
	if python == "" || rmcp == "" {
		t.Skip("JUNCTION_FASTMCP or JUNCTION_RMCP is not set; name a Python with the package fastmcp, version 4, and the " +
			"program of testdata/skills_rmcp")
	}
	defer harness.Computes(t)()
	clients := []skillClient{
		{"FastMCP", func(url string) *exec.Cmd { return exec.Command(python, "testdata/skills_fastmcp_client.py", url) }},
		{"rmcp", func(url string) *exec.Cmd { return exec.Command(rmcp, "read", url, "modern") }},
		{"rmcp, legacy", func(url string) *exec.Cmd { return exec.Command(rmcp, "read", url, "legacy") }},
	}
	for name, start := range map[string]func(testing.TB, string) *harness.Program{
		"one process": harness.MustProgram,
		"three members": func(t testing.TB, config string) *harness.Program {
			return harness.MustProcesses(t, 3, config) // skipped without Postgres
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := mustSkills(t)
			folder := filepath.Join(dir, "skills")
			p := start(t, fmt.Sprintf("upstreams:\n  fast: {url: %q}\n  rmcp: {command: [%q, serve, %q]}\n"+
				"  pack: {command: [%q, serve, %q]}\n", mustFastMCP(t, python, folder), rmcp, folder, harness.PackBinary(t), dir))
			upstreams := []string{"fast", "rmcp", "pack"}
			check := func(when string) {
				t.Helper()
				p.MustReady(t, harness.Patience)
				merged := verified{}
				for _, upstream := range upstreams {
					maps.Copy(merged, mustServed(t, folder, "skill://"+upstream+"/"))
				}
				for _, c := range clients {
					c.name += " " + when
					c.want(t, p.URL, merged)
				}
			}
			check("at first")
			for _, upstream := range upstreams {
				for _, c := range clients {
					c.want(t, p.URL+"/"+upstream, mustServed(t, folder, "skill://"))
				}
			}
			mustWriteFile(t, filepath.Join(folder, "refunds/mail.md"), "Dear friend\n")
			mustWriteFile(t, filepath.Join(folder, "refunds/new/more.md"), "More.\n")
			check("after a change of the files")
			if len(p.Others) > 0 {
				p.Others[0].MustRestart(t)
			} else {
				p.MustRestart(t)
			}
			check("after a restart")
		})
	}
}
