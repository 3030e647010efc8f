package signins

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"junction/auth"
	"junction/cmd/junction/base/config"
)

// TestKeysCreate makes keys and puts what it prints into a file, as a person would.
func TestKeysCreate(t *testing.T) {
	for _, args := range []string{
		"ci", "ci --expires 90d", "ci --expires 2999-06-30", "ci --expires 2999-06-30T12:00:00+02:00", "ci --cidr 10.0.0.0/8",
		"ci --cidr 10.0.0.0/8 --cidr 2001:db8::/32 --expires 1d", "ci --cidr 10.0.0.0/8,192.0.2.0/24", "null", "8080", "1e3", "-x@y.z", "@me", "true", "~_.",
	} {
		if strings.HasPrefix(args, "-") {
			args = "-- " + args
		}
		t.Run(args, func(t *testing.T) {
			if strings.HasPrefix(args, "~") {
				if got := runProgram(t, "", "keys", "create", args); got.code != 2 || got.stdout != "" {
					t.Errorf("the name %s gives %+v", args, got)
				}
				return
			}
			made := runProgram(t, "", append([]string{"keys", "create"}, strings.Fields(args)...)...)
			if made.code != 0 || strings.Count(made.stdout, "\n") != 1 {
				t.Fatalf("keys create gave %+v", made)
			}
			key := strings.TrimSuffix(made.stdout, "\n")
			hash, err := auth.HashKey(key)
			if err != nil {
				t.Fatalf("%q: %v", key, err)
			}
			if auth.HoldsKey(made.stderr) {
				t.Errorf("the entry shows the key: %s", made.stderr)
			}
			c := mustLoad(t, "auth:\n  api_keys:\n"+indent(made.stderr)+"upstreams: { a: { command: [prog] } }\n")
			got := c.Auth.APIKeys
			fields := strings.Fields(strings.TrimPrefix(args, "-- "))
			if len(got) != 1 || got[0].Name != fields[0] || got[0].Hash != hash || len(c.Auth.Validate()) > 0 {
				t.Fatalf("the entry means %+v, want %s with %s\n%s", got, fields[0], hash, made.stderr)
			}
			wantCIDRs := strings.Count(args, "/")
			if got[0].Expires.IsZero() == strings.Contains(args, "--expires") || len(got[0].CIDRs) != wantCIDRs {
				t.Errorf("the entry of keys create %s means %+v", args, got[0])
			}
			again := runProgram(t, key+"\n", "keys", "hash")
			if again.code != 0 || again.stdout != hash.String()+"\n" || again.stderr != "" {
				t.Errorf("keys hash gave %+v, want %s", again, hash)
			}
		})
	}
}

// indent puts lines below a key of a YAML file.
func indent(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString("    " + line)
	}
	return b.String()
}

func TestKeysUsage(t *testing.T) {
	key := auth.NewKey()
	for _, tt := range []struct {
		args, stdin string
		code        int
		stderr      string
	}{
		{"keys make", "", 2, "there is no command keys make"},
		{"keys " + key, "", 2, "there is no command keys jct_key_…;"},
		{"keys create", "", 2, "keys create needs one name"},
		{"keys create a b", "", 2, "keys create needs one name"},
		{"keys create a/b", "", 2, "the name must be 1 to 64 of"},
		{"keys create " + key[8:40] + key, "", 2, "the name must be 1 to 64 of"},
		{"keys create " + key[:60], "", 2, "the name must be 1 to 64 of"},
		{"keys create a --expires 0d", "", 2, "--expires 0d: must be a number of days, such as 90d"},
		{"keys create a --expires -1d", "", 2, "--expires -1d: must be a number of days, such as 90d"},
		{"keys create a --expires soon", "", 2, "--expires soon: must be a number of days, such as 90d, a day, such as 2027-06-30, or a time"},
		{"keys create a --expires 2020-06-30", "", 2, "--expires 2020-06-30: is in the past"},
		{"keys create a --cidr 10.0.0.1", "", 2, "--cidr 10.0.0.1: must be a network; write 10.0.0.1/32 for this one address"},
		{"keys create a --cidr " + key, "", 2, "--cidr jct_key_…: must be a network"},
		{"keys hash " + key, "", 2, "keys hash reads the key from standard input"},
		{"keys hash", "", 1, "this is not a key"},
		{"keys hash", key[:65], 1, "this is not a key"},
		{"keys hash", key[:62] + mistyped(key[62:]), 1, "the key is mistyped: its last 6 characters are check digits"},
		{"keys hash", key + "\n" + key, 1, "this is not a key"},
	} {
		got := runProgram(t, tt.stdin, strings.Fields(tt.args)...)
		if got.code != tt.code || got.stdout != "" || !strings.Contains(got.stderr, tt.stderr) || auth.HoldsKey(got.stderr) {
			t.Errorf("%s gave %+v, want %d and %q", auth.Redact(tt.args), got, tt.code, tt.stderr)
		}
	}
}

