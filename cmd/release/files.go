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
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// write writes a result, and remembers its checksum.
func (r *release) write(name string, data []byte) error {
	sum := sha256.Sum256(data)
	r.sums[name] = hex.EncodeToString(sum[:])
	return os.WriteFile(filepath.Join(r.dir, name), data, 0o644)
}

// checksums writes the file that sha256sum --check reads, and prints it.
func (r *release) checksums(stdout io.Writer) error {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(r.sums)) {
		fmt.Fprintf(&b, "%s  %s\n", r.sums[name], name)
	}
	if _, err := io.WriteString(stdout, b.String()); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.dir, "checksums.txt"), []byte(b.String()), 0o644)
}

// mode is that of a file in an archive: the first ones are the programs.
func mode(i int) int64 {
	if i < len(programs) {
		return 0o755
	}
	return 0o644
}

// tarball packs the files into a folder of the given name. Nothing in it depends on the machine.
func tarball(folder string, files []string, date time.Time) ([]byte, error) {
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	w := tar.NewWriter(z)
	for i, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		h := &tar.Header{Name: folder + "/" + filepath.Base(file), Mode: mode(i), Size: int64(len(text)), ModTime: date,
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
func zipFile(folder string, files []string, date time.Time) ([]byte, error) {
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for i, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		h := &zip.FileHeader{Name: folder + "/" + filepath.Base(file), Method: zip.Deflate, Modified: date}
		h.SetMode(os.FileMode(mode(i)))
		f, err := w.CreateHeader(h)
		if err != nil {
			return nil, err
		}
		if _, err := f.Write(text); err != nil {
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
