package clients

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// SecretFiles stores each secret in its own file, readable only by the owner, in the folder secrets
// beside a configuration file.
type SecretFiles struct {
	dir     string
	created []string
	madeDir bool
}

// SecretsOf returns the SecretFiles of a configuration file.
func SecretsOf(file string) *SecretFiles {
	return &SecretFiles{dir: filepath.Join(filepath.Dir(file), "secrets")}
}

// Created returns the files that Store has created.
func (s *SecretFiles) Created() []string { return s.created }

var notInFileName = regexp.MustCompile(`[^A-Za-z0-9_.-]+`)

// Store returns the path of a file with the secret, relative to the configuration. It does not
// overwrite a file: it uses an existing file with the same content, or chooses another name.
func (s *SecretFiles) Store(upstream, label, secret string) (string, error) {
	if err := os.Mkdir(s.dir, 0o700); err == nil {
		s.madeDir = true
	} else if !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	label = strings.Trim(notInFileName.ReplaceAllString(label, "-"), "-.")
	base := upstream + "." + label[:min(len(label), 64)]
	content := []byte(secret + "\n")
	for n := 1; ; n++ {
		name := base
		if n > 1 {
			name = fmt.Sprintf("%s-%d", base, n)
		}
		file := filepath.Join(s.dir, name)
		f, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if errors.Is(err, fs.ErrExist) && n < 1000 {
			if has, err := ReadFile(file); err == nil && bytes.Equal(has, content) {
				return "secrets/" + name, nil
			}
			continue
		}
		if err != nil {
			return "", err
		}
		s.created = append(s.created, file)
		_, err = f.Write(content)
		return "secrets/" + name, errors.Join(err, f.Close())
	}
}

// Discard removes the new files that text does not refer to: those of skipped servers.
func (s *SecretFiles) Discard(text []byte) {
	for _, file := range s.created {
		if !bytes.Contains(text, []byte("${file:secrets/"+filepath.Base(file)+"}")) {
			os.Remove(file)
		}
	}
	os.Remove(s.dir) // if it is empty
}

// Undo removes everything that Store has created.
func (s *SecretFiles) Undo() {
	for _, file := range s.created {
		os.Remove(file)
	}
	if s.madeDir {
		os.Remove(s.dir)
	}
}
