//go:build !amd64

package raw

// skipBlocks calls skipWords.
func skipBlocks(b []byte, i int) int { return skipWords(b, i) }
