package serve

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"junction/auth/authtest"
	"junction/cmd/junction/base/certificate/certificatetest"
	"junction/cmd/junction/base/config"
	"junction/cmd/junction/base/runfile"
)

// TestWhatPreventsAStartIsOneList: junction check, and the start of a service, find each condition outside of the
// file with which Junction does not start, at the key of it, and change nothing.
func TestWhatPreventsAStartIsOneList(t *testing.T) {
	m := newTeam(t)
	m.mustWrite(t, "other.example.com", 90)
	dir := t.TempDir()
	bad := filepath.Join(dir, "bad")
	mustWrite(t, bad, "nonsense\n")
	const one = "upstreams: { a: { command: [junction, demo] } }\n"
	stores := "upstreams:\n  a: { url: https://a.example/mcp, auth: { mode: oauth } }\n"
	for name, test := range map[string]struct{ text, key, why string }{
		"certificate of another host": {m.text, "tls.cert_file", "is not for " + certificatetest.Host},
		"no certificate":              {strings.ReplaceAll(m.text, "/cert.pem", "/gone.pem"), "tls.cert_file", "cannot read "},
		"no key":                      {strings.ReplaceAll(m.text, m.dir+"/key.pem", bad), "tls.key_file", "has no private key"},
		"no folder of the audit":      {"audit: { file: " + dir + "/none/audit.jsonl }\n" + one, "audit.file", "there is no folder " + dir + "/none"},
		"broken pins":                 {"pins: " + bad + "\n" + one, "pins", "read the pins"},
		"no key of sessions":          {"sessions: { key_file: " + bad + " }\n" + one, "sessions.key_file", "the file has no key"},
		"no key of the storage":       {"storage: { key_file: " + bad + " }\n" + stores, "storage.key_file", bad},
		"no folder of the storage":    {"storage: { dsn: " + dir + "/none/j.db }\n" + stores, "storage.dsn", "there is no folder"},
		"no authority of ours":        {"outbound: { ca_file: " + bad + " }\n" + stores, "outbound.ca_file", "there is no certificate in it"},
		"all is well":                 {"audit: { file: " + dir + "/audit.jsonl }\n" + stores, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "config.yaml")
			mustWrite(t, file, addresses+test.text)
			o := options{file: file, stdout: io.Discard, stderr: authtest.Searched(t, "the log", io.Discard),
				getenv: environment(map[string]string{"XDG_STATE_HOME": t.TempDir()})}
			report, err := config.Inspect(file, o.getenv, func(c *config.Config) []config.Problem { return obstacles(c, o) })
			if err != nil {
				t.Fatal(err)
			}
			is := func(p config.Problem) bool {
				return p.Path == test.key && p.Line > 0 && strings.Contains(p.Text, test.why)
			}
			if want := test.key != ""; slices.ContainsFunc(report.Rejecting, is) != want || (report.Err() != nil) != want ||
				slices.ContainsFunc(report.Warnings, is) {
				t.Errorf("check finds %v and warns of %v, want %s: %s", report.Rejecting, report.Warnings, test.key, test.why)
			}
			_, err = checkStart(o, runfile.Place{})
			if (err != nil) != (test.key != "") || err != nil && !strings.Contains(err.Error(), test.why) {
				t.Errorf("a service would start: %v", err)
			}
			if _, err := os.Stat(filepath.Join(dir, "audit.jsonl")); err == nil {
				t.Error("the audit was begun")
			}
			p, err := open(o)
			if err == nil {
				p.close()
				os.Remove(filepath.Join(dir, "audit.jsonl"))
			}
			if (err != nil) != (test.key != "") {
				t.Errorf("Junction starts: %v", err)
			}
		})
	}
}
