package clients

import (
	"crypto/x509"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"junction/cmd/junction/base/certificate/certificatetest"
)

// TestTheEntryHasTheCertificates: junction stdio that a client starts finds the certificates that the shell of
// connect names, and disconnect makes the file what it was.
func TestTheEntryHasTheCertificates(t *testing.T) {
	for _, c := range All() {
		t.Run(c.ID, func(t *testing.T) {
			o := mustOutfit(t, userFiles)
			file := filepath.Join(o.Home.Dir, "ca.pem")
			if err := os.WriteFile(file, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			shell := map[string]string{"SSL_CERT_FILE": file, "SSL_CERT_DIR": ""}
			o.Home.Getenv = environment(shell)
			p := mustPlace(t, o, c.ID)
			before := mustRead(t, p.File)
			target := testTarget
			target.URL, target.KeyFile = "https://mcp.example.com/mcp", "/key"
			target.Own = []string{target.URL}
			target.Env = o.Trust(p, target)
			mustConnect(t, o, p, target)
			servers, errs := o.Home.Read([]Place{p})
			if len(errs) > 0 {
				t.Fatal(errs)
			}
			var got string
			for _, s := range servers {
				if s.Name == target.Name {
					got = s.Entry.Env["SSL_CERT_FILE"].Expand(o.Home.Getenv)
				}
			}
			if got != file {
				t.Errorf("the command has SSL_CERT_FILE=%q, want %q\n%s", got, file, mustRead(t, p.File))
			}
			delete(shell, "SSL_CERT_FILE") // a later connect in another shell
			target.Env = o.Trust(p, target)
			if again := mustConnect(t, o, p, target); again.Changed {
				t.Errorf("another shell has changed the entry:\n%s", mustRead(t, p.File))
			}
			if _, err := o.Disconnect(p, target); err != nil || mustRead(t, p.File) != before {
				t.Errorf("disconnect = %v, and leaves\n%s", err, mustRead(t, p.File))
			}
		})
	}
}

// TestOnlyAnEntryThatNeedsThemHasTheCertificates: an entry without a command, with http, or of a project has no
// variables. Paths begin at the root, and those that do not exist are left out.
func TestOnlyAnEntryThatNeedsThemHasTheCertificates(t *testing.T) {
	o := mustOutfit(t, map[string]string{".cursor/mcp.json": "{}", "certs/a.pem": "", "repo/x": ""})
	t.Chdir(o.Home.Dir)
	o.Home.Getenv = environment(map[string]string{"SSL_CERT_FILE": "gone.pem", "SSL_CERT_DIR": "certs:none", "NODE_EXTRA_CA_CERTS": "certs/a.pem"})
	certs := map[string]string{"SSL_CERT_DIR": filepath.Join(o.Home.Dir, "certs")}
	c, err := Lookup("cursor")
	if err != nil {
		t.Fatal(err)
	}
	project := o.Home
	project.Project = filepath.Join(o.Home.Dir, "repo")
	ofProject, _ := project.Place(c, Project)
	for name, test := range map[string]struct {
		place  Place
		target Target
		want   map[string]string
	}{
		"a command":       {mustPlace(t, o, "cursor"), Target{URL: "https://x/mcp", KeyFile: "/key"}, certs},
		"a desktop":       {mustPlace(t, o, "claude-desktop"), Target{URL: "https://x/mcp"}, certs},
		"a URL":           {mustPlace(t, o, "cursor"), Target{URL: "https://x/mcp"}, nil},
		"http":            {mustPlace(t, o, "cursor"), Target{URL: "http://127.0.0.1/mcp", KeyFile: "/key"}, nil},
		"in a repository": {ofProject, Target{URL: "https://x/mcp", KeyFile: "/key"}, nil},
	} {
		if got := o.Trust(test.place, test.target); !maps.Equal(got, test.want) {
			t.Errorf("%s has %v, want %v", name, got, test.want)
		}
	}
}

// TestTheCertificateOfAServerIsNoCA: only who names a certificate that is the server's and a CA in one is told to
// make two. With a CA that has signed the server's certificate, all is well.
func TestTheCertificateOfAServerIsNoCA(t *testing.T) {
	both := certificatetest.MustSign(t, nil, "both", 30, func(c *x509.Certificate) {
		certificatetest.AsAuthority(c)
		certificatetest.ForHost(c)
	})
	ca := certificatetest.MustSign(t, nil, "ca", 30, certificatetest.AsAuthority)
	server := certificatetest.MustSign(t, ca, "server", 30, certificatetest.ForHost)
	codex, err := Lookup("codex")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, text string
		note       bool
	}{
		{"both in one", certificatetest.PEM(ca, both), true},
		{"a CA", certificatetest.PEM(ca), false},
		{"a CA and the server's", certificatetest.PEM(server, ca), false},
	} {
		file := filepath.Join(t.TempDir(), "certs.pem")
		if err := os.WriteFile(file, []byte(tt.text), 0o600); err != nil {
			t.Fatal(err)
		}
		notes := codex.TrustNotes(Target{URL: "https://" + certificatetest.Host + "/mcp"},
			environment(map[string]string{sslCerts: file}))
		said := strings.Contains(strings.Join(notes, " "), "give the server a certificate that a CA has signed")
		if said != tt.note || len(notes) > 1 || !tt.note && len(notes) > 0 {
			t.Errorf("%s: the notes are %q", tt.name, notes)
		}
	}
}
