package raw

// plainBlocks skips blocks of plain bytes from i on, 64 at a time, with the instructions that every processor of this kind has. A long string takes it half the time that
// it takes plainWords, at least.
//
//go:noescape
func plainBlocks(b []byte, i int) int
