package service

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
)

// systemd manages user units.
type systemd struct{ *Host }

func (systemd) name() string { return "systemd" }

func (s systemd) definition(u *Unit) (string, []byte) {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s. junction service uninstall removes it.\n", marker)
	b.WriteString("[Unit]\nDescription=Junction, one MCP endpoint for many MCP servers\n")
	b.WriteString("StartLimitIntervalSec=0\n\n[Service]\nType=notify\nExecStart=")
	for i, word := range u.command() {
		if i > 0 {
			b.WriteByte(' ')
			word = strings.ReplaceAll(word, "$", "$$") // the program is no subject to variables
		}
		b.WriteString(unitWord(word))
	}
	b.WriteString("\nExecReload=/bin/kill -HUP $MAINPID\n")
	for _, variable := range u.Env {
		b.WriteString("Environment=" + unitWord(variable) + "\n")
	}
	b.WriteString("Restart=always\nRestartSec=5\n")
	b.WriteString("# A wrong command line stays wrong.\nRestartPreventExitStatus=2\n")
	b.WriteString("# Junction ends its servers itself; what remains is killed. The time is that of the file.\n")
	fmt.Fprintf(&b, "KillMode=mixed\nTimeoutStopSec=%d\n", u.stopSeconds())
	b.WriteString("UMask=0077\n\n[Install]\nWantedBy=default.target\n")
	return filepath.Join(s.configDir(), "systemd", "user", u.Name+".service"), []byte(b.String())
}

// unitWord quotes a word for a unit (systemd.service, "COMMAND LINES").
func unitWord(word string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "%", "%%").Replace(word) + `"`
}

func (s systemd) ctl(ctx context.Context, words ...string) error {
	words = append([]string{"--user"}, words...)
	output, err := s.Run(ctx, "systemctl", words...)
	return failed(err, output, append([]string{"systemctl"}, words...)...)
}

func (s systemd) reach(ctx context.Context) error { return s.ctl(ctx, "show", "--property=Version") }

func (s systemd) start(ctx context.Context, u *Unit, _ string, _ func(context.Context) (bool, error)) error {
	for _, words := range [][]string{{"daemon-reload"}, {"enable", u.Name + ".service"},
		{"restart", u.Name + ".service"}} {
		if err := s.ctl(ctx, words...); err != nil {
			return err
		}
	}
	return nil
}

func (s systemd) halt(ctx context.Context, u *Unit) error {
	return s.ctl(ctx, "stop", u.Name+".service")
}

func (s systemd) stop(ctx context.Context, u *Unit) error {
	return s.ctl(ctx, "disable", "--now", u.Name+".service")
}

func (s systemd) removed(ctx context.Context, u *Unit) {
	_ = s.ctl(ctx, "daemon-reload") // the unit is gone anyway
	_ = s.ctl(ctx, "reset-failed", u.Name+".service")
}

func (s systemd) state(ctx context.Context, u *Unit) string {
	output, err := s.Run(ctx, "systemctl", "--user", "show", u.Name+".service",
		"--property=ActiveState,SubState,UnitFileState,NRestarts")
	if err != nil {
		return "unknown: " + lastLine(output)
	}
	v := map[string]string{}
	for line := range strings.Lines(output) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		v[key] = value
	}
	text := fmt.Sprintf("%s (%s), %s", v["ActiveState"], v["SubState"], v["UnitFileState"])
	if n := v["NRestarts"]; n != "" && n != "0" {
		text += ", restarted " + n + " times"
	}
	return text
}

func (systemd) log(u *Unit) string { return "journalctl --user -u " + u.Name }

func (systemd) later() string {
	return "It starts when you log in; loginctl enable-linger starts it with the machine, too."
}
