//go:build !unix

package telemetry

import "time"

// readSystem returns what the system tells: nothing.
func readSystem() map[string]int64 { return nil }

// cpuTime returns 0, because the system does not tell it.
func cpuTime() time.Duration { return 0 }
