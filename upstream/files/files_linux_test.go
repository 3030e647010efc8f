package files

import (
	"errors"
	"testing"
)

// Ensure that the limit holds for a file that has become larger since its size was read. The files of
// /proc are so: their size is 0.
func TestReadGrowing(t *testing.T) {
	const file = "/proc/self/status"
	text, err := Read(file, 1<<20)
	if err != nil || len(text) == 0 {
		t.Fatalf("%d bytes, %v", len(text), err)
	}
	if text, err := Read(file, 10); !errors.As(err, new(*TooLargeError)) {
		t.Errorf("%d bytes, %v; want that it is too large", len(text), err)
	}
}
