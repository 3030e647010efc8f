package service

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestBackgroundKeepsPathAndCertificates: a start from a shell with a shorter PATH, such as that of cron, has the folders
// of the first start, too, behind its own and without those that have gone. It also has the certificates.
func TestBackgroundKeepsPathAndCertificates(t *testing.T) {
	tools, gone, state := t.TempDir(), filepath.Join(t.TempDir(), "gone"), t.TempDir()
	h := &Host{OS: "linux", Home: t.TempDir(), Getenv: func(name string) (string, bool) {
		return state, name == "XDG_STATE_HOME"
	}}
	pathOf := func(u *Unit) string {
		for _, v := range h.environ(u) {
			if path, ok := strings.CutPrefix(v, "PATH="); ok {
				return path
			}
		}
		return ""
	}
	join := func(dirs ...string) string { return strings.Join(dirs, string(filepath.ListSeparator)) }
	if err := os.Mkdir(gone, 0o700); err != nil {
		t.Fatal(err)
	}
	ca := filepath.Join(tools, "ca.pem")
	if err := os.WriteFile(ca, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	first := &Unit{Name: "junction", Env: []string{"HTTPS_PROXY=http://proxy", "NODE_EXTRA_CA_CERTS=" + ca,
		"PATH=" + join(tools, gone, "/bin"), "PIP_CERT=" + filepath.Join(gone, "ca.pem"), "SSL_CERT_FILE=" + ca}}
	if err := h.keep(first); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(gone); err != nil {
		t.Fatal(err)
	}
	second := &Unit{Name: "junction", Env: []string{"LANG=C", "PATH=/bin"}}
	if got, want := pathOf(second), join("/bin", tools); got != want {
		t.Errorf("the second start has PATH %q, want %q", got, want)
	}
	if err := h.keep(second); err != nil { // the third start has what the first one had
		t.Fatal(err)
	}
	third := &Unit{Name: "junction", Env: []string{"LANG=C", "PATH=/bin", "SSL_CERT_FILE=/own.pem"}}
	if got, want := h.environ(third), []string{"LANG=C", "SSL_CERT_FILE=/own.pem", "NODE_EXTRA_CA_CERTS=" + ca,
		"PATH=" + join("/bin", tools)}; !slices.Equal(got, want) {
		t.Errorf("the third start has %q, want %q", got, want)
	}
	if got := pathOf(&Unit{Name: "other", Env: second.Env}); got != "/bin" {
		t.Errorf("another service has PATH %q", got)
	}
}
