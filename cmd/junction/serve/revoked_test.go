package serve

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"junction/auth"
	"junction/auth/authtest"
	"junction/cmd/junction/base/config"
	"junction/cmd/junction/base/stored"
	"junction/upstream/upstreamtest"
)

// TestARevokedKeyThatIsBackIsLoud: an old file that is put back makes a revoked key valid again. The log warns
// with its name, and so do the report, the next start, and each reload, until the file confirms the key.
func TestARevokedKeyThatIsBackIsLoud(t *testing.T) {
	_, url := upstreamtest.Start(t, upstreamtest.Script{})
	dir := t.TempDir()
	file := filepath.Join(dir, "config.yaml")
	ben := auth.Hash{2, 2, 2, 2}
	write := func(entries ...string) {
		mustWrite(t, file, addresses+"sessions: { key_file: "+filepath.Join(dir, "key")+" }\nupstreams: { a: { url: "+url+
			" } }\nauth:\n  api_keys:\n    - { name: ann, hash: \""+auth.Hash{1}.String()+"\" }\n"+strings.Join(entries, ""))
	}
	entry := "    - { name: ben, hash: \"" + ben.String() + "\" }\n"
	warned := func(r *running) config.Problems {
		t.Helper()
		_, report := r.mustReport(t)
		return report.Warnings
	}
	mustWarn := func(r *running) {
		t.Helper()
		ps := warned(r)
		if len(ps) == 0 || !config.Revived(ps[0]) || ps[0].File != file || ps[0].Line != 9 ||
			!strings.Contains(ps[0].Text, "the key ben (02020202) was revoked at ") ||
			!strings.Contains(ps[0].Text, "junction keys revoke ben --hash 02020202 --config "+file) {
			t.Errorf("the warnings are %v", ps)
		}
	}
	const loud = "level=WARN msg=\"the key ben (02020202) was revoked at "
	write(entry)
	r := mustServeWith(t, options{file: file})
	if ps := warned(r); len(ps) != 0 {
		t.Errorf("the warnings of the start are %v", ps)
	}
	write()
	r.stderr.mustSay(t, reloaded, 1)
	write(entry)
	r.stderr.mustSay(t, reloaded, 2)
	r.stderr.mustSay(t, loud, 1)
	mustWarn(r)
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}

	warnings := func() string {
		out, _ := mustRun(t, 0, "check", "--config", file)
		return out
	}
	for range 2 { // check notes nothing
		if out := warnings(); !strings.Contains(out, file+":9: auth.api_keys[1].restored: the key ben (02020202) was revoked at ") {
			t.Errorf("check before the start prints\n%s", out)
		}
	}
	r = mustServeWith(t, options{file: file}) // which knows it from its state alone
	r.stderr.mustSay(t, loud, 1)
	mustWarn(r)
	write(strings.Replace(entry, " }", ", restored: "+auth.Moment{Time: time.Now()}.String()+" }", 1))
	r.stderr.mustSay(t, reloaded, 1)
	if ps := warned(r); len(ps) != 0 {
		t.Errorf("the warnings after the confirmation are %v", ps)
	}
}

// TestTheLastGoodContentHasNoRevokedKey: a service starts with the last good content of a file with a mistake,
// without the keys that the file does not have any more.
func TestTheLastGoodContentHasNoRevokedKey(t *testing.T) {
	dir := t.TempDir()
	file, getenv := filepath.Join(dir, "config.yaml"), environment(map[string]string{"XDG_STATE_HOME": dir})
	good, err := config.LastGood(getenv, file)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(good), 0o700)
	}
	if err != nil {
		t.Fatal(err)
	}
	text := func(names ...string) string {
		text := addresses + "upstreams: { a: { command: [x] } }\nauth:\n  api_keys:\n"
		for _, name := range names {
			text += "    - { name: " + name + ", hash: \"" + auth.Hash{name[0]}.String() + "\" }\n"
		}
		return text
	}
	accepts := func(content string, want ...string) {
		t.Helper()
		mustWrite(t, file, content)
		p := newProgram(options{file: file, lastGood: true, getenv: getenv, stderr: authtest.Searched(t, "what the program writes", io.Discard)})
		c, err := p.contents.load()
		if err != nil {
			t.Fatal(err)
		}
		defer p.contents.Close()
		var names []string
		for _, k := range c.Auth.APIKeys {
			names = append(names, k.Name)
		}
		if !slices.Equal(names, want) || !c.Auth.Needed() {
			t.Errorf("with the last good content, the service accepts %v, want %v", names, want)
		}
		if lost := p.contents.withheld(); len(lost) != len(slices.DeleteFunc([]string{"ann", "eve"}, func(n string) bool { return slices.Contains(want, n) })) {
			t.Errorf("%v are reported as revoked, and %v are in force", lost, want)
		}
	}
	const noYAML = "}\n"
	mustWrite(t, good, text("ann", "eve"))
	accepts(text("ann", "new")+"nonsense: 1\n", "ann")
	accepts(text("ann", "new")+noYAML, "ann", "eve") // nobody knows of a revocation
	remember := func(names ...string) {
		t.Helper()
		keys, err := stored.OpenKeys(filepath.Join(dir, "junction"), config.FolderOf(file))
		if err != nil {
			t.Fatal(err)
		}
		var list []stored.Key
		for _, name := range names {
			list = append(list, stored.Key{Hash: auth.Hash{name[0]}.String(), Name: name})
		}
		if _, err := keys.Follow(list, time.Now()); err != nil {
			t.Fatal(err)
		}
	}
	remember("ann", "eve")
	accepts(noYAML, "ann", "eve")
	remember("ann") // the process revokes the key of eve
	accepts(noYAML, "ann")
	accepts(text("ann", "eve")+"nonsense: 1\n", "ann") // a file with a mistake adds no key
	remember("ann", "eve")                             // a sound file has it again, with a warning
	accepts(noYAML, "ann", "eve")
	remember("bob") // all keys of the last good content
	accepts(noYAML, "nobody")
}
