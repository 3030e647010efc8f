package runfile

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"junction/cmd/junction/base/config"
	"junction/upstream/files"
	"junction/upstream/prose"
)

// This file has how a process has ended that served a configuration file, or was to serve it.

// failureNote is why a process of a service could not serve.
type failureNote struct {
	Process
	Failure string `json:"failure"`
}

// failureOf returns the file in which a process notes why it could not serve a configuration file.
func failureOf(getenv func(string) (string, bool), file string) (string, error) {
	dir, err := config.StateDir(getenv)
	return filepath.Join(dir, "junction", "service", config.FolderOf(file)+".failure"), err
}

// Failure returns why the last process of a service that could not serve a configuration file has ended, or
// "". getenv is os.LookupEnv outside of tests.
func Failure(getenv func(string) (string, bool), file string) (failure string, by Process) {
	name, err := failureOf(getenv, file)
	if err != nil {
		return "", by
	}
	text, err := files.Read(name, maxRecord)
	var n failureNote
	if err != nil || json.Unmarshal(text, &n) != nil {
		return "", by
	}
	return n.Failure, n.Process
}

// ClearFailure removes the note of NoteFailure.
func ClearFailure(getenv func(string) (string, bool), file string) {
	if name, err := failureOf(getenv, file); err == nil {
		os.Remove(name)
	}
}

// NoteFailure keeps why this process could not serve a configuration file.
func NoteFailure(getenv func(string) (string, bool), file string, failure error) {
	name, err := failureOf(getenv, file)
	if err != nil || os.MkdirAll(filepath.Dir(name), 0o700) != nil {
		return
	}
	if text, err := json.Marshal(failureNote{This(), failure.Error()}); err == nil {
		_ = files.Write(name, append(text, '\n')) // the log has it, too
	}
}

// Ended says how the last process has ended that served a configuration file, or could not serve it; "" if it
// was stopped, or if nothing is known.
func Ended(file string) string {
	if failure, _ := Failure(os.LookupEnv, file); failure != "" {
		return failure
	}
	records, err := recordsOf(os.LookupEnv, file)
	if err != nil {
		return ""
	}
	var last Place
	for _, e := range list(records) { // a process that ends by itself removes its record
		if !e.Alive() && (last.PID == 0 || e.age() >= last.age()) {
			last = e.Place
		}
	}
	if last.PID == 0 {
		return ""
	}
	if b, ok := LastBackground(file); ok && b.Is(last.Process) {
		if words := LastWords(b.Log, b.At); words != "" {
			return fmt.Sprintf("process %d has crashed: %s", last.PID, words)
		}
	}
	return fmt.Sprintf("process %d has ended without a word: it has crashed, was killed, or the machine has ended",
		last.PID)
}

// LastWords returns the first line about a crash that was written to a log behind an offset; "" if there is
// none. The process that serves may write to the log, too.
func LastWords(log string, offset int64) string {
	f, err := os.Open(log)
	if err != nil {
		return ""
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return ""
	}
	if info.Size() < offset { // the log is a new one
		offset = 0
	}
	offset = max(offset, info.Size()-maxWords)
	if _, err := f.Seek(offset, io.SeekStart); err != nil {
		return ""
	}
	lines := bufio.NewScanner(io.LimitReader(f, maxWords))
	for lines.Buffer(nil, maxWords); lines.Scan(); {
		if line := lines.Text(); strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ") {
			return prose.Cut(prose.OneLine(line), 300)
		}
	}
	return ""
}

// maxWords is how much of the end of a log is read.
const maxWords = 1 << 20

// GoesOn says that the process that serves a file goes on with what it serves, for an error of a command that
// changes nothing; "" if no process serves the file.
func GoesOn(file string) string {
	if p, ok := Find(file); ok {
		return fmt.Sprintf("process %d goes on serving what it did", p.PID)
	}
	return ""
}

// Unchanged returns the error of a command that changes nothing, because of the mistakes of a file. It says
// what goes on, and what to do.
func Unchanged(file string, ps config.Problems) error {
	stays := GoesOn(file)
	if stays != "" {
		stays += "; "
	}
	return fmt.Errorf("nothing was changed, because the file has a mistake: %s; %scorrect the file, and run the "+
		"same command again", config.First(file, ps), stays)
}
