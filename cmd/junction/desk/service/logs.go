package service

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"junction/cmd/junction/base/cli"
	"junction/cmd/junction/base/config"
	"junction/cmd/junction/base/runfile"
	"junction/upstream/files"
	"junction/upstream/pace"
	"junction/upstream/sandbox"
)

// logLines is the default of --lines.
const logLines = 100

// LogsCommand is `junction logs`. file points to the value of --config.
func LogsCommand(stdout, stderr io.Writer, file *string) *cobra.Command {
	var follow bool
	var lines int
	cmd := &cobra.Command{
		Use: "logs", Aliases: []string{"log"}, Short: "Show the log of a service, or of a background process",
		Args: cli.NoArguments,
		Long: `Show the log of the service of a configuration file, or of the process in the background that junction
setup has started, also if it has ended. The log of a service of systemd is in the journal: the command runs
journalctl. A Junction that was started at a terminal writes its log there, to its standard error.`,
		Example: `  junction logs
  junction logs --follow
  junction logs -n 1000 | grep retrying`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if lines < 0 {
				return cli.Usagef("--lines is 0 or more")
			}
			s, path, err := of(*file)
			if err != nil {
				return err
			}
			at, err := s.logOf(path)
			switch {
			case err != nil:
				return err
			case at.command != "":
				return runLog(cmd.Context(), stdout, stderr, at.command, lines, follow)
			case follow:
				return followLog(cmd.Context(), stdout, at.file, lines)
			}
			return showLog(stdout, at.file, lines)
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "show new lines, until interrupted")
	cmd.Flags().IntVarP(&lines, "lines", "n", logLines, "the most `lines` that are shown at the beginning")
	return cmd
}

// logPlace is where a log is: in a file, or in what a command shows.
type logPlace struct{ file, command string }

// logOf returns where the log of a configuration file is. The error says where a person sees it.
func (s *Service) logOf(path string) (logPlace, error) {
	p, running := runfile.Present(s.unit.File)
	b, known := runfile.LastBackground(s.unit.File)
	switch command := s.manager.log(s.unit); {
	case s.Installed() && command != "":
		return logPlace{command: command}, nil
	case s.Installed():
		return logPlace{file: s.unit.Log}, nil
	case running && !(known && p.Is(b.Process)):
		return logPlace{}, fmt.Errorf("process %d, which serves %s, was started by no service: its log is on its "+
			"standard error, at the terminal or in the file to which you have sent it", p.PID, short(path))
	case known:
		return logPlace{file: b.Log}, nil
	}
	return logPlace{}, fmt.Errorf("no service serves %s, and no process in the background; a junction that you start "+
		"writes its log to its standard error; start it with: %s", short(path), config.Start(path))
}

// runLog runs the command of a manager that shows its log.
func runLog(ctx context.Context, stdout, stderr io.Writer, command string, lines int, follow bool) error {
	words := append(strings.Fields(command), "--no-pager", "-n", strconv.Itoa(lines))
	if follow {
		words = append(words, "-f")
	}
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	cmd.Stdout, cmd.Stderr, cmd.Env = stdout, stderr, sandbox.ForOthers(os.Environ())
	err := cmd.Run()
	if ctx.Err() != nil {
		return nil // the person has seen enough
	}
	if err != nil {
		return fmt.Errorf("cannot show the log of the service: %s: %w", strings.Join(words, " "), err)
	}
	return nil
}

// maxTail is the most bytes of a log that are shown at the beginning.
const maxTail = 4 << 20

// tail returns the last lines of a log, and where it ends.
func tail(f *os.File, lines int) (last []byte, end int64, err error) {
	info, err := f.Stat()
	if err != nil {
		return nil, 0, err
	}
	begin := max(0, info.Size()-maxTail)
	last = make([]byte, info.Size()-begin)
	n, err := f.ReadAt(last, begin)
	if last = last[:n]; errors.Is(err, io.EOF) {
		err = nil
	}
	end = begin + int64(n)
	from := len(bytes.TrimSuffix(last, []byte("\n")))
	for range lines {
		if from = bytes.LastIndexByte(last[:max(from, 0)], '\n'); from < 0 {
			break
		}
	}
	if lines == 0 {
		return nil, end, err
	}
	if from < 0 && begin > 0 { // the first line is not whole
		from = bytes.IndexByte(last, '\n')
	}
	return last[from+1:], end, err
}

// showLog writes the last lines of a log.
func showLog(w io.Writer, name string, lines int) error {
	f, err := os.Open(name)
	if err != nil {
		return fmt.Errorf("cannot read the log %s: %w", name, files.Reason(err))
	}
	defer f.Close()
	last, _, err := tail(f, lines)
	if err != nil {
		return fmt.Errorf("cannot read the log %s: %w", name, files.Reason(err))
	}
	_, err = w.Write(last)
	return err
}

// followPoll is how often followLog looks for new lines.
const followPoll = 250 * time.Millisecond

// followLog writes the last lines of a log, and what is added to it, until ctx ends. A log that is missing, or that
// is renamed because it is full, begins anew.
func followLog(ctx context.Context, w io.Writer, name string, lines int) error {
	var f *os.File
	defer func() { f.Close() }()
	at := int64(0)
	for {
		if f == nil {
			opened, err := os.Open(name)
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("cannot read the log %s: %w", name, files.Reason(err))
			}
			if f = opened; f != nil && lines > 0 {
				var last []byte
				if last, at, err = tail(f, lines); err != nil {
					return fmt.Errorf("cannot read the log %s: %w", name, files.Reason(err))
				}
				if _, err := w.Write(last); err != nil {
					return err
				}
			}
		}
		lines = 0
		if f != nil {
			moved := !isOpen(f, name) // before the rest is read: nothing is added to a renamed file after that
			n, err := io.Copy(w, io.NewSectionReader(f, at, 1<<62))
			if at += n; err != nil {
				return err
			}
			if info, err := f.Stat(); moved || err == nil && info.Size() < at {
				f.Close()
				f, at = nil, 0
				continue
			}
		}
		if !pace.Sleep(ctx, followPoll, nil) {
			return nil
		}
	}
}

// isOpen reports whether the file of that name is f. It is true if there is none: the next one comes soon.
func isOpen(f *os.File, name string) bool {
	own, err := f.Stat()
	is, other := os.Stat(name)
	return err != nil || other != nil || os.SameFile(own, is)
}
