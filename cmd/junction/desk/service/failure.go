package service

import (
	"encoding/json"
	"os"
	"path/filepath"

	"junction/cmd/junction/base/config"
	"junction/cmd/junction/base/runfile"
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
