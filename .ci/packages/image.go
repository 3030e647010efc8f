package main

import (
	"archive/tar"
	"bytes"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// user is the one of our images, which has no rights. It needs no line in /etc/passwd.
const (
	user = "65532:65532"
	uid  = 65532
)

// image writes an OCI archive with an image for each program: on nothing, or on a base.
func (r *release) image(file string, programs []program, on string) error {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, p := range programs {
		platform := v1.Platform{OS: "linux", Architecture: p.arch}
		base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
		if on != "" {
			var err error
			if base, err = baseImage(on, platform); err != nil {
				return err
			}
		}
		image, err := r.add(base, p, on == "")
		if err != nil {
			return err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: &platform}})
	}
	// An engine loads an archive with one entry, which may be for several platforms, and takes its name from there.
	dir, called := filepath.Join(r.scratch, file), "localhost/junction:"+r.version
	if on != "" {
		called += "-base"
	}
	whole, err := layout.Write(dir, empty.Index)
	if err == nil {
		err = whole.AppendIndex(index, layout.WithAnnotations(map[string]string{
			"org.opencontainers.image.ref.name": called, "io.containerd.image.name": called}))
	}
	if err != nil {
		return err
	}
	out, err := os.Create(filepath.Join(r.dir, file))
	if err != nil {
		return err
	}
	return errors.Join(r.archive(out, dir), out.Close())
}

// baseImage returns the image of a platform. The digest is part of its name, so that the base is known.
func baseImage(on string, platform v1.Platform) (v1.Image, error) {
	folder, digest, ok := strings.Cut(on, "@")
	hash, err := v1.NewHash(digest)
	if !ok || err != nil {
		return nil, fmt.Errorf("the base needs its digest: write NAME@sha256:…")
	}
	var index v1.ImageIndex
	if info, err := os.Stat(folder); err == nil && info.IsDir() {
		all, err := layout.ImageIndexFromPath(folder)
		if err != nil {
			return nil, err
		}
		if image, err := all.Image(hash); err == nil {
			return forPlatform(image, platform)
		}
		if index, err = all.ImageIndex(hash); err != nil {
			return nil, err
		}
	} else {
		ref, err := name.NewDigest(on)
		if err != nil {
			return nil, err
		}
		image, err := remote.Image(ref, remote.WithPlatform(platform))
		if err != nil {
			return nil, err
		}
		return forPlatform(image, platform)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return nil, err
	}
	for _, m := range manifest.Manifests {
		if m.Platform != nil && m.Platform.Satisfies(platform) {
			return index.Image(m.Digest)
		}
	}
	return nil, fmt.Errorf("the base has no image for %s", platform)
}

// forPlatform rejects an image for another processor.
func forPlatform(image v1.Image, platform v1.Platform) (v1.Image, error) {
	config, err := image.ConfigFile()
	if err == nil && (config.Architecture != platform.Architecture || config.OS != platform.OS) {
		err = fmt.Errorf("the base is for %s/%s, want %s", config.OS, config.Architecture, platform)
	}
	return image, err
}

// add adds our layer to an image, and how to start it.
func (r *release) add(base v1.Image, p program, roots bool) (v1.Image, error) {
	text, err := r.layer(p, roots)
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(text)), nil },
		tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	image, err := mutate.Append(base, mutate.Addendum{Layer: layer, MediaType: types.OCILayer,
		History: v1.History{CreatedBy: "junction " + r.version, Created: v1.Time{Time: r.date}}})
	if err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = "linux", p.arch, v1.Time{Time: r.date}
	c := &config.Config
	c.User, c.WorkingDir, c.Cmd = user, "/var/cache/junction", nil
	c.Entrypoint = []string{"/usr/local/bin/junction"}
	c.Env = environment(c.Env)
	c.Volumes = map[string]struct{}{"/var/lib/junction": {}, "/var/cache/junction": {}}
	if c.Labels == nil {
		c.Labels = map[string]string{}
	}
	c.Labels["org.opencontainers.image.title"] = "junction"
	c.Labels["org.opencontainers.image.version"] = r.version
	c.Labels["org.opencontainers.image.licenses"] = "Apache-2.0"
	return mutate.ConfigFile(image, config)
}

// environment returns the variables of a base with ours: state and the caches of npx and uvx are volumes.
func environment(base []string) []string {
	var list []string
	path := "PATH=/usr/local/bin"
	for _, v := range base {
		switch word, _, _ := strings.Cut(v, "="); word {
		case "PATH":
			path = v
		case "HOME", "XDG_STATE_HOME":
		default:
			list = append(list, v)
		}
	}
	return append(list, path, "HOME=/var/cache/junction", "XDG_STATE_HOME=/var/lib")
}

// layer returns the tar of our files.
func (r *release) layer(p program, roots bool) ([]byte, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	folder := func(name string, owner int, mode int64) error {
		return w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: mode, Uid: owner, Gid: owner,
			ModTime: r.date, Format: tar.FormatUSTAR})
	}
	file := func(name string, mode int64, text []byte) error {
		err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(text)),
			ModTime: r.date, Format: tar.FormatUSTAR})
		if err == nil {
			_, err = w.Write(text)
		}
		return err
	}
	var err error
	if roots { // a base has these folders, and perhaps as links
		for _, name := range []string{"etc", "etc/ssl", "etc/ssl/certs", "usr", "usr/local", "usr/local/bin", "var",
			"var/cache", "var/lib"} {
			err = errors.Join(err, folder(name, 0, 0o755))
		}
		err = errors.Join(err, w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: "tmp/", Mode: 0o1777, ModTime: r.date,
			Format: tar.FormatUSTAR}), file("etc/ssl/certs/ca-certificates.crt", 0o644, authorities()))
	}
	for _, name := range []string{"junction", "junction-pack"} {
		text, readErr := os.ReadFile(filepath.Join(p.folder, name))
		if readErr != nil {
			return nil, readErr
		}
		err = errors.Join(err, file("usr/local/bin/"+name, 0o755, text))
	}
	err = errors.Join(err, folder("var/cache/junction", uid, 0o700), folder("var/lib/junction", uid, 0o700), w.Close())
	return b.Bytes(), err
}

// authorities returns the certificate authorities of Mozilla, of the version in go.mod, so that they do
// not depend on the machine. Those that are trusted with a constraint are left out: the format has none.
func authorities() []byte {
	var b bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			_ = pem.Encode(&b, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate})
		}
	}
	return b.Bytes()
}

// archive writes the folder of an OCI layout as a tar, in the order of the names.
func (r *release) archive(out io.Writer, dir string) error {
	w := tar.NewWriter(out)
	err := filepath.WalkDir(dir, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		rest, err := filepath.Rel(dir, file)
		if err != nil {
			return err
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: filepath.ToSlash(rest), Mode: 0o644,
			Size: int64(len(text)), ModTime: r.date, Format: tar.FormatUSTAR}); err != nil {
			return err
		}
		_, err = w.Write(text)
		return err
	})
	return errors.Join(err, w.Close())
}