// mistyped returns other characters of a key.
func mistyped(end string) string {
	if strings.HasPrefix(end, "0") {
		return "1" + end[1:]
	}
	return "0" + end[1:]
}

func TestExpiry(t *testing.T) {
	now := time.Date(2026, 11, 21, 7, 30, 15, 500, time.FixedZone("", 3600))
	for text, want := range map[string]string{
		"90d": "2027-02-19T06:30:15Z", "1d": "2026-11-22T06:30:15Z", "2026-11-21": "2026-11-21", "2026-11-21T06:30:16Z": "2026-11-21T06:30:16Z",
		"2026-11-20": "", "2026-11-21T06:30:15Z": "", "d": "", "1.5d": "", "99999d": "",
	} {
		if got, err := expiry(text, now); got != want || (err == nil) != (want != "") {
			t.Errorf("expiry(%s) = %q, %v; want %q", text, got, err, want)
		}
	}
}

// TestKeysOfTheFile lists the keys of a file, and says how one is revoked.
func TestKeysOfTheFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.yaml")
	key := func(n string) string { return `hash: "sha256:` + strings.Repeat(n, 64) + `"` }
	mustWrite(t, file, "auth:\n  api_keys:\n    - { name: ci, "+key("a")+", cidrs: [10.0.0.0/8, 192.0.2.0/24], expires: 2999-06-30 }\n    - name: old\n      "+key("b")+
		"\n      expires: 2020-01-01\n    - { name: ci, "+key("c")+" }\nupstreams: { a: { command: [prog] } }\n")
	want := `NAME  ID        LINE  GOOD FROM                EXPIRES
ci    aaaaaaaa  3     10.0.0.0/8 192.0.2.0/24  2999-07-01T00:00:00Z
old   bbbbbbbb  4     anywhere                 2020-01-02T00:00:00Z (expired)
ci    cccccccc  7     anywhere                 never
`
	if got := runProgram(t, "", "keys", "list", "--config", file); got.code != 0 || got.stdout != want {
		t.Errorf("keys list says %+v, want\n%s", got, want)
	}
	got := runProgram(t, "", "keys", "list", "-o", "json", "--config", file)
	var list struct{ Keys []keyJSON }
	if err := json.Unmarshal([]byte(got.stdout), &list); err != nil || len(list.Keys) != 3 || !list.Keys[1].Expired || list.Keys[0].CIDRs[1] != "192.0.2.0/24" || list.Keys[2].Line != 7 {
		t.Errorf("keys list says %+v, %v", got, err)
	}
	ruled := filepath.Join(t.TempDir(), "ruled.yaml")
	mustWrite(t, ruled, "auth:\n  api_keys:\n    - { name: ci, "+key("a")+" }\n    - { name: ann, "+key("b")+" }\nupstreams: { a: { command: [prog] } }\n"+
		"policies:\n  - { name: builds, match: { key: ci } }\n  - { name: keys, match: { kind: key } }\n  - { name: people, match: { kind: user } }\n")
	got = runProgram(t, "", "keys", "list", "--config", ruled)
	for _, line := range []string{"EXPIRES  POLICIES\n", "never    builds keys\n", "never    keys\n"} {
		if !strings.Contains(got.stdout, line) {
			t.Errorf("keys list with policies says %+v, want %q", got, line)
		}
	}
	none := filepath.Join(t.TempDir(), "none.yaml")
	mustWrite(t, none, "upstreams: { a: { command: [prog] } }\n")
	for _, tt := range []struct {
		args string
		code int
		says string
	}{
		{"keys revoke ci --config " + file, 1, `has 2 keys called "ci": aaaaaaaa, cccccccc; choose one with --hash, or use --all`},
		{"keys revoke ci --hash sha256:b --config " + file, 1, `has no key "ci" with this hash; it has aaaaaaaa, cccccccc`},
		{"keys revoke oldd --config " + file, 1, `has no key called "oldd"; did you mean old?`},
		{"keys revoke ci --config " + none, 1, `has no key called "ci"`},
		{"keys revoke " + auth.NewKey() + " --config " + file, 2, "not the key itself"},
		{"keys revoke --config " + file, 2, "keys revoke needs the name of one key"},
		{"keys revoke ci", 2, "keys revoke needs --config FILE"},
		{"keys list --config " + none, 0, none + " has no keys"},
		{"keys list --config " + none + "x", 1, "no such file"},
		{"keys list -o xml --config " + none, 2, "--output is text or json"},
	} {
		if got := runProgram(t, "", strings.Fields(tt.args)...); got.code != tt.code || !strings.Contains(got.stdout+got.stderr, tt.says) {
			t.Errorf("%s says %+v, want %d and %s", tt.args, got, tt.code, tt.says)
		}
	}
}

