//go:build !linux

package process

import (
	"errors"
	"os"
	"syscall"
	"time"
)

func ChildAttr(syscall.Signal) *syscall.SysProcAttr { return nil }

func KillGroup(pid int) {
	if p, err := os.FindProcess(pid); err == nil {
		p.Kill()
	}
}

func YieldCPU() {}

func PeakMemory(int) (int64, error) { return 0, errors.ErrUnsupported }

func CPUTime([]int) (time.Duration, error) { return 0, errors.ErrUnsupported }

func Resident(int) (all, own int64, err error) { return 0, 0, errors.ErrUnsupported }

func children() map[int][]int { return nil }

func ownedBy(string) []int { return nil }

func isOwned(int, string) bool { return false }
