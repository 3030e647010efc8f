package service

import (
	"bytes"
	"context"
	"encoding/xml"
	"fmt"
	"junction/upstream/pace"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// launchd manages agents of a user.
type launchd struct{ *Host }

func (launchd) name() string { return "launchd" }

// label returns the name of a service for launchd.
func (launchd) label(u *Unit) string { return "local." + u.Name }

func (l launchd) definition(u *Unit) (string, []byte) {
	var b bytes.Buffer
	text := func(key, value string) {
		fmt.Fprintf(&b, "  <key>%s</key>\n  <string>%s</string>\n", key, escaped(value))
	}
	b.WriteString(xml.Header + `<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" ` +
		`"http://www.apple.com/DTDs/PropertyList-1.0.dtd">` + "\n<!-- " + marker + ". -->\n" +
		"<plist version=\"1.0\">\n<dict>\n")
	text("Label", l.label(u))
	b.WriteString("  <key>ProgramArguments</key>\n  <array>\n")
	for _, word := range u.command() {
		fmt.Fprintf(&b, "    <string>%s</string>\n", escaped(word))
	}
	b.WriteString("  </array>\n  <key>EnvironmentVariables</key>\n  <dict>\n")
	for _, variable := range u.Env {
		name, value, _ := strings.Cut(variable, "=")
		fmt.Fprintf(&b, "    <key>%s</key>\n    <string>%s</string>\n", escaped(name), escaped(value))
	}
	b.WriteString("  </dict>\n")
	text("WorkingDirectory", u.Home)
	text("ProcessType", "Interactive") // others get less time of the processor
	b.WriteString("  <key>RunAtLoad</key>\n  <true/>\n  <key>KeepAlive</key>\n  <true/>\n" +
		"  <key>ExitTimeOut</key>\n  <integer>" +
		strconv.Itoa(u.stopSeconds()) + "</integer>\n  <key>Umask</key>\n  <integer>63</integer>\n" +
		"</dict>\n</plist>\n")
	return filepath.Join(l.Home, "Library", "LaunchAgents", l.label(u)+".plist"), b.Bytes()
}

// escaped returns a text for XML.
func escaped(text string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(text)) // a Builder has no errors
	return b.String()
}

func (l launchd) ctl(ctx context.Context, words ...string) error {
	output, err := l.Run(ctx, "launchctl", words...)
	return failed(err, output, append([]string{"launchctl"}, words...)...)
}

func (l launchd) reach(ctx context.Context) error { return l.ctl(ctx, "print", l.domain()) }

// start waits for the end of an older process: bootout returns before that, and bootstrap fails until then.
func (l launchd) start(ctx context.Context, u *Unit, file string, ended func(context.Context) (bool, error)) error {
	_ = l.ctl(ctx, "bootout", l.domain()+"/"+l.label(u)) // an older one, if there is one
	older, err := ended(ctx)
	if err != nil {
		return err
	}
	for n := 1; ; n++ {
		err := l.ctl(ctx, "bootstrap", l.domain(), file)
		if err == nil || !older || n == bootstraps || !pace.Sleep(ctx, bootstrapPause, nil) {
			return err
		}
	}
}

// launchd forgets a job some time after its process has ended. Until then, bootstrap fails.
const (
	bootstraps     = 5
	bootstrapPause = time.Second
)

// halt unloads the agent, which is loaded again at the next login.
func (l launchd) halt(ctx context.Context, u *Unit) error { return l.stop(ctx, u) }

func (l launchd) stop(ctx context.Context, u *Unit) error {
	return l.ctl(ctx, "bootout", l.domain()+"/"+l.label(u))
}

func (launchd) removed(context.Context, *Unit) {}

func (l launchd) state(ctx context.Context, u *Unit) string {
	output, err := l.Run(ctx, "launchctl", "print", l.domain()+"/"+l.label(u))
	if err != nil {
		return "not loaded"
	}
	for line := range strings.Lines(output) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), "state = "); ok {
			return value
		}
	}
	return "loaded"
}

func (launchd) log(*Unit) string { return "" }

func (launchd) later() string { return "It starts when you log in." }
