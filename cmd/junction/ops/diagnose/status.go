package diagnose

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	"junction/cmd/junction/base/runfile"
)

// This file answers /status of the admin address: the report of /readyz, and values that take more
// time to find out. status_command.go of package admin prints it.

// Running is the answer of /status.
type Running struct {
	Version string `json:"version"`
	// the version of the program that a restart would start, if an upgrade has replaced it
	Installed string `json:"on_disk,omitempty"`

	URL     string    `json:"url"`                  // for clients on this machine
	Public  string    `json:"public_url,omitempty"` // for others; "" if the file has no public_url
	Config  string    `json:"config,omitempty"`
	File    string    `json:"file,omitempty"` // Config as an absolute path
	User    string    `json:"user,omitempty"` // of the operating system, who runs the process
	Read    string    `json:"read,omitempty"` // SHA-256 of the configuration file as it was read last
	PID     int       `json:"pid"`
	Started time.Time `json:"started"`
	// the file from which a service of the user reads its variables
	Variables string `json:"variables,omitempty"`
	// the files and folders beside Config that a backup needs, as absolute paths; they may not exist
	Keeps []string `json:"keeps,omitempty"`
	Report
}

// LastCall is the last call of an upstream that has ended.
type LastCall struct {
	Time    time.Time `json:"time"`
	Name    string    `json:"name"` // as the client called it
	Outcome string    `json:"outcome"`
}

// Process describes the process of the proxy, for /status.
type Process struct {
	URL      string
	Public   func() string // returns the URL of the endpoint for others, or ""
	Started  time.Time
	Read     func() string                   // returns the SHA-256 of the configuration file as it was read last
	LastCall func(upstream string) *LastCall // returns nil if there was none
	// the file from which a service of the user reads its variables; "" without such a service
	Variables string
	// the file with the key of sessions, and the folder of ordered certificates, which a backup needs; "" without them
	Keeps []string
	// returns the version of the program that a restart would start; "" if it is this one
	Installed func() string
}

// serveStatus returns the handler of /status.
func (p *Proxy) serveStatus(stopping context.Context) http.HandlerFunc {
	return func(w http.ResponseWriter, request *http.Request) {
		r := Running{Version: p.Version, Installed: p.Process.Installed(), URL: p.Process.URL,
			Public: p.Process.Public(), Config: p.File,
			Read: p.Process.Read(), PID: os.Getpid(), Started: p.Process.Started, Variables: p.Process.Variables,
			User: runfile.User(), Report: p.Report(stopping)}
		if abs, err := filepath.Abs(p.File); p.File != "" && err == nil {
			r.File = abs
		}
		for _, name := range append(slices.Clip(p.Process.Keeps), p.Config().Pins, p.Config().Audit.File) {
			if abs, err := filepath.Abs(name); name != "" && err == nil {
				r.Keeps = append(r.Keeps, abs)
			}
		}
		p.ListProcesses(&r.Report, p.showsPeople(request))
		var pids []int
		for i := range r.Upstreams {
			for _, c := range r.Upstreams[i].Running {
				pids = append(pids, c.PID)
			}
		}
		memory := MemoryOf(pids)
		calls, waiting := map[string]int{}, map[string]int{}
		for _, u := range p.Set.All() {
			n, more := u.Load()
			calls[u.Name()] += n
			waiting[u.Name()] += more
		}
		for i := range r.Upstreams {
			u := &r.Upstreams[i]
			u.Calls, u.Waiting, u.LastCall = calls[u.Name], waiting[u.Name], p.Process.LastCall(u.Name)
			for n := range u.Running {
				u.Running[n].Memory = memory[u.Running[n].PID]
				u.Memory += u.Running[n].Memory
			}
		}
		writeJSON(w, http.StatusOK, r)
	}
}
