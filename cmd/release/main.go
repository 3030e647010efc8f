// Command release builds the release of the last commit: a static archive for each platform, with
// checksums, a list of its modules (CycloneDX), a Homebrew formula, the script install.sh, and for Linux
// deb, rpm and images, which the program in .ci/packages makes.
//
// It builds a fresh clone, so that nothing uncommitted gets in. The same commit and the same version
// of Go give the same bytes, wherever and whenever it runs.
package main

import (
	"cmp"
	"context"
	"debug/buildinfo"
	"debug/elf"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		stop()
		os.Exit(1)
	}
}

// targets are the platforms of a release.
const targets = "linux/amd64,linux/arm64,darwin/amd64,darwin/arm64,windows/amd64,windows/arm64"

// programs are the programs of each archive, which are built from the packages below cmd.
var programs = []string{"junction", "junction-pack"}

// documents are the files of the repository that are in each archive, with those that they link to.
var documents = []string{"LICENSE", "README.md", "config.example.yaml"}

// developers are the pages for people who have the repository.
var developers = []string{"CONTRIBUTING.md", "CHANGELOG.md", "integration/README.md"}

// platform is one target, and what was built for it.
type platform struct {
	os, arch string
	archive  string // file name
	sum      string // SHA-256 of the archive
	size     int    // of the archive, in bytes
}

// release is one run of the program.
type release struct {
	dir     string    // for the results
	source  string    // the clone
	version string    // of the build, without v
	date    time.Time // of the commit
	latest  string    // URL of a file with the newest version
	stdout  io.Writer
	sums    map[string]string // of the results, by name
}

// run builds what the arguments ask for.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	flags := flag.NewFlagSet("release", flag.ContinueOnError)
	flags.SetOutput(stderr)
	dir := flags.String("o", "dist", "`folder` for the results; it must be empty or missing")
	list := flags.String("targets", targets, "platforms, separated by commas")
	from := flags.String("url", "", "`URL` of the folder from which people download; without it, no "+
		"formula and no install.sh")
	base := flags.String("base", "", "`image` with Node and uv for a second image, with its digest: NAME@sha256:…, "+
		"or the folder of an OCI layout with @ and the digest")
	r := &release{stdout: stdout, sums: map[string]string{}}
	flags.StringVar(&r.latest, "latest", "", "`URL` of a file with the newest version, for junction version --check")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if r.latest != "" && !baseURL.MatchString(r.latest) {
		return notInScript(r.latest)
	}
	if r.dir, err = emptyFolder(*dir); err != nil {
		return err
	}
	if r.source, err = os.MkdirTemp("", "junction-release-"); err != nil {
		return err
	}
	defer os.RemoveAll(r.source)
	if err := r.clone(ctx); err != nil {
		return err
	}
	var built []platform
	for target := range strings.SplitSeq(*list, ",") {
		p, err := r.build(ctx, target)
		if err != nil {
			return fmt.Errorf("%s: %w", target, err)
		}
		built = append(built, p)
	}
	if *from != "" {
		folder := strings.TrimSuffix(*from, "/")
		if err := r.write("junction.rb", []byte(formula(r.version, folder, built))); err != nil {
			return err
		}
		script, err := installScript(r.version, folder, built)
		if err != nil {
			return err
		}
		if err := r.write("install.sh", script); err != nil {
			return err
		}
	}
	if err := r.packages(ctx, *from, *base, built); err != nil {
		return fmt.Errorf("packages: %w", err)
	}
	return r.checksums()
}

// emptyFolder creates the folder if it is missing, and returns its absolute path.
func emptyFolder(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	entries, err := os.ReadDir(dir)
	if err == nil && len(entries) > 0 {
		err = fmt.Errorf("%s is not empty; remove it, or choose another folder with -o", dir)
	}
	return dir, err
}

// clone copies the last commit, with its tags: Go reads the version from them.
func (r *release) clone(ctx context.Context) error {
	if _, err := command(ctx, "", nil, "git", "clone", "--quiet", "--no-hardlinks", ".", r.source); err != nil {
		return err
	}
	text, err := command(ctx, r.source, nil, "git", "log", "-1", "--format=%cI")
	if err != nil {
		return err
	}
	r.date, err = time.Parse(time.RFC3339, strings.TrimSpace(text))
	r.date = r.date.UTC()
	return err
}

