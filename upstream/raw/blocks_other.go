//go:build !amd64

package raw

func skipBlocks(b []byte, i int) int { return skipWords(b, i) }
