// Command packages adds to the archives of a release, which cmd/release has made, what Linux machines
// install: deb, rpm, and images as OCI archives. It has a module of its own, so that the module of
// Junction does not require the libraries for these formats.
//
// The same archives give the same bytes: nothing is dated by the clock or named after the machine.
package main

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "packages:", err)
		os.Exit(1)
	}
}

// release is what the packages are made of.
type release struct {
	dir     string // has the archives, and gets the packages
	version string
	home    string    // URL of the project
	program string    // junction for this machine
	date    time.Time // of the commit
	scratch string
}

// program is an unpacked archive.
type program struct {
	arch   string // as Go names it
	folder string
}

func run(args []string) (err error) {
	flags := flag.NewFlagSet("packages", flag.ContinueOnError)
	r := &release{}
	flags.StringVar(&r.dir, "o", "dist", "`folder` with the archives, and for the results")
	flags.StringVar(&r.version, "version", "", "version of the archives")
	flags.StringVar(&r.home, "url", "", "`URL` of the project")
	flags.StringVar(&r.program, "junction", "", "`file` of the program for this machine")
	date := flags.String("date", "", "`time` of the commit (RFC 3339)")
	base := flags.String("base", "", "`image` with Node and uv, with its digest: NAME@sha256:…, or the folder of an OCI layout")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if r.date, err = time.Parse(time.RFC3339, *date); err != nil {
		return err
	}
	if r.scratch, err = os.MkdirTemp("", "junction-packages-"); err != nil {
		return err
	}
	defer os.RemoveAll(r.scratch)
	var all []program
	for _, arch := range []string{"amd64", "arm64"} {
		name := fmt.Sprintf("junction_%s_linux_%s", r.version, arch)
		err := unpack(filepath.Join(r.dir, name+".tar.gz"), r.scratch)
		if errors.Is(err, os.ErrNotExist) {
			continue // the release is for other platforms
		} else if err != nil {
			return err
		}
		all = append(all, program{arch, filepath.Join(r.scratch, name)})
	}
	if len(all) == 0 {
		return fmt.Errorf("%s has no archive of version %s for Linux", r.dir, r.version)
	}
	for _, p := range all {
		if err := r.systemPackages(p); err != nil {
			return fmt.Errorf("%s: %w", p.arch, err)
		}
	}
	if err := r.image(fmt.Sprintf("junction_%s_image.tar", r.version), all, ""); err != nil {
		return fmt.Errorf("image: %w", err)
	}
	if *base != "" {
		if err := r.image(fmt.Sprintf("junction_%s_image_base.tar", r.version), all, *base); err != nil {
			return fmt.Errorf("image on %s: %w", *base, err)
		}
	}
	return nil
}

// maxFile is the limit for a file of an archive.
const maxFile = 1 << 30

// unpack unpacks an archive of the release into dir.
func unpack(archive, dir string) error {
	f, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return err
	}
	for t := tar.NewReader(z); ; {
		h, err := t.Next()
		if err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		if !filepath.IsLocal(h.Name) || h.Typeflag != tar.TypeReg {
			return fmt.Errorf("%s: unexpected file %q", archive, h.Name)
		}
		to := filepath.Join(dir, filepath.FromSlash(path.Clean(h.Name)))
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, os.FileMode(h.Mode))
		if err != nil {
			return err
		}
		_, err = io.Copy(out, io.LimitReader(t, maxFile))
		if err := errors.Join(err, out.Close(), os.Chmod(to, os.FileMode(h.Mode))); err != nil {
			return err
		}
	}
}

// packagedUnit returns the unit for the paths of a package. A folder of configurations that only root and
// the service can read needs the mode in the unit, too.
func packagedUnit(unit string) (string, error) {
	for _, change := range [][2]string{
		{"/usr/local/bin/", "/usr/bin/"},
		{"ConfigurationDirectory=junction\n", "ConfigurationDirectory=junction\nConfigurationDirectoryMode=0750\n"},
		{"Copy it to /etc/systemd/system, and the\n# configuration to /etc/junction/config.yaml.",
			"Write the\n# configuration to /etc/junction/config.yaml."},
	} {
		if !strings.Contains(unit, change[0]) {
			return "", fmt.Errorf("the unit lacks %q", change[0])
		}
		unit = strings.ReplaceAll(unit, change[0], change[1])
	}
	return unit, nil
}
