//go:build !amd64

package raw

// skipBlocks is skipWords here.
func skipBlocks(b []byte, i int) int { return skipWords(b, i) }
