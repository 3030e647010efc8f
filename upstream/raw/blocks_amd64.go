package raw

import "golang.org/x/sys/cpu"

// wide is whether the processor can look at 32 bytes in one step. Nearly all that are younger than
// 2015 can.
var wide = cpu.X86.HasAVX2

// skipBlocks is skipWords, or what is faster.
func skipBlocks(b []byte, i int) int {
	if wide {
		return skipWide(b, i)
	}
	return skipWords(b, i)
}

// skipWide is skipWords with 32 bytes in one step. A long string takes it a sixth of the time, and
// an escape next to none. It must not be called unless wide is true.
//
//go:noescape
func skipWide(b []byte, i int) int
