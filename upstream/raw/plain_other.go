//go:build !amd64

package raw

// plainBlocks skips blocks of plain bytes from i on.
func plainBlocks(b []byte, i int) int { return plainWords(b, i) }
