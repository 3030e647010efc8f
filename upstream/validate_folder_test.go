package upstream

import (
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"junction/auth/authtest"
	"junction/upstream/command"
)

// TestFolderWordStandsWhereNothingDividesIt: the folder of a client is a whole argument, or follows = or :, and is
// never run by a shell; and only with isolation: folder.
func TestFolderWordStandsWhereNothingDividesIt(t *testing.T) {
	const word = "${folder}"
	shared := func(c Config) Config { c.Isolation = IsolationShared; return c }
	for name, test := range map[string]struct {
		c    Config
		want string // "" for no mistake
	}{
		"an argument":              {Config{Command: []string{"x", word}}, ""},
		"after =":                  {Config{Command: []string{"x", "--root=" + word}}, ""},
		"after :":                  {Config{Command: []string{"x", "-v", "/data:" + word}}, ""},
		"a variable":               {Config{Command: []string{"x"}, Env: map[string]string{"R": word}}, ""},
		"dir":                      {Config{Command: []string{"x"}, Dir: word}, ""},
		"after the script":         {Config{Command: []string{"sh", "-c", `exec x "$1"`, "sh", word}}, ""},
		"read":                     {Config{Command: []string{"x"}, Sandbox: &command.Sandbox{Read: []string{word}}}, ""},
		"no folder":                {shared(Config{Command: []string{"x", "folder"}}), ""},
		"shared":                   {shared(Config{Command: []string{"x", word}}), "command[1]: ${folder} needs isolation: folder"},
		"shared, in dir":           {shared(Config{Command: []string{"x"}, Dir: word}), "dir: ${folder} needs"},
		"shared, in env":           {shared(Config{Command: []string{"x"}, Env: map[string]string{"R": word}}), "env.R: ${folder} needs"},
		"shared, in read":          {shared(Config{Command: []string{"x"}, Sandbox: &command.Sandbox{Read: []string{word}}}), "sandbox.read: ${folder} needs"},
		"in write":                 {Config{Command: []string{"x"}, Sandbox: &command.Sandbox{Write: []string{word}}}, "sandbox.write[0]: the folder of the client needs no entry"},
		"below it, in read":        {Config{Command: []string{"x"}, Sandbox: &command.Sandbox{Read: []string{word + "/a"}}}, "sandbox.read[0]: the folder of the client needs no entry"},
		"a folder below it":        {Config{Command: []string{"x"}, Dir: word + "/a"}, "dir: must be ${folder} alone"},
		"before more":              {Config{Command: []string{"x", word + "/a"}}, "command[1]: ${folder} must be the whole value"},
		"after a comma":            {Config{Command: []string{"x", "a," + word}}, "command[1]: ${folder} must be the whole value"},
		"twice":                    {Config{Command: []string{"x", word + ":" + word}}, "command[1]: ${folder} must be the whole value"},
		"the program":              {Config{Command: []string{word}}, "command[0]: the program cannot be"},
		"the script":               {Config{Command: []string{"/bin/sh", "-c", word}}, "command[2]: a shell would run"},
		"a variable of the script": {Config{Command: []string{"bash", "-c", "R=" + word}}, "command[2]: a shell would run"},
		"cmd.exe":                  {Config{Command: []string{`C:\Windows\cmd.exe`, "/C", "x", word}}, "command[3]: a shell would run"},
		"a batch file":             {Config{Command: []string{"x.CMD", word}}, "command[1]: a shell would run"},
		"a URL":                    {Config{URL: "https://x.example.com/mcp"}, "isolation: folder is only for a command"},
	} {
		if test.c.Isolation == "" {
			test.c.Isolation = IsolationFolder
		}
		var got []string
		for _, p := range test.c.Validate("x") {
			got = append(got, p.Path+": "+p.Text)
		}
		if text := strings.Join(got, "\n"); test.want == "" && text != "" || !strings.HasPrefix(text, test.want) || len(got) > 1 {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

// TestFoldersOfClientsDecideNothing: what a confined command may change of its clients' folders counts for every
// other confined command, which follows no link there. With no such command, permitted folders count for nothing.
func TestFoldersOfClientsDecideNothing(t *testing.T) {
	for name, test := range map[string]struct {
		c    Config
		want bool
	}{
		"it may change them": {Config{Isolation: IsolationFolder, Sandbox: &command.Sandbox{}}, true},
		"it reads them":      {Config{Isolation: IsolationFolder, Sandbox: &command.Sandbox{Read: []string{"${folder}"}}}, false},
		"no sandbox":         {Config{Isolation: IsolationFolder}, false},
		"no folders":         {Config{Sandbox: &command.Sandbox{}}, false},
	} {
		var s Set
		var permitted atomic.Pointer[[]string] // the starts of the upstreams read it
		permitted.Store(&[]string{"/src"})
		test.c.Command = []string{"/no/such/program"}
		u := s.Apply(map[string]Config{"fs": test.c, "other": {Command: []string{"/no/such/program"},
			Sandbox: &command.Sandbox{Write: []string{"/w"}}}}, Options{Log: authtest.Log(t),
			Folders: func() []string { return *permitted.Load() }}, nil)[1]
		permitted.Store(&[]string{"/src", "/more"}) // the next start counts
		got := u.pool.options.writable()
		s.Close()
		if slices.Contains(got, "/src") != test.want || slices.Contains(got, "/more") != test.want || !slices.Contains(got, "/w") {
			t.Errorf("%s: confined commands may change %q", name, got)
		}
	}
}
