package integration

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"junction/integration/harness"
	"junction/integration/harness/needs"
)

// recipe is one of the manifests of RECIPES.md, in a folder of its own.
type recipe struct {
	t   *testing.T
	dir string
	env []string
}

// call calls a tool of the recipe. It returns what is printed, and whether the call succeeded.
func (r *recipe) call(tool string, words ...string) (string, bool) {
	r.t.Helper()
	cmd := exec.Command(harness.PackBinary(r.t), append([]string{"call", r.dir, tool}, words...)...)
	cmd.Env = append(os.Environ(), r.env...)
	out, err := cmd.CombinedOutput()
	if _, exited := err.(*exec.ExitError); err != nil && !exited {
		r.t.Fatal(err)
	}
	return string(out), err == nil
}

// must calls a tool, whose output must match.
func (r *recipe) must(want, tool string, words ...string) {
	r.t.Helper()
	if out, ok := r.call(tool, words...); !ok || !regexp.MustCompile(want).MatchString(out) {
		r.t.Errorf("%s %q prints %s, want %s", tool, words, out, want)
	}
}

// refused calls a tool, which must fail with an output that matches.
func (r *recipe) refused(want, tool string, words ...string) {
	r.t.Helper()
	if out, ok := r.call(tool, words...); ok || !regexp.MustCompile(want).MatchString(out) {
		r.t.Errorf("%s %q prints %s, want a failure: %s", tool, words, out, want)
	}
}

// write writes a file of the recipe.
func (r *recipe) write(name, text string) {
	r.t.Helper()
	file := filepath.Join(r.dir, name)
	err := os.MkdirAll(filepath.Dir(file), 0o700)
	if err == nil {
		err = os.WriteFile(file, []byte(text), 0o600)
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

// run runs a program of this machine.
func (r *recipe) run(program string, args ...string) {
	r.t.Helper()
	_, err := exec.LookPath(program)
	needs.Skip(r.t, err)
	if out, err := exec.Command(program, args...).CombinedOutput(); err != nil {
		r.t.Fatalf("%s: %v\n%s", program, err, out)
	}
}

// echoing is a local server that answers with the request. /away redirects to a private address.
func echoing(t *testing.T) string {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/away" {
			http.Redirect(w, r, "http://127.0.0.1:9/", http.StatusFound)
			return
		}
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s %s %s", r.Method, r.URL.RequestURI(), r.Header.Get("X-Subscription-Token"), body)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// recipes are the tests of the recipes, by their headings.
var recipes = map[string]func(r *recipe, manifest string){
	"Fetch a page": func(r *recipe, manifest string) {
		local := echoing(r.t)
		for _, url := range []string{local, "https://127.0.0.1/", "https://localhost/", "https://169.254.169.254/latest/",
			"https://[::1]/", "https://10.0.0.1/"} {
			r.refused("address is not public", "fetch", "url="+url)
		}
		r.refused("is no URL; write https", "fetch", "url=file:///etc/passwd")
		r.refused("begins with http://", "fetch", "url=http://example.com/")
		// The host of a test is not public.
		host := strings.TrimPrefix(local, "http://")
		r.write("pack.yaml", strings.Replace(manifest, "[public]", `[public, "`+host+`"]`, 1))
		r.must("GET /page\\?a=b", "fetch", "url="+local+"/page?a=b")
		r.refused("address is not public", "fetch", "url="+local+"/away")
		r.write("pack.yaml", strings.Replace(manifest, "[public]", `["`+host+`"]`, 1))
		r.must("GET /page", "fetch", "url="+local+"/page")
		r.refused("no host that the manifest names", "fetch", "url=https://93.184.215.14/")
	},
	"Search the web": func(r *recipe, _ string) {
		r.env = []string{"SEARCH_URL=" + echoing(r.t) + "/search", "SEARCH_KEY=canary-search"}
		r.must(`GET /search\?count=5&q=a\+b%26c canary-search`, "search_web", "query=a b&c")
		r.refused("must be at most 20", "search_web", "query=a", "count=21")
	},
	"Read and edit the files of a folder": func(r *recipe, _ string) {
		r.write("notes/a.md", "one two\n")
		r.write("secret", "canary-secret")
		r.must(`a\.md`, "list_files")
		r.must("^one two", "read_file", "file=a.md")
		r.refused("outside the folder", "read_file", "file=../secret")
		r.must("written", "write_file", "file=b.md", "text=a $HOME\nb")
		r.must(`^a \$HOME\nb`, "read_file", "file=b.md")
		r.must("changed", "edit_file", "file=a.md", "old=two", "new=$1 & three")
		r.must(`^one \$1 & three`, "read_file", "file=a.md")
		r.refused("the text is not in the file", "edit_file", "file=a.md", "old=(", "new=x")
		r.must(`^one \$1 & three`, "read_file", "file=a.md")
		r.refused("outside the folder", "edit_file", "file=../secret", "old=canary", "new=x")
	},
	"Run a command of a list": func(r *recipe, _ string) {
		project := filepath.Join(r.t.TempDir(), "project")
		r.run("git", "init", "-q", project)
		r.env = []string{"PROJECT=" + project}
		r.must("No commits yet", "git", "command=status")
		r.refused("do not fit", "git", "command=push")
		r.refused("do not fit", "git", "command=--version")
	},
	"Query SQLite": func(r *recipe, _ string) {
		r.run("sqlite3", filepath.Join(r.dir, "shop.db"), "CREATE TABLE pets (name, age); INSERT INTO pets VALUES ('Rex', 3)")
		r.must(`"name":"Rex"`, "query", "sql=SELECT * FROM pets LIMIT 3")
		r.refused("do not fit", "query", "sql=.shell echo canary")
		r.refused("do not fit", "query", "sql=DROP TABLE pets")
		r.refused("readonly|authorized", "query", "sql=WITH x AS (SELECT 1) DELETE FROM pets")
		r.refused("authoriz|safe|prohibited", "query", "sql=SELECT load_extension('x')")
	},
	"Send a message to a webhook": func(r *recipe, _ string) {
		r.env = []string{"WEBHOOK_URL=" + echoing(r.t) + "/canary-hook"}
		r.must(`^POST /canary-hook  \{"text":"say \\"hi\\""\}`, "notify", `text=say "hi"`)
		r.refused("do not fit", "notify")
	},
}

// TestPackRecipes runs each recipe of RECIPES.md of junction-pack against a local server, and tries
// what it must refuse.
func TestPackRecipes(t *testing.T) {
	text, err := os.ReadFile("../" + packFolder + "RECIPES.md")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile("(?s)\n## ([^\n]+)\n.*?```yaml\n(.*?)```").FindAllStringSubmatch(string(text), -1)
	if len(found) != len(recipes) {
		t.Errorf("there are %d recipes, and %d tests", len(found), len(recipes))
	}
	for _, one := range found {
		t.Run(one[1], func(t *testing.T) {
			run := recipes[one[1]]
			if run == nil {
				t.Fatal("the recipe has no test")
			}
			r := &recipe{t: t, dir: filepath.Join(t.TempDir(), "pack")}
			r.write("pack.yaml", one[2])
			r.write("notes/.keep", "")
			run(r, one[2])
		})
	}
}
