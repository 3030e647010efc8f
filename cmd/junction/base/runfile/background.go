package runfile

import (
	"encoding/json"
	"os"
	"path/filepath"

	"junction/cmd/junction/base/config"
	"junction/upstream/files"
)

// Background is a process that a command has started to serve a file, without a terminal.
type Background struct {
	Process
	Log string `json:"log"`          // a file
	At  int64  `json:"at,omitempty"` // where the lines of the process begin in the log
}

// NoteBackground records that this process serves a configuration file in the background. log is the file
// of its log.
func NoteBackground(file, log string) error {
	record, err := backgroundOf(file)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(record), 0o700); err != nil {
		return err
	}
	b := Background{Process: This(), Log: log}
	if info, err := os.Stat(log); err == nil {
		b.At = info.Size()
	}
	text, err := json.Marshal(b)
	if err != nil {
		return err
	}
	return files.Write(record, append(text, '\n'))
}

// InBackground returns the process in the background that serves a configuration file now, or is ending.
func InBackground(file string) (Background, bool) {
	b, ok := LastBackground(file)
	p, running := Present(file)
	return b, ok && running && p.Is(b.Process)
}

// LastBackground returns the process in the background that was started last for a configuration file.
// It may have ended.
func LastBackground(file string) (b Background, ok bool) {
	record, err := backgroundOf(file)
	if err != nil {
		return b, false
	}
	text, err := files.Read(record, maxRecord)
	if err != nil || json.Unmarshal(text, &b) != nil {
		return Background{}, false
	}
	return b, true
}

// Start returns the command that starts Junction with a configuration file when it does not run: the process
// in the background again, if there was one, and otherwise a process at the terminal.
func Start(file string) string {
	if _, known := LastBackground(file); known {
		return config.Command(file, "service", "start")
	}
	return config.Start(file)
}

// ForgetBackground removes the record of NoteBackground.
func ForgetBackground(file string) {
	if record, err := backgroundOf(file); err == nil {
		os.Remove(record)
	}
}

func backgroundOf(file string) (string, error) {
	records, err := recordsOf(os.LookupEnv, file)
	return records + ".background", err
}
