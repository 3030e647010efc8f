//go:build unix

package record

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"junction/auth/authtest"
	"junction/cmd/junction/base/config"
)

func TestAuditRefusesWhatIsNoFile(t *testing.T) {
	dir := t.TempDir()
	fifo := filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Skip(err)
	}
	for file, want := range map[string]string{
		dir:                        "it is no regular file",
		fifo:                       "it is no regular file",
		filepath.Join(dir, "a/b"):  "no such file or directory",
		filepath.Join(fifo, "a/b"): "not a directory",
	} {
		a, err := startAudit(config.Audit{File: file}, nil, authtest.Log(t))
		if err == nil {
			a.Close()
		}
		if want := "audit.file: " + file + ": " + want + "; "; err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v, want %s", file, err, want)
		}
	}
}
