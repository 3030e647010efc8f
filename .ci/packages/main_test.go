package main

import (
	"bytes"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
)

// TestUnitOfAPackage: the unit of the repository gets the paths of a package, and a unit without these
// lines is refused.
func TestUnitOfAPackage(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "cmd", "junction", "deploy", "junction.service"))
	if err != nil {
		t.Fatal(err)
	}
	unit, err := packagedUnit(string(text))
	if err != nil || strings.Contains(unit, "/usr/local") || !strings.Contains(unit, "ConfigurationDirectoryMode=0750") {
		t.Errorf("the unit is (%v)\n%s", err, unit)
	}
	if _, err := packagedUnit("[Service]\n"); err == nil {
		t.Error("a unit without a program is accepted")
	}
}

// TestImageOnABase: the image has the layers of the base below ours, its variables and our user. The base
// needs the digest that is there. The same files give the same bytes.
func TestImageOnABase(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"junction", "junction-pack"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	image, err := random.Image(100, 2)
	if err != nil {
		t.Fatal(err)
	}
	base := filepath.Join(t.TempDir(), "base")
	index := baseIndex(t, image)
	if _, err := layout.Write(base, index); err != nil {
		t.Fatal(err)
	}
	digest, err := index.Digest()
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	on := base + "@" + manifest.Manifests[0].Digest.String()
	var archives [2][]byte
	for n := range archives {
		r := &release{dir: t.TempDir(), scratch: t.TempDir(), version: "1.0.0", date: time.Unix(1e9, 0).UTC()}
		if err := r.image("image.tar", []program{{"amd64", dir}}, on); err != nil {
			t.Fatal(err)
		}
		if archives[n], err = os.ReadFile(filepath.Join(r.dir, "image.tar")); err != nil {
			t.Fatal(err)
		}
		all, err := layout.ImageIndexFromPath(filepath.Join(r.scratch, "image.tar"))
		if err != nil {
			t.Fatal(err)
		}
		m, err := all.IndexManifest()
		if err != nil || len(m.Manifests) != 1 || m.Manifests[0].Annotations["org.opencontainers.image.ref.name"] != "localhost/junction:1.0.0-base" {
			t.Fatalf("the archive has the entries %+v, %v", m, err)
		}
		if all, err = all.ImageIndex(m.Manifests[0].Digest); err != nil {
			t.Fatal(err)
		}
		if m, err = all.IndexManifest(); err != nil {
			t.Fatal(err)
		}
		made, err := all.Image(m.Manifests[0].Digest)
		if err != nil {
			t.Fatal(err)
		}
		config, err := made.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		layers, err := made.Layers()
		if err != nil || len(layers) != 3 || config.Config.User != user ||
			strings.Join(config.Config.Env, " ") != "A=b PATH=/base HOME=/var/cache/junction XDG_STATE_HOME=/var/lib" {
			t.Errorf("the image has %d layers (%v) and the configuration %+v", len(layers), err, config.Config)
		}
	}
	if !bytes.Equal(archives[0], archives[1]) {
		t.Error("two archives of the same files differ")
	}
	for _, other := range []string{base, base + "@sha256:00", base + "@" + digest.String()[:70] + "0"} {
		if _, err := baseImage(other, v1.Platform{OS: "linux", Architecture: "amd64"}); err == nil {
			t.Errorf("the base %s is accepted", other)
		}
	}
	if _, err := baseImage(on, v1.Platform{OS: "linux", Architecture: "arm64"}); err == nil {
		t.Error("a base for another processor is accepted")
	}
}

// TestAuthoritiesAreCertificates: the image on nothing trusts the authorities of Mozilla.
func TestAuthoritiesAreCertificates(t *testing.T) {
	n, rest := 0, authorities()
	for {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		n++
	}
	if n < 50 || len(rest) > 0 {
		t.Errorf("there are %d certificates and %d other bytes", n, len(rest))
	}
}

// baseIndex returns an index with the image as one for linux/amd64 with variables of its own.
func baseIndex(t *testing.T, image v1.Image) v1.ImageIndex {
	t.Helper()
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", "amd64"
	config.Config.Env = []string{"PATH=/base", "HOME=/root", "A=b"}
	if image, err = mutate.ConfigFile(image, config); err != nil {
		t.Fatal(err)
	}
	return mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: image,
		Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "amd64"}}})
}
