//go:build !unix

package telemetry

// readSystem returns what the system tells: nothing.
func readSystem() (map[system]int64, float64) { return nil, 0 }
