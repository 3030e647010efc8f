// Command needs says which tests this machine skips, and what is missing for them.
package main

import (
	"fmt"

	"junction/integration/harness/needs"
	"junction/upstream/sandbox"
)

func main() {
	missing := 0
	say := func(format string, args ...any) {
		missing++
		fmt.Printf("skipped: "+format+"\n", args...)
	}
	for _, n := range needs.All() {
		if err := n.Find(); err != nil {
			from := ""
			if n.Package != "" {
				from = "; Debian has it in " + n.Package
			}
			say("tests of %s: %s is missing (%v)%s", n.For, n.Name, err, from)
		}
	}
	if lack := sandbox.Kernel().Missing(&sandbox.Rules{}); lack != "" {
		say("tests of what a sandbox enforces: %s", lack)
	}
	if missing == 0 {
		fmt.Println("No test is skipped for want of something.")
	}
}
