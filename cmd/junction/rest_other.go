//go:build !linux

package main

import "runtime/debug"

// rest gives the system back the memory that only starting needed: the collector, with little to do from now on, would keep it for long.
func rest() { debug.FreeOSMemory() }
