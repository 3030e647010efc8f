package service

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"

	"junction/cmd/junction/config"
	"junction/cmd/junction/runfile"
	"junction/upstream/files"
)

// failureNote is why a process could not serve, so that junction service can tell it.
type failureNote struct {
	runfile.Process
	Failure string `json:"failure"`
}

// failureOf returns the file in which a process notes why it could not serve a configuration file.
func (h *Host) failureOf(file string) (string, error) {
	return h.stateDir("service", config.FolderOf(file)+".failure")
}

// failure returns why the last process that has failed has ended, or "".
func (h *Host) failure(file string) (failure string, by runfile.Process) {
	name, err := h.failureOf(file)
	if err != nil {
		return "", by
	}
	text, err := files.Read(name, maxDefinition)
	var n failureNote
	if err != nil || json.Unmarshal(text, &n) != nil {
		return "", by
	}
	return n.Failure, n.Process
}

func (h *Host) clearFailure(file string) {
	if name, err := h.failureOf(file); err == nil {
		os.Remove(name)
	}
}

// noteFailure keeps why this process could not serve.
func (h *Host) noteFailure(file string, failure error) {
	name, err := h.failureOf(file)
	if err != nil || os.MkdirAll(filepath.Dir(name), 0o700) != nil {
		return
	}
	if text, err := json.Marshal(failureNote{runfile.This(), failure.Error()}); err == nil {
		_ = files.Write(name, append(text, '\n')) // the log has it, too
	}
}

// tail returns the end of a file, or "".
func tail(name string) string {
	f, err := os.Open(name)
	if err != nil {
		return ""
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return ""
	} else if info.Size() > maxTail {
		_, _ = f.Seek(-maxTail, io.SeekEnd)
	}
	text, _ := io.ReadAll(io.LimitReader(f, maxTail)) // what could be read
	return string(text)
}

// maxTail is how much of the end of a log is read.
const maxTail = 4 << 10
