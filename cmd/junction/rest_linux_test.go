package main

import (
	"os"
	"regexp"
	"strconv"
	"testing"
)

// TestRest: what starting brought of the program's file is given back, and the program goes on.
func TestRest(t *testing.T) {
	file := func() int {
		status, err := os.ReadFile("/proc/self/status")
		m := regexp.MustCompile(`RssFile:\s+(\d+) kB`).FindSubmatch(status)
		if m == nil {
			t.Fatalf("how much of files is resident: %v", err)
		}
		kb, _ := strconv.Atoi(string(m[1]))
		return kb
	}
	before := file()
	rest()
	if after := file(); after > before/2 {
		t.Errorf("of files %d kB are resident after %d kB before, want less than half", after, before)
	}
}
