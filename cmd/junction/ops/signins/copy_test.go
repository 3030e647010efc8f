package signins

import (
	"context"
	"crypto"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"junction/auth/authtest"
	"junction/cmd/junction/base/certificate"
	"junction/cmd/junction/base/certificate/certificatetest"
	"junction/cmd/junction/ops/diagnose"
)

// TestBackupOfFilesNamesThoseOfTheRunningJunction: a service has another state folder than the operator. The
// command line has the key of the running Junction, and not an old key of the operator. Without a running one,
// the command warns.
func TestBackupOfFilesNamesThoseOfTheRunningJunction(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("paths have the name of a volume")
	}
	dir := t.TempDir()
	t.Setenv("XDG_STATE_HOME", filepath.Join(dir, "own"))
	stale, key := filepath.Join(dir, "own", "junction", "key"), filepath.Join(dir, "var lib", "key")
	for _, file := range []string{stale, key} {
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		mustWrite(t, file, "")
	}
	file := filepath.Join(dir, "config.yaml")
	answers := true
	admin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if !answers {
			http.Error(w, "", http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(diagnose.Running{File: file, URL: "http://127.0.0.1:1/mcp", PID: 1, User: "junction",
			Keeps: []string{key, filepath.Join(dir, "missing")}})
	}))
	t.Cleanup(admin.Close)
	mustWrite(t, file, "admin: "+strings.TrimPrefix(admin.URL, "http://")+"\nupstreams: { a: { url: http://127.0.0.1:1/mcp } }\n")
	t.Chdir(dir)
	got := runProgram(t, "", "storage", "backup", "b.db", "--config", "config.yaml")
	want := "(umask 077; tar -czf junction.tar.gz -C / " + strings.TrimPrefix(file, "/") + " '" + strings.TrimPrefix(key, "/") + "')\n"
	if got.code != 1 || !strings.Contains(got.stdout, want) || strings.Contains(got.stdout, "No Junction") ||
		!strings.Contains(got.stdout, "  (umask 077; tar -xpzf junction.tar.gz -C /)\n") {
		t.Errorf("%+v, want %q", got, want)
	}
	answers = false
	got = runProgram(t, "", "storage", "backup", "b.db", "--config", "config.yaml")
	if got.code != 1 || !strings.Contains(got.stdout, strings.TrimPrefix(stale, "/")) || !strings.Contains(got.stdout, "No Junction that serves the file answers") {
		t.Errorf("without a running Junction %+v", got)
	}
}

// TestBackupOfFilesNamesTheFilesOfTLS: they are not in the archive, and the command says so.
func TestBackupOfFilesNamesTheFilesOfTLS(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("XDG_STATE_HOME", dir)
	file := filepath.Join(dir, "config.yaml")
	cert, key := filepath.Join(dir, "c.pem"), filepath.Join(dir, "k.pem")
	mustWrite(t, file, "admin: \"\"\npublic_url: https://mcp.example.com\ntls: { listen: \":443\", cert_file: "+cert+", key_file: "+key+
		" }\nauth: { api_keys: [{ name: a, hash: \"sha256:"+strings.Repeat("1", 64)+"\" }] }\nupstreams: { a: { url: http://127.0.0.1:1/mcp } }\n")
	got := runProgram(t, "", "storage", "backup", "b.db", "--config", file)
	if got.code != 1 || !strings.Contains(got.stdout, "The files of tls are not in it") || !strings.Contains(got.stdout, ": "+cert+", "+key+"\n") {
		t.Errorf("%+v", got)
	}
}

