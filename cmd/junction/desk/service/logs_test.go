package service

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"junction/cmd/junction/base/config"
	"junction/cmd/junction/base/runfile"
)

// TestLogsFollowARenamedFile: the last lines, then new ones, also after the log was renamed because it is full. A
// line that was added before that is not lost.
func TestLogsFollowARenamedFile(t *testing.T) {
	name := filepath.Join(t.TempDir(), "junction.log")
	write := func(text string) {
		t.Helper()
		f, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err == nil {
			_, err = f.WriteString(text)
			f.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithCancel(t.Context())
		var out bytes.Buffer
		ended := make(chan error)
		go func() { ended <- followLog(ctx, &out, name, 2) }()
		synctest.Wait()
		write("first\n")
		time.Sleep(followPoll)
		synctest.Wait()
		write("second\n")
		if err := os.Rename(name, name+".old"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(followPoll)
		write("third\n")
		time.Sleep(followPoll)
		synctest.Wait()
		end()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		if got, want := out.String(), "first\nsecond\nthird\n"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

// TestLogsBeginWithTheLastLines: a number of whole lines, of a bounded part of the log.
func TestLogsBeginWithTheLastLines(t *testing.T) {
	long := strings.Repeat("x", maxTail-10) + "\n"
	for _, test := range []struct {
		text  string
		lines int
		want  string
	}{
		{"a\nb\nc\n", 2, "b\nc\n"}, {"a\nb\nc", 2, "b\nc"}, {"a\nb\n", 9, "a\nb\n"}, {"a\n", 0, ""}, {"", 3, ""},
		{"a\n\nb\n", 2, "\nb\n"}, {"cut off\n" + long + "b\n", 9, long + "b\n"},
	} {
		name := filepath.Join(t.TempDir(), "log")
		if err := os.WriteFile(name, []byte(test.text), 0o600); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if err := showLog(&out, name, test.lines); err != nil || out.String() != test.want {
			t.Errorf("%d lines of %.20q: %.20q, %v, want %.20q", test.lines, test.text, out.String(), err, test.want)
		}
	}
}

// TestLogsSayWhereTheLogIs: with a service, in the background, and at a terminal.
func TestLogsSayWhereTheLogIs(t *testing.T) {
	for system, want := range map[string]string{"linux": "command", "darwin": "file"} {
		h, _ := fakeHost(t, system, "")
		file := filepath.Join(h.Home, "config.yaml")
		s, err := h.Of(file)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.logOf(file); err == nil || !strings.HasPrefix(err.Error(), "no service serves ") {
			t.Errorf("without a process: %v", err)
		}
		log := filepath.Join(h.Home, "background.log")
		if err := runfile.NoteBackground(file, log); err != nil {
			t.Fatal(err)
		}
		if at, err := s.logOf(file); err != nil || at != (logPlace{file: log}) {
			t.Errorf("of a process in the background: %v, %v", at, err)
		}
		p := mustServe(t, file)
		if at, err := s.logOf(file); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("process %d, ", p.PID)) {
			t.Errorf("of a process at a terminal: %v, %v", at, err)
		}
		if err := os.MkdirAll(filepath.Dir(s.file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(s.file, s.text, 0o600); err != nil {
			t.Fatal(err)
		}
		at, err := s.logOf(file)
		if has := map[string]string{"command": at.command, "file": at.file}; err != nil || has[want] == "" ||
			len(at.command)*len(at.file) > 0 {
			t.Errorf("%s: of a service: %+v, %v", system, at, err)
		}
	}
}

// TestServiceStatusSaysThatTheFileIsGone: also while a process serves its content.
func TestServiceStatusSaysThatTheFileIsGone(t *testing.T) {
	h, _ := fakeHost(t, "linux", "")
	file := filepath.Join(h.Home, "config.yaml")
	s, err := h.Of(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file+".2026-11-30T000000.bak", []byte("upstreams: {}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, running := range []bool{false, true} {
		want := "config.yaml is gone; its newest backup, of "
		if running {
			mustServe(t, file)
			want = "config.yaml is gone, and Junction goes on with the content that it has; its newest backup, of "
		}
		j := s.status(t.Context())
		if said := j.text(file); !strings.Contains(said, want) || j.Running != running || strings.Count(said, "Mistake") != 1 {
			t.Errorf("the status is %+v\n%s\nwant %q", j, said, want)
		}
	}
	kept, err := config.LastGood(h.Getenv, file)
	if err != nil || os.MkdirAll(filepath.Dir(kept), 0o700) != nil || os.WriteFile(kept, nil, 0o600) != nil {
		t.Fatal("cannot keep a content", err)
	}
	if said, want := s.status(t.Context()).Gone, "; the content that was in force last is in "; !strings.Contains(said, want) {
		t.Errorf("with a newer content that was kept, the status is %q, want %q", said, want)
	}
	if err := os.Chtimes(kept, time.Time{}, time.Unix(1e9, 0)); err != nil {
		t.Fatal(err)
	}
	if said, want := s.status(t.Context()).Gone, "; its newest backup, of "; !strings.Contains(said, want) {
		t.Errorf("with an older content that was kept, the status is %q, want %q", said, want)
	}
}
