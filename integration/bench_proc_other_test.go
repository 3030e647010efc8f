//go:build !linux

package integration

import (
	"errors"
	"os"
	"syscall"
	"time"
)

func childAttr(syscall.Signal) *syscall.SysProcAttr { return nil }

func killGroup(pid int) {
	if p, err := os.FindProcess(pid); err == nil {
		p.Kill()
	}
}

func yieldCPU() {}

func peakMemory(int) (int64, error) { return 0, errors.ErrUnsupported }

func cpuTime([]int) (time.Duration, error) { return 0, errors.ErrUnsupported }

func resident(int) (all, own int64, err error) { return 0, 0, errors.ErrUnsupported }

func childPIDs(int) []int { return nil }
