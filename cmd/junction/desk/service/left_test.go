package service

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"junction/cmd/junction/base/config"
)

// out is an upstream that a start leaves out, and that runs now.
func out(name string) LeftOut {
	return LeftOut{LeftOut: config.LeftOut{Name: name, Why: "config.yaml:3: unknown key", Blocked: true}, Runs: true, Works: true}
}

// TestRestartAsksBeforeItLosesServers: a person is asked about each server that a restart would end, also about one
// whose entry gets a mistake during the question, and about no other one. Without an answer nothing is started.
func TestRestartAsksBeforeItLosesServers(t *testing.T) {
	h, ran := fakeHost(t, "linux", "systemctl")
	s := mustInstall(t, h, "")
	broken := []LeftOut{out("notes"), {LeftOut: config.LeftOut{Name: "new", Why: "config.yaml:9: unknown key", Blocked: true}},
		{LeftOut: config.LeftOut{Name: "absent", Why: "config.yaml:10: there is no program"}, Runs: true}} // it fails now
	h.Check = func(context.Context, *Unit) ([]LeftOut, error) { return slices.Clone(broken), nil }

	_, err := s.Restart(t.Context())
	if err == nil || !strings.Contains(err.Error(), "  notes works now, and would not run after the restart: config.yaml:3: unknown key\n") ||
		!strings.Contains(err.Error(), "junction service restart --without notes") || strings.Contains(err.Error(), "new") || strings.Contains(err.Error(), "absent") || len(*ran) > 0 {
		t.Errorf("without Agree: %v, and it ran %q", err, *ran)
	}

	var asked []string
	s.Agree = func(lost []LeftOut) error {
		asked = append(asked, Names(lost))
		if len(asked) == 1 { // the file is edited during the question
			broken = append(broken, out("mail"))
			return nil
		}
		return errors.New("the person says no")
	}
	if _, err := s.Restart(t.Context()); err == nil || err.Error() != "the person says no" || len(*ran) > 0 || !slices.Equal(asked, []string{"notes", "mail"}) {
		t.Errorf("a person who says no to the second question: %v, asked about %q, and it ran %q", err, asked, *ran)
	}

	s.Agree = func([]LeftOut) error { return nil }
	if _, err := s.Restart(t.Context()); err == nil || len(*ran) == 0 { // the manager of the test fails
		t.Errorf("a person who says yes: %v, and it ran %q", err, *ran)
	}
	if got := s.leftOut(); !strings.HasPrefix(got, "notes does not run: config.yaml:3: unknown key\nnew does not run: config.yaml:9: unknown key\nabsent does not run: ") || !strings.Contains(got, "\nmail does not run: ") {
		t.Errorf("after the restart it says %q", got)
	}
}

// TestCheckOfAFileThatDoesNotStart: the error says that nothing was changed, or that nothing was started, and what
// goes on.
func TestCheckOfAFileThatDoesNotStart(t *testing.T) {
	h, ran := fakeHost(t, "linux", "")
	s := mustInstall(t, h, "")
	h.Check = func(context.Context, *Unit) ([]LeftOut, error) { return nil, errors.New("a mistake") }
	if _, err := s.Restart(t.Context()); err == nil || err.Error() != "nothing was started: a mistake" || len(*ran) > 0 {
		t.Errorf("without a process: %v, and it ran %q", err, *ran)
	}
	mustServe(t, filepath.Join(h.Home, ".config", "junction", "config.yaml"))
	if _, err := s.Restart(t.Context()); err == nil || !strings.HasPrefix(err.Error(), "nothing was changed: a mistake; process ") || len(*ran) > 0 {
		t.Errorf("with a process: %v, and it ran %q", err, *ran)
	}
}

// TestManyLostServers: hundreds of broken entries fill no terminal, and the command that loses all of them has all
// names.
func TestManyLostServers(t *testing.T) {
	h, _ := fakeHost(t, "linux", "")
	s := mustInstall(t, h, "")
	for i := range 300 {
		s.Left = append(s.Left, out("s"+strconv.Itoa(i)))
	}
	text := s.Refuse(s.Left).Error()
	if n := strings.Count(text, "\n"); n > 30 || !strings.Contains(text, "  and 280 more servers\n") || !strings.HasSuffix(text, ",s299") {
		t.Errorf("the error has %d lines, and ends with %q", n, text[max(0, len(text)-40):])
	}
	if n := strings.Count(s.leftOut(), "\n"); n > 30 {
		t.Errorf("%d lines follow the restart", n)
	}
}