func mustLoad(t *testing.T, text string) *config.Config {
	t.Helper()
	file := filepath.Join(t.TempDir(), "test.yaml")
	mustWrite(t, file, text)
	c, _, err := config.Load(file, func(string) (string, bool) { return "", false })
	if err != nil {
		t.Fatalf("Load: %v\n%s", err, text)
	}
	return c
}

// TestKeysChangeTheFile creates and revokes keys in a file that a person has written.
func TestKeysChangeTheFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.yaml")
	hash := func(n string) string { return `"sha256:` + strings.Repeat(n, 64) + `"` }
	const upstreams = "upstreams: { a: { command: [prog] } } # one\n"
	mustWrite(t, file, "# ours\nauth:\n  api_keys:\n    # of the build\n    - { name: ci, hash: "+hash("a")+" } # old\n"+upstreams)
	run := func(code int, args ...string) ran {
		t.Helper()
		got := runProgram(t, "", append(args, "--config", file)...)
		if got.code != code {
			t.Fatalf("%q gave %+v, want the code %d", args, got, code)
		}
		return got
	}
	text := func() string {
		t.Helper()
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}

	// The only key stays: without keys everybody would be let in.
	before := text()
	if got := run(1, "keys", "revoke", "ci"); !strings.Contains(got.stderr, "would have no key left") || text() != before {
		t.Errorf("revoking the only key gave %+v and\n%s", got, text())
	}

	created := run(0, "keys", "create", "ann", "--write")
	_, backup, _ := strings.Cut(created.stderr, "Backup: ")
	backup, _, _ = strings.Cut(backup, ".bak")
	h, err := auth.HashKey(strings.TrimSpace(created.stdout))
	if err != nil {
		t.Fatalf("keys create: %v", err)
	}
	annHash := h.String()
	want := strings.Replace(before, upstreams, "    - { name: ann, hash: \""+annHash+"\" }\n"+upstreams, 1)
	if text() != want {
		t.Errorf("the file is\n%s\nwant\n%s", text(), want)
	}
	if b, err := os.ReadFile(backup + ".bak"); err != nil || string(b) != before {
		t.Errorf("the backup is %q, %v", b, err)
	}

	run(0, "keys", "revoke", "ci")
	if want := "# ours\nauth:\n  api_keys:\n    - { name: ann, hash: \"" + annHash + "\" }\n" + upstreams; text() != want {
		t.Errorf("the file is\n%s\nwant\n%s", text(), want)
	}

	// One of two keys of a name.
	second := run(0, "keys", "create", "ann", "--write")
	if !auth.HoldsKey(second.stdout) || auth.HoldsKey(second.stderr) || !strings.Contains(second.stderr, "Its entry was added to") {
		t.Errorf("keys create printed %d and %q", len(second.stdout), second.stderr)
	}
	run(0, "keys", "revoke", "ann", "--hash", annHash[len("sha256:"):][:8])
	if strings.Contains(text(), annHash) || strings.Count(text(), "name: ann") != 1 {
		t.Errorf("the file is\n%s", text())
	}

	// A mistake elsewhere does not keep a key. One in its entry does, and the error is JSON.
	run(0, "keys", "create", "cid", "--write")
	run(0, "keys", "create", "eve", "--write")
	mustWrite(t, file, text()+"nonsense: 1\n")
	revoked := run(0, "keys", "revoke", "eve")
	if strings.Contains(text(), "eve") || !strings.Contains(revoked.stdout, "nonsense: unknown key") {
		t.Errorf("with a mistake elsewhere: %+v and\n%s", revoked, text())
	}
	mustWrite(t, file, strings.Replace(text(), "sha256:", "sha:", 1))
	broken := text()
	got := run(1, "keys", "revoke", "ann", "--json")
	var failed struct{ Error string }
	if err := json.Unmarshal([]byte(got.stderr), &failed); err != nil || !strings.Contains(failed.Error, ".hash: ") ||
		!strings.HasSuffix(failed.Error, "; Junction still accepts the keys of ann") ||
		got.stdout != "" || text() != broken {
		t.Errorf("with a broken entry: %+v, %v", got, err)
	}
}
