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

	"junction/cmd/junction/base/revision"
	"junction/upstream/files"
)

// SecretFiles stores each secret in its own file, readable only by the owner, in the folder secrets
// beside a configuration file.
type SecretFiles struct {
	// Note is called with the name of each file before Store creates it; nil notes nothing.
	Note    func(file string) error
	dir     string
	created []string
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
	if err := os.Mkdir(s.dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("cannot create the folder %s: %w", s.dir, files.Reason(err))
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
		if _, err := os.Lstat(file); s.Note != nil && errors.Is(err, fs.ErrNotExist) {
			if err := s.Note(file); err != nil {
				return "", err
			}
		}
		err := revision.Create(file, content)
		if errors.Is(err, fs.ErrExist) && n < 1000 {
			if has, err := revision.Read(file); err == nil && bytes.Equal(has, content) {
				return "secrets/" + name, nil
			}
			continue
		}
		if err != nil {
			return "", fmt.Errorf("cannot write %s: %w", file, files.Reason(err))
		}
		s.created = append(s.created, file)
		return "secrets/" + name, nil
	}
}

// Discard removes the new files that text, the configuration, does not refer to. Without a text it
// removes all of them.
func (s *SecretFiles) Discard(text []byte) {
	for _, file := range s.created {
		if !bytes.Contains(text, []byte("${file:secrets/"+filepath.Base(file)+"}")) {
			os.Remove(file)
		}
	}
	os.Remove(s.dir) // if it is empty
}
