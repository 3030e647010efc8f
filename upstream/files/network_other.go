//go:build !linux

package files

// Network returns "": only Linux is asked for the type of a file system.
func Network(string) string { return "" }

// Crossing returns "".
func Crossing(string, string) string { return "" }
