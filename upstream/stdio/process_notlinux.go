//go:build unix && !linux

package stdio

import (
	"os"
	"syscall"
)

// dieWithParent does nothing: the end of its input, and then the Watchdog, end the child.
func dieWithParent(*syscall.SysProcAttr) {}

// outputPair returns the two ends of the child's standard output.
func outputPair() (ours, theirs *os.File, err error) { return os.Pipe() }

// byDescriptor is "": no path names an open folder. The start is by its path, right after the folder was
// opened and compared.
const byDescriptor = ""
