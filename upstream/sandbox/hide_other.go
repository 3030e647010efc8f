//go:build !linux

package sandbox

// HideEnvironment does nothing: only Linux has PR_SET_DUMPABLE.
func HideEnvironment() {}
