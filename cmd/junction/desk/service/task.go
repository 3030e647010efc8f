package service

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"path/filepath"
	"strings"
	"unicode/utf16"
)

// tasks manages tasks of Windows that start when the user logs on.
type tasks struct{ *Host }

func (tasks) name() string { return "task scheduler" }

// definition returns the task. The program has no window: conhost gives it a console without one, in
// which the commands of upstreams run, too.
func (t tasks) definition(u *Unit) (string, []byte) {
	words := append([]string{"--headless"}, u.command()...)
	for i, word := range words {
		words[i] = windowsWord(word)
	}
	root, _ := t.Getenv("SystemRoot")
	if root == "" {
		root = `C:\Windows`
	}
	user, _ := t.Getenv("USERNAME")
	if domain, _ := t.Getenv("USERDOMAIN"); domain != "" {
		user = domain + `\` + user
	}
	text := fmt.Sprintf(`<?xml version="1.0" encoding="UTF-16"?>
<Task version="1.2" xmlns="http://schemas.microsoft.com/windows/2004/02/mit/task">
  <RegistrationInfo><Description>%s.</Description></RegistrationInfo>
  <Triggers><LogonTrigger><Enabled>true</Enabled><UserId>%s</UserId></LogonTrigger></Triggers>
  <Principals><Principal id="Author"><UserId>%s</UserId><LogonType>InteractiveToken</LogonType>
    <RunLevel>LeastPrivilege</RunLevel></Principal></Principals>
  <Settings>
    <MultipleInstancesPolicy>IgnoreNew</MultipleInstancesPolicy>
    <DisallowStartIfOnBatteries>false</DisallowStartIfOnBatteries>
    <StopIfGoingOnBatteries>false</StopIfGoingOnBatteries>
    <ExecutionTimeLimit>PT0S</ExecutionTimeLimit>
    <RestartOnFailure><Interval>PT1M</Interval><Count>999</Count></RestartOnFailure>
  </Settings>
  <Actions Context="Author"><Exec><Command>%s</Command>
    <Arguments>%s</Arguments>
    <WorkingDirectory>%s</WorkingDirectory></Exec></Actions>
</Task>
`, marker, escaped(user), escaped(user), escaped(root+`\System32\conhost.exe`),
		escaped(strings.Join(words, " ")), escaped(u.Home))
	dir, _ := t.stateDir("service") // unit has found it
	return filepath.Join(dir, u.Name+".xml"), wide(strings.ReplaceAll(text, "\n", "\r\n"))
}

// wide returns a text in UTF-16 with a byte order mark, as schtasks reads it.
func wide(text string) []byte {
	var b bytes.Buffer
	for _, unit := range append([]uint16{0xfeff}, utf16.Encode([]rune(text))...) {
		b.Write(binary.LittleEndian.AppendUint16(nil, unit))
	}
	return b.Bytes()
}

// windowsWord quotes a word of a command line of Windows (CommandLineToArgvW).
func windowsWord(word string) string {
	if word != "" && !strings.ContainsAny(word, " \t\"") {
		return word
	}
	var b strings.Builder
	b.WriteByte('"')
	slashes := 0
	for _, r := range word {
		switch r {
		case '\\':
			slashes++
		case '"':
			b.WriteString(strings.Repeat(`\`, slashes+1)) // they are doubled before a quote, which is escaped
			slashes = 0
		default:
			slashes = 0
		}
		b.WriteRune(r)
	}
	return b.String() + strings.Repeat(`\`, slashes) + `"`
}

func (t tasks) task(ctx context.Context, words ...string) error {
	output, err := t.Run(ctx, "schtasks", words...)
	return failed(err, output, append([]string{"schtasks"}, words...)...)
}

func (tasks) reach(context.Context) error { return nil } // Windows always has the task scheduler

// start waits for the end of an older process: /End ends its console, and /Run does nothing while it runs.
func (t tasks) start(ctx context.Context, u *Unit, file string, ended func(context.Context) (bool, error)) error {
	_ = t.task(ctx, "/End", "/TN", u.Name) // an older one, if there is one
	if _, err := ended(ctx); err != nil {
		return err
	}
	if err := t.task(ctx, "/Create", "/TN", u.Name, "/XML", file, "/F"); err != nil {
		return err
	}
	return t.task(ctx, "/Run", "/TN", u.Name)
}

func (t tasks) halt(ctx context.Context, u *Unit) error { return t.task(ctx, "/End", "/TN", u.Name) }

func (t tasks) stop(ctx context.Context, u *Unit) error {
	_ = t.task(ctx, "/End", "/TN", u.Name) // it may not run
	return t.task(ctx, "/Delete", "/TN", u.Name, "/F")
}

func (tasks) removed(context.Context, *Unit) {}

func (t tasks) state(ctx context.Context, u *Unit) string {
	if err := t.task(ctx, "/Query", "/TN", u.Name); err != nil {
		return "not installed"
	}
	return "installed"
}

func (tasks) log(*Unit) string { return "" }

func (tasks) later() string { return "It starts when you log on." }
