package main

import (
	"bytes"
	"cmp"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"time"
)

// component is a program or a module (CycloneDX 1.6).
type component struct {
	Type    string `json:"type"`
	Ref     string `json:"bom-ref"`
	Name    string `json:"name"`
	Version string `json:"version"`
	Hashes  []hash `json:"hashes,omitempty"`
	PURL    string `json:"purl"`
}

type hash struct {
	Algorithm string `json:"alg"`
	Content   string `json:"content"`
}

// billOfMaterials lists the modules that are in a program, as go has recorded them in it.
func billOfMaterials(info *buildinfo.BuildInfo, version string, date time.Time) ([]byte, error) {
	self := newComponent("application", info.Main.Path, "v"+version)
	libraries := []component{newComponent("library", "std", strings.TrimPrefix(info.GoVersion, "go"))}
	for _, m := range info.Deps {
		sum := m.Sum
		if m.Replace != nil {
			m, sum = m.Replace, m.Replace.Sum
		}
		c := newComponent("library", m.Path, m.Version)
		if text, ok := strings.CutPrefix(sum, "h1:"); ok {
			raw, err := base64.StdEncoding.DecodeString(text)
			if err != nil {
				return nil, fmt.Errorf("checksum of %s: %w", m.Path, err)
			}
			c.Hashes = []hash{{"SHA-256", hex.EncodeToString(raw)}}
		}
		libraries = append(libraries, c)
	}
	type dependency struct {
		Ref  string   `json:"ref"`
		Uses []string `json:"dependsOn"`
	}
	uses := dependency{Ref: self.Ref}
	for _, l := range libraries {
		uses.Uses = append(uses.Uses, l.Ref)
	}
	type metadata struct {
		Timestamp string    `json:"timestamp"`
		Component component `json:"component"`
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	err := e.Encode(struct {
		Format       string       `json:"bomFormat"`
		Spec         string       `json:"specVersion"`
		Version      int          `json:"version"`
		Metadata     metadata     `json:"metadata"`
		Components   []component  `json:"components"`
		Dependencies []dependency `json:"dependencies"`
	}{"CycloneDX", "1.6", 1, metadata{date.Format(time.RFC3339), self}, libraries, []dependency{uses}})
	return b.Bytes(), err
}

func newComponent(kind, path, version string) component {
	version = cmp.Or(version, "unknown")
	purl := "pkg:golang/" + path + "@" + url.PathEscape(version)
	return component{Type: kind, Ref: purl, Name: path, Version: version, PURL: purl}
}
