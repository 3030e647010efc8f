//go:build !linux && !darwin && !freebsd

package health

import "errors"

// freeIn returns an error, because the system does not tell.
func freeIn(string) (int64, error) { return 0, errors.ErrUnsupported }