// command runs a program and returns its output.
func command(ctx context.Context, dir string, env []string, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(cmd.Environ(), env...)
	out, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return "", fmt.Errorf("%s %s: %w\n%s", name, args[0], err, exit.Stderr)
	}
	return string(out), err
}

// build makes the archive and the list of modules for one platform.
func (r *release) build(ctx context.Context, target string) (p platform, err error) {
	var ok bool
	if p.os, p.arch, ok = strings.Cut(target, "/"); !ok {
		return p, errors.New("a target is written like linux/amd64")
	}
	scratch, err := os.MkdirTemp("", "junction-build-")
	if err != nil {
		return p, err
	}
	defer os.RemoveAll(scratch)
	var files []packed
	var infos []*buildinfo.BuildInfo
	for _, program := range programs {
		binary, info, err := r.program(ctx, p, program, scratch)
		if err != nil {
			return p, fmt.Errorf("%s: %w", program, err)
		}
		files = append(files, packed{binary, filepath.Base(binary), 0o755})
		infos = append(infos, info)
	}
	r.version = cmp.Or(r.version, strings.TrimPrefix(infos[0].Main.Version, "v"))
	name := fmt.Sprintf("junction_%s_%s_%s", r.version, p.os, p.arch)
	list, err := billOfMaterials(together(infos), r.version, r.date)
	if err != nil {
		return p, err
	}
	if err := r.write(name+".cdx.json", list); err != nil {
		return p, err
	}
	names, err := linked(r.source)
	if err != nil {
		return p, err
	}
	for _, d := range names {
		files = append(files, packed{filepath.Join(r.source, filepath.FromSlash(d)), d, 0o644})
	}
	pack, ending := tarball, ".tar.gz"
	if p.os == "windows" {
		pack, ending = zipFile, ".zip"
	}
	archive, err := pack(name, files, r.date)
	if err != nil {
		return p, err
	}
	p.archive = name + ending
	if err := r.write(p.archive, archive); err != nil {
		return p, err
	}
	p.sum, p.size = r.sums[p.archive], len(archive)
	return p, nil
}

// program builds one program for a platform.
func (r *release) program(ctx context.Context, p platform, name, dir string) (string, *buildinfo.BuildInfo, error) {
	binary := filepath.Join(dir, name)
	if p.os == "windows" {
		binary += ".exe"
	}
	env := []string{"CGO_ENABLED=0", "GOOS=" + p.os, "GOARCH=" + p.arch, "GOAMD64=v1", "GOARM64=v8.0", "GOFLAGS=",
		"GOWORK=off"}
	if _, err := command(ctx, r.source, env, "go", "build", "-trimpath", "-buildvcs=true",
		"-ldflags=-s -w -X main.latest="+r.latest, "-o", binary, "./cmd/"+name); err != nil {
		return "", nil, err
	}
	info, err := buildinfo.ReadFile(binary)
	if err == nil {
		err = r.check(binary, p, info)
	}
	return binary, info, err
}

// together returns the information about several programs with the modules of all of them.
func together(infos []*buildinfo.BuildInfo) *buildinfo.BuildInfo {
	all := *infos[0]
	for _, info := range infos[1:] {
		for _, m := range info.Deps {
			if !slices.ContainsFunc(all.Deps, func(other *debug.Module) bool { return other.Path == m.Path }) {
				all.Deps = append(slices.Clip(all.Deps), m)
			}
		}
	}
	slices.SortFunc(all.Deps, func(a, b *debug.Module) int { return cmp.Compare(a.Path, b.Path) })
	return &all
}

// check rejects a binary that was not made of the clone, or needs libraries of the system.
func (r *release) check(binary string, p platform, info *buildinfo.BuildInfo) error {
	setting := func(key string) string {
		for _, s := range info.Settings {
			if s.Key == key {
				return s.Value
			}
		}
		return ""
	}
	switch {
	case setting("vcs.revision") == "" || info.Main.Version == "(devel)":
		return errors.New("go has not stamped the commit into the program")
	case setting("vcs.modified") != "false":
		return errors.New("the clone has uncommitted changes")
	case p.os != "linux":
		return nil
	}
	f, err := elf.Open(binary)
	if err != nil {
		return err
	}
	defer f.Close()
	if slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
		return errors.New("the program is not static")
	}
	return nil
}
