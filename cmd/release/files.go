package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// write writes a result, and remembers its checksum.
func (r *release) write(name string, data []byte) error {
	if err := os.WriteFile(filepath.Join(r.dir, name), data, 0o644); err != nil {
		return err
	}
	return r.wrote(name, data)
}

// wrote prints a result and its size, and remembers its checksum.
func (r *release) wrote(name string, data []byte) error {
	sum := sha256.Sum256(data)
	r.sums[name] = hex.EncodeToString(sum[:])
	_, err := fmt.Fprintf(r.stdout, "%11d  %s\n", len(data), name)
	return err
}

// checksums writes the file that sha256sum --check reads.
func (r *release) checksums() error {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(r.sums)) {
		fmt.Fprintf(&b, "%s  %s\n", r.sums[name], name)
	}
	if err := r.write("checksums.txt", []byte(b.String())); err != nil {
		return err
	}
	_, err := fmt.Fprintf(r.stdout, "Junction %s is in %s: %d files, with their sizes in bytes.\n", r.version, r.dir,
		len(r.sums))
	return err
}

// packed is a file of an archive.
type packed struct {
	file string // where it is
	name string // in the folder of the archive, with slashes
	mode int64
}

// linked returns the documents of the repository at source that an archive has, as paths with slashes: those
// that documents names, and the files that they link to, and so on. Source code, and what the pages for
// developers link to, is not in the archive.
func linked(source string) ([]string, error) {
	list := slices.Clone(documents)
	for i := 0; i < len(list); i++ {
		name := list[i]
		if path.Ext(name) != ".md" || slices.Contains(developers, name) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(source, name))
		if err != nil {
			return nil, err
		}
		for _, m := range link.FindAllSubmatch(text, -1) {
			to := path.Join(path.Dir(name), string(m[1]))
			info, err := os.Stat(filepath.Join(source, to))
			if err == nil && info.Mode().IsRegular() && filepath.IsLocal(to) && path.Ext(to) != ".go" &&
				!slices.Contains(list, to) {
				list = append(list, to)
			}
		}
	}
	return list, nil
}

// link matches a link of Markdown; the group is its path.
var link = regexp.MustCompile(`\]\(([^)#:\s]+)[^)\s]*\)`)

// tarball packs the files into a folder of the given name. Nothing in it depends on the machine.
func tarball(folder string, files []packed, date time.Time) ([]byte, error) {
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	w := tar.NewWriter(z)
	for _, f := range files {
		text, err := os.ReadFile(f.file)
		if err != nil {
			return nil, err
		}
		h := &tar.Header{Name: folder + "/" + f.name, Mode: f.mode, Size: int64(len(text)), ModTime: date,
			Format: tar.FormatUSTAR}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := w.Write(text); err != nil {
			return nil, err
		}
	}
	err = errors.Join(w.Close(), z.Close())
	return b.Bytes(), err
}

// zipFile is tarball for Windows.
func zipFile(folder string, files []packed, date time.Time) ([]byte, error) {
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, f := range files {
		text, err := os.ReadFile(f.file)
		if err != nil {
			return nil, err
		}
		h := &zip.FileHeader{Name: folder + "/" + f.name, Method: zip.Deflate, Modified: date}
		h.SetMode(os.FileMode(f.mode))
		in, err := w.CreateHeader(h)
		if err != nil {
			return nil, err
		}
		if _, err := in.Write(text); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return b.Bytes(), err
}

// formula returns the Homebrew formula for the platforms that Homebrew has.
func formula(version, from string, built []platform) string {
	var b strings.Builder
	fmt.Fprintf(&b, `class Junction < Formula
  desc "Serve many MCP servers behind one MCP URL"
  homepage %q
  version %q
  license "Apache-2.0"
`, from, version)
	for _, system := range [][2]string{{"darwin", "macos"}, {"linux", "linux"}} {
		var inner strings.Builder
		for _, p := range built {
			if p.os == system[0] {
				cpu := map[string]string{"amd64": "intel", "arm64": "arm"}[p.arch]
				fmt.Fprintf(&inner, "    on_%s do\n      url %q\n      sha256 %q\n    end\n", cpu, from+"/"+p.archive,
					p.sum)
			}
		}
		if inner.Len() > 0 {
			fmt.Fprintf(&b, "\n  on_%s do\n%s  end\n", system[1], &inner)
		}
	}
	b.WriteString(`
  def install
    bin.install "junction", "junction-pack"
    generate_completions_from_executable(bin/"junction", "completion")
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/junction version")
  end
end
`)
	return b.String()
}