// TestRestoreKeepsTheAudit: the printed command lines bring the configuration back, and leave what the audit has
// got since.
func TestRestoreKeepsTheAudit(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("paths have the name of a volume")
	}
	dir := t.TempDir()
	t.Setenv("XDG_STATE_HOME", dir)
	file, audit := filepath.Join(dir, "config.yaml"), filepath.Join(dir, "audit.jsonl")
	const before = "admin: \"\"\naudit: { file: audit.jsonl }\nupstreams: { a: { url: http://127.0.0.1:1/mcp } }\n"
	mustWrite(t, file, before)
	mustWrite(t, audit, "one\n")
	t.Chdir(dir)
	got := runProgram(t, "", "storage", "backup", "b.db", "--config", "config.yaml", "--json")
	var lines struct{ Backup, Restore, Audit string }
	if err := json.Unmarshal([]byte(got.stdout), &lines); err != nil || got.code != 1 || lines.Audit == "" {
		t.Fatalf("%+v: %v", got, err)
	}
	mustRunLine(t, lines.Backup)
	mustWrite(t, file, "{}")
	mustWrite(t, audit, "one\ntwo\n")
	mustRunLine(t, lines.Restore)
	for name, want := range map[string]string{file: before, audit: "one\ntwo\n"} {
		if text, err := os.ReadFile(name); err != nil || string(text) != want {
			t.Errorf("after the restore %s has %q, want %q (%v)", name, text, want, err)
		}
	}
}

// TestRestoreBringsTheCertificates: after a restore on a new machine, Junction has the certificate that it ordered, and
// orders none. All files and folders are for their owner only, also those above the restored ones.
func TestRestoreBringsTheCertificates(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("paths have the name of a volume")
	}
	dir := t.TempDir()
	t.Setenv("XDG_STATE_HOME", filepath.Join(dir, "state"))
	file, store := filepath.Join(dir, "conf", "config.yaml"), mustOpen(t, filepath.Join(dir, "state", "junction", "certificates"))
	if err := os.Mkdir(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	mustWrite(t, file, "admin: \"\"\npublic_url: https://"+certificatetest.Host+"\ntls: { listen: \":443\", acme: {} }\n"+
		"auth: { api_keys: [{ name: a, hash: \"sha256:"+strings.Repeat("1", 64)+"\" }] }\nupstreams: { a: { url: http://127.0.0.1:1/mcp } }\n")
	made := certificatetest.MustSign(t, nil, "leaf", 90, certificatetest.ForHost)
	err := store.Save(certificatetest.Host, &tls.Certificate{Certificate: [][]byte{made.Cert.Raw}, PrivateKey: made.Key, Leaf: made.Cert})
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	got := runProgram(t, "", "storage", "backup", "b.db", "--config", file, "--json")
	var lines struct{ Backup, Restore string }
	if err := json.Unmarshal([]byte(got.stdout), &lines); err != nil || got.code != 1 {
		t.Fatalf("%+v: %v", got, err)
	}
	mustRunLine(t, lines.Backup)
	for _, name := range []string{"state", "conf"} {
		if err := os.RemoveAll(name); err != nil {
			t.Fatal(err)
		}
	}
	mustRunLine(t, "umask 022; "+lines.Restore)
	var seen []string
	for _, root := range []string{"conf", "state"} {
		filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
			if err != nil {
				t.Fatal(err)
			}
			if info, _ := e.Info(); info.Mode().Perm()&0o077 != 0 {
				t.Errorf("others may read %s (%v)", path, info.Mode())
			}
			seen = append(seen, filepath.Base(path))
			return nil
		})
	}
	if !slices.Contains(seen, "junction") || !slices.Contains(seen, certificatetest.Host+".pem") {
		t.Errorf("restored are %q", seen)
	}
	var kept certificate.Kept
	orders := certificate.Orders{Host: func() string { return certificatetest.Host }, Kept: &kept, Log: authtest.Log(t, new(authtest.Text)),
		Store: mustOpen(t, filepath.Join(dir, "state", "junction", "certificates")),
		Order: func(context.Context, crypto.Signer, string) (*tls.Certificate, error) {
			t.Error("a certificate is ordered")
			return nil, errors.New("none")
		}}
	orders.Load()
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // Run ends after the first step, which orders if there is no certificate
	orders.Run(ctx)
	if c, err := kept.Certificate(nil); err != nil || !made.Cert.Equal(c.Leaf) {
		t.Errorf("the certificate in use is %+v (%v)", c, err)
	}
}

func mustOpen(t *testing.T, dir string) *certificate.Store {
	t.Helper()
	store, err := certificate.OpenStore(dir, certificate.Directory)
	if err != nil {
		t.Fatal(err)
	}
	return store
}

func mustRunLine(t *testing.T, line string) {
	t.Helper()
	if out, err := exec.Command("sh", "-c", line).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", line, err, out)
	}
}
