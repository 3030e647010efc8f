package upstream

import (
	"strings"
	"testing"

	"junction/auth/authtest"
	"junction/upstream/command"
)

// TestUsersShareNoPrivateFolder: with a sandbox, the processes of two users of a command have two private folders, which
// are not in that of a process for all callers. Both count as changed by confined commands.
func TestUsersShareNoPrivateFolder(t *testing.T) {
	config := Config{Command: []string{"server"}, Sandbox: &command.Sandbox{}, Auth: Auth{Mode: AuthUserKey}}
	seen := map[string]bool{}
	for _, user := range []string{"", "key:ann", "key:ben"} {
		p := &pool{name: "x", user: user, connConfig: config, options: Options{Sandboxes: "/s", Log: authtest.Log(t)}.withDefaults()}
		at := p.confinement().Private
		for other := range seen {
			if at == other || strings.HasPrefix(at, other+"/") || strings.HasPrefix(other, at+"/") {
				t.Errorf("the folders %s and %s overlap", at, other)
			}
		}
		seen[at] = true
		inside := false
		for _, path := range Writable(map[string]Config{"x": config}, "/s") {
			inside = inside || at == path || strings.HasPrefix(at, path+"/")
		}
		if !inside {
			t.Errorf("%s is not among what confined commands may change", at)
		}
	}
}
