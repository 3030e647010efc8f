package main

import (
	"bytes"
	"compress/gzip"
	"embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb" // registers the format
	"github.com/goreleaser/nfpm/v2/files"
	_ "github.com/goreleaser/nfpm/v2/rpm" // registers the format
)

// scripts run when the package is installed and removed. Each understands the arguments of dpkg and of rpm.
//
//go:embed postinstall.sh preremove.sh postremove.sh
var scripts embed.FS

// systemPackages writes the deb and the rpm.
func (r *release) systemPackages(p program) error {
	made, err := r.made(p)
	if err != nil {
		return err
	}
	for _, format := range []string{"deb", "rpm"} {
		info := &nfpm.Info{
			Name: "junction", Arch: p.arch, Platform: "linux", Version: r.version, Section: "net", Priority: "optional",
			Maintainer: "Junction", Vendor: "Junction", Homepage: r.home, License: "Apache-2.0", MTime: r.date,
			Description:     "Serve many MCP servers behind one MCP URL",
			DisableGlobbing: true,
			Overridables: nfpm.Overridables{
				Recommends: []string{"ca-certificates"},
				Contents:   r.contents(p, made, format),
				Scripts: nfpm.Scripts{
					PostInstall: filepath.Join(made, "postinstall.sh"),
					PreRemove:   filepath.Join(made, "preremove.sh"),
					PostRemove:  filepath.Join(made, "postremove.sh"),
				},
				RPM: nfpm.RPM{BuildHost: "localhost", Packager: "Junction"},
			},
		}
		info = nfpm.WithDefaults(info)
		if err := nfpm.PrepareForPackager(info, format); err != nil {
			return fmt.Errorf("%s: %w", format, err)
		}
		packager, err := nfpm.Get(format)
		if err != nil {
			return err
		}
		var b bytes.Buffer
		if err := packager.Package(info, &b); err != nil {
			return fmt.Errorf("%s: %w", format, err)
		}
		name := fmt.Sprintf("junction_%s_linux_%s.%s", r.version, p.arch, format)
		if err := os.WriteFile(filepath.Join(r.dir, name), b.Bytes(), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// completions are the shells, with the files that Debian and Fedora read. Both read that of bash.
var completions = map[string]map[string]string{
	"bash": {"": "/usr/share/bash-completion/completions/junction"},
	"zsh":  {"deb": "/usr/share/zsh/vendor-completions/_junction", "rpm": "/usr/share/zsh/site-functions/_junction"},
	"fish": {"": "/usr/share/fish/vendor_completions.d/junction.fish"},
}

// made writes what a package has and the archive lacks into a folder.
func (r *release) made(p program) (string, error) {
	dir := filepath.Join(r.scratch, "made-"+p.arch)
	if err := os.Mkdir(dir, 0o755); err != nil {
		return "", err
	}
	write := func(name string, text []byte) error { return os.WriteFile(filepath.Join(dir, name), text, 0o644) }
	for _, name := range []string{"postinstall.sh", "preremove.sh", "postremove.sh"} {
		text, err := scripts.ReadFile(name)
		if err != nil {
			return "", err
		}
		if err := write(name, text); err != nil {
			return "", err
		}
	}
	unit, err := os.ReadFile(filepath.Join(p.folder, "cmd", "junction", "deploy", "junction.service"))
	if err != nil {
		return "", err
	}
	packaged, err := packagedUnit(string(unit))
	if err != nil {
		return "", err
	}
	if err := write("junction.service", []byte(packaged)); err != nil {
		return "", err
	}
	for shell := range completions {
		text, err := r.ask("completion", shell)
		if err != nil {
			return "", err
		}
		if err := write(shell, text); err != nil {
			return "", err
		}
	}
	page, err := r.ask("man")
	if err != nil {
		return "", err
	}
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return "", err
	}
	if _, err := z.Write(page); err != nil {
		return "", err
	}
	if err := z.Close(); err != nil {
		return "", err
	}
	return dir, write("junction.1.gz", b.Bytes())
}

// ask runs a command of the program of this machine.
func (r *release) ask(args ...string) ([]byte, error) {
	cmd := exec.Command(r.program, args...)
	cmd.Env = []string{"HOME=" + r.scratch}
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("junction %s: %w", args[0], err)
	}
	return out, err
}

// contents lists the files of a package.
func (r *release) contents(p program, made, format string) files.Contents {
	file := func(from, to string, mode os.FileMode) *files.Content {
		return &files.Content{Source: from, Destination: to, FileInfo: &files.ContentFileInfo{Owner: "root", Group: "root",
			Mode: mode, MTime: r.date}}
	}
	example := file(filepath.Join(p.folder, "config.example.yaml"), "/etc/junction/config.example.yaml", 0o644)
	example.Type = files.TypeConfigNoReplace
	folder := file("", "/etc/junction", 0o750)
	folder.Type = files.TypeDir
	list := files.Contents{
		file(filepath.Join(p.folder, "junction"), "/usr/bin/junction", 0o755),
		file(filepath.Join(p.folder, "junction-pack"), "/usr/bin/junction-pack", 0o755),
		file(filepath.Join(made, "junction.service"), "/usr/lib/systemd/system/junction.service", 0o644),
		file(filepath.Join(p.folder, "cmd", "junction", "deploy", "junction.socket"),
			"/usr/lib/systemd/system/junction.socket", 0o644),
		folder, example,
		file(filepath.Join(made, "junction.1.gz"), "/usr/share/man/man1/junction.1.gz", 0o644),
		file(filepath.Join(p.folder, "LICENSE"), "/usr/share/doc/junction/copyright", 0o644),
		file(filepath.Join(p.folder, "README.md"), "/usr/share/doc/junction/README.md", 0o644),
	}
	for shell, to := range completions {
		for _, word := range []string{"", format} {
			if name, ok := to[word]; ok {
				list = append(list, file(filepath.Join(made, shell), name, 0o644))
			}
		}
	}
	return list
}
