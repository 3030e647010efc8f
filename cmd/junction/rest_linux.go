package main

import (
	"bufio"
	"fmt"
	"os"
	"runtime/debug"
	"strings"

	"golang.org/x/sys/unix"
)

// rest gives the system back what only starting needed: memory of our own, which the collector, with little to do from now on, would keep for long, and the pages of the
// program's file. Of those the system brings many more than are asked for, and nearly all belong to what is done once. One that is needed again comes from its cache.
func rest() {
	debug.FreeOSMemory()
	maps, err := os.Open("/proc/self/smaps")
	if err != nil {
		return
	}
	defer maps.Close()
	program, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return
	}
	var start, end uintptr // of the mapping that the lines are about, if that is one to give back
	for lines := bufio.NewScanner(maps); lines.Scan(); {
		line := lines.Text()
		switch words := strings.Fields(line); {
		case len(words) < 2:
		case !strings.HasSuffix(words[0], ":"): // a mapping begins: its addresses, access, …, file
			start, end = 0, 0
			if access := words[1]; strings.HasPrefix(access, "r-") && strings.HasSuffix(access, "p") && strings.HasSuffix(line, " "+program) {
				fmt.Sscanf(words[0], "%x-%x", &start, &end)
			}
		case words[0] == "Anonymous:" && words[1] == "0" && end > start: // else a debugger or a probe has written into it, which must stay
			unix.Syscall(unix.SYS_MADVISE, start, end-start, unix.MADV_DONTNEED) // an error is that nothing is given back
		}
	}
}
