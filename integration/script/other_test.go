//go:build !unix

package script

import "testing"

func TestScript(t *testing.T) {
	t.Skip("the scripts use signals, file locks and links, which this system has not or in another way")
}

func scriptServer([]string) int { return 2 }
