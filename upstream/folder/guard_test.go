package folder

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// TestGuardTouchesNothingOutside gives the same answer whether a file exists outside the permitted folders,
// and names the command that permits it.
func TestGuardTouchesNothingOutside(t *testing.T) {
	dir := mustFolder(t, t.TempDir())
	inside, there := mustFolder(t, dir, "src"), mustFolder(t, dir, "other")
	must(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
	permit := func(path string) string { return "junction folders allow PATH" }
	g := New(Rules{Within: []string{inside}, Permit: permit})
	answer := func(path string) string {
		_, err := g.Admit(t.Context(), "local", path)
		if err == nil {
			t.Fatalf("%s is admitted", path)
		}
		return strings.ReplaceAll(err.Error(), path, "PATH")
	}
	missing := answer(filepath.Join(dir, "missing"))
	others := []string{there, filepath.Join(dir, "file"), dir, inside + "2", filepath.Dir(dir)}
	if runtime.GOOS == "linux" { // which distinguishes case
		others = append(others, filepath.Join(dir, "SRC"), filepath.Join(strings.ToUpper(dir), "src"))
	}
	for _, path := range others {
		if got := answer(path); got != missing {
			t.Errorf("%s: %s; a missing folder: %s", path, got, missing)
		}
	}
	if !strings.HasSuffix(missing, "run on the machine of Junction: junction folders allow PATH") {
		t.Errorf("the answer has no command: %s", missing)
	}
	for _, path := range []string{"", "src", "./src", inside + "/../other", inside + "/", inside + "\x00"} {
		mustRefuse(t, g, path, "needless parts")
	}
	var none *Guard
	for what, g := range map[string]*Guard{"nil": none, "empty": New(Rules{}), "narrowed nil": none.Narrowed(nil),
		"no rights": g.Narrowed(nil), "beside nil": none.Beside("x")} {
		if _, err := g.Admit(t.Context(), "local", inside); err == nil {
			t.Errorf("a Guard that is %s admits a folder", what)
		}
	}
}

// TestGuardShowsNoHiddenCharacters: the text of a refusal has escapes for a line break and for marks that turn the
// direction of a text.
func TestGuardShowsNoHiddenCharacters(t *testing.T) {
	dir := mustFolder(t, t.TempDir())
	g := New(Rules{Within: []string{dir}})
	for _, name := range []string{"a\nrun this", "a\u202eb", "a\x1b[31m", ".a\nb"} {
		_, err := g.Admit(t.Context(), "local", filepath.Join(dir, name))
		if err == nil || strings.ContainsAny(err.Error(), "\n\u202e\x1b") {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// TestGuardFollowsNoLink refuses a path with a link, and follows the links of what the operator permitted
// only when it was permitted.
func TestGuardFollowsNoLink(t *testing.T) {
	dir := mustFolder(t, t.TempDir())
	src, secret := mustFolder(t, dir, "src"), mustFolder(t, dir, "secret", "a")
	must(t, os.Symlink(filepath.Dir(secret), filepath.Join(src, "link")))
	g := New(Rules{Within: []string{src}})
	mustRefuse(t, g, filepath.Join(src, "link"), "is a link")
	mustRefuse(t, g, filepath.Join(src, "link", "a"), "is a link")

	link := filepath.Join(dir, "to-src")
	must(t, os.Symlink(src, link))
	shop := mustFolder(t, src, "shop")
	g = New(Rules{Within: []string{link}})
	for _, path := range []string{filepath.Join(link, "shop"), shop} { // by both names
		if place, err := g.Admit(t.Context(), "local", path); err != nil || place.Path() != shop {
			t.Errorf("%s: %v, %v", path, place, err)
		}
	}
	must(t, os.Remove(link))
	must(t, os.Symlink(filepath.Dir(secret), link))
	if _, err := g.Admit(t.Context(), "local", filepath.Join(link, "a")); err == nil {
		t.Error("a permitted link that was turned leads elsewhere")
	}
	must(t, os.Rename(src, src+"-old"))
	must(t, os.Symlink(secret, src))
	mustRefuse(t, g, src, "is a link") // the permitted folder itself was replaced
}

// TestGuardSeesASwappedLink swaps a folder for a link while calls name it: the folder that is opened is
// always the permitted one.
func TestGuardSeesASwappedLink(t *testing.T) {
	dir := mustFolder(t, t.TempDir())
	src := mustFolder(t, dir, "src")
	middle := mustFolder(t, src, "a")
	mustFolder(t, middle, "b")
	secret := mustFolder(t, dir, "secret")
	mustFolder(t, secret, "b")
	must(t, os.WriteFile(filepath.Join(secret, "b", "secret"), nil, 0o600))
	link := filepath.Join(src, "link")
	must(t, os.Symlink(secret, link))
	g := New(Rules{Within: []string{src}})
	done, stop := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		aside := filepath.Join(src, "aside")
		for {
			select {
			case <-stop:
				return
			default:
			}
			_ = os.Rename(middle, aside) // each may fail on Windows, while it is open
			_ = os.Rename(link, middle)
			_ = os.Rename(middle, link)
			_ = os.Rename(aside, middle)
		}
	}()
	admitted, refused := 0, 0
	for admitted+refused < 3000 {
		place, err := g.Admit(t.Context(), "local", filepath.Join(middle, "b"))
		if err != nil {
			refused++
			continue
		}
		f, err := g.Open(t.Context(), "local", place)
		if err != nil {
			refused++
			continue
		}
		admitted++
		if names, _ := f.Readdirnames(-1); len(names) > 0 {
			t.Fatalf("a link was followed: the folder has %q", names)
		}
		must(t, f.Close())
	}
	close(stop)
	<-done
	t.Logf("%d admitted, %d refused", admitted, refused)
}

// TestGuardRefusesWhatIsNoFolder names a file, a missing folder and a pipe, in the path and at its end.
func TestGuardRefusesWhatIsNoFolder(t *testing.T) {
	dir := mustFolder(t, t.TempDir())
	file := filepath.Join(dir, "file")
	must(t, os.WriteFile(file, nil, 0o600))
	g := New(Rules{Within: []string{dir}})
	mustRefuse(t, g, file, "is a file; name a folder")
	mustRefuse(t, g, filepath.Join(file, "a"), "is a file; name a folder")
	mustRefuse(t, g, filepath.Join(dir, "missing", "a"), filepath.Join(dir, "missing")+" does not exist")
	mustRefuse(t, g, filepath.Join(dir, strings.Repeat("a", 300)), "cannot be opened")
}

// TestGuardKeepsPrivateFolders refuses the folders that nobody may name, whatever is permitted.
func TestGuardKeepsPrivateFolders(t *testing.T) {
	root := mustFolder(t, t.TempDir())
	home := mustFolder(t, root, "home")
	g := New(Rules{Within: []string{root, filepath.Join(home, ".ssh")}, Homes: []string{home}})
	for path, why := range map[string]string{
		".":                  "it contains a home folder",
		"home":               "it is a home folder",
		"home/.ssh":          ".ssh is a hidden folder",
		"home/a/b/.git/x":    ".git is a hidden folder",
		"home/Library":       "private data",
		"home/Library/a":     "private data",
		"home/library/a":     "private data",
		"home/AppData/Foo":   "private data",
		"home/\u200d.ssh":    "is a hidden folder",
		"home/Lib\u200crary": "private data",
		"srv/.data":          ".data is a hidden folder",
	} {
		path = filepath.Join(root, filepath.FromSlash(path))
		mustRefuse(t, g, path, why) // it does not exist
		if !strings.HasPrefix(path, home) || path == home {
			continue
		}
		must(t, os.MkdirAll(path, 0o700))
		mustRefuse(t, g, path, why)
		if got := g.Never(path); !strings.Contains(got, why) {
			t.Errorf("Never(%s) = %q, want %q", path, got, why)
		}
	}
	mustAdmit(t, g, mustFolder(t, home, "src", "Library"))
	mustAdmit(t, g, mustFolder(t, root, "srv", "data"))
	if why := g.Never(filepath.Join(home, "src")); why != "" {
		t.Errorf("a folder of projects: %s", why)
	}
	if runtime.GOOS != "windows" {
		mustRefuse(t, New(Rules{Within: []string{"/"}}), "/", "the whole file system")
	}
}

// TestGuardKeepsItsOwnFiles refuses a folder with a file of Junction, and a folder in one of Junction, by
// each name of the file.
func TestGuardKeepsItsOwnFiles(t *testing.T) {
	dir := mustFolder(t, t.TempDir())
	state, shop := mustFolder(t, dir, "state", "junction"), mustFolder(t, dir, "shop")
	mustFolder(t, state, "sandbox")
	config := filepath.Join(shop, "conf", "junction.yaml")
	linked := filepath.Join(dir, "linked", "key") // the file is behind a link
	mustFolder(t, dir, "real")
	must(t, os.Symlink(filepath.Join(dir, "real"), filepath.Join(dir, "linked")))
	g := New(Rules{Within: []string{dir}, Own: []Own{{What: "the configuration file", Path: config},
		{What: "the keys", Path: state}, {What: "the session key", Path: linked}}})
	for path, why := range map[string]string{
		shop:                            "it contains the configuration file",
		filepath.Join(shop, "conf"):     "it contains the configuration file",
		filepath.Dir(state):             "it contains the keys",
		state:                           "it is in the keys",
		filepath.Join(state, "sandbox"): "it is in the keys",
		filepath.Join(state, "missing"): "it is in the keys",
		filepath.Join(dir, "real"):      "it contains the session key",
		dir:                             "it contains",
	} {
		mustRefuse(t, g, path, why)
	}
	mustAdmit(t, g, mustFolder(t, shop, "src"))
	mustAdmit(t, g, mustFolder(t, dir, "state", "junction2"))
}

// TestGuardBesideOtherEntries keeps an entry with a sandbox from the programs and folders of the others.
func TestGuardBesideOtherEntries(t *testing.T) {
	dir := mustFolder(t, t.TempDir())
	shop := mustFolder(t, dir, "shop")
	g := New(Rules{Within: []string{dir}, Own: []Own{{What: "the program of upstreams.files",
		Path: filepath.Join(shop, "server.js"), Entry: "files"}}})
	mustAdmit(t, g, shop)
	mustAdmit(t, g.Beside("files"), shop)
	mustRefuse(t, g.Beside("git"), shop, "it contains the program of upstreams.files")
}

// TestGuardNarrowed refuses what a policy does not permit as it refuses what is outside.
func TestGuardNarrowed(t *testing.T) {
	dir := mustFolder(t, t.TempDir())
	shop, blog := mustFolder(t, dir, "shop"), mustFolder(t, dir, "blog")
	link := filepath.Join(dir, "link")
	must(t, os.Symlink(shop, link))
	permit := func(path string) string { return "allow " + path }
	g := New(Rules{Within: []string{dir}, Permit: permit,
		Allowed: func() ([]Root, error) { return []Root{{link, shop}}, nil }})
	own := g.Narrowed(func(path string) bool { return Contains(shop, path) })
	mustAdmit(t, own, shop)
	mustRefuse(t, own, blog, outside)
	for _, path := range []string{blog, "/elsewhere"} {
		if _, err := own.Admit(t.Context(), "u", path); err == nil || strings.Contains(err.Error(), "allow") {
			t.Errorf("%s: %v", path, err)
		}
	}
	named := g.Narrowed(func(path string) bool { return Contains(link, path) }) // by the name with the link
	if place, err := named.Admit(t.Context(), "u", link); err != nil || place.Path() != shop {
		t.Errorf("a folder by its name: %v, %v", place, err)
	}
	mustRefuse(t, own.Narrowed(func(path string) bool { return Contains(blog, path) }), shop, outside)
	mustAdmit(t, g, blog) // the other Guard is as it was
}

// TestGuardAsksForTheListAtEachCall permits and forgets a folder while the Guard is in use.
func TestGuardAsksForTheListAtEachCall(t *testing.T) {
	dir := mustFolder(t, t.TempDir())
	shop := mustFolder(t, dir, "shop")
	list := NewList(filepath.Join(dir, "list.json"))
	g := New(Rules{Allowed: list.Roots})
	mustRefuse(t, g, shop, outside)
	_, err := list.Allow(t.Context(), NewRoot(shop))
	must(t, err)
	mustAdmit(t, g, shop)
	_, err = list.Forget(t.Context(), shop)
	must(t, err)
	mustRefuse(t, g, shop, outside)
	must(t, os.WriteFile(list.file, []byte("{"), 0o600))
	mustRefuse(t, g, shop, "cannot be read")
	broken := New(Rules{Allowed: func() ([]Root, error) { return nil, errors.New("x") }, Within: []string{dir}})
	mustAdmit(t, broken, shop) // the configuration permits it
}
