//go:build !unix

package telemetry

import "time"

// readSystem returns what the system tells: nothing.
func readSystem() map[string]int64 { return nil }

// FileLimit returns 0, because the system does not tell how many files the process may have open.
func FileLimit() int64 { return 0 }

// cpuTime returns 0, because the system does not tell it.
func cpuTime() time.Duration { return 0 }
