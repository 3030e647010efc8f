package health

import (
	"errors"
	"strings"
	"testing"
)

// TestCheckDisk: a full disk is named with the key of its file. A disk that cannot be asked is no fault.
func TestCheckDisk(t *testing.T) {
	files := []File{{"audit.file", "/logs/a.jsonl"}, {"storage.dsn", "/data/j.db"}}
	for name, test := range map[string]struct {
		free map[string]int64
		want string
	}{
		"space":    {map[string]int64{"/logs": 1 << 30, "/data": 1 << 30}, ""},
		"full":     {map[string]int64{"/logs": 1 << 30, "/data": 4096}, "the disk of /data (storage.dsn) is full: less than 16 MiB are free"},
		"no reply": {map[string]int64{"/logs": -1, "/data": 1 << 30}, ""},
	} {
		err := checkDisk(files, func(dir string) (int64, error) {
			if n := test.free[dir]; n >= 0 {
				return n, nil
			}
			return 0, errors.New("gone")
		})
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
	if err := CheckDisk([]File{{"here", t.TempDir() + "/x"}}); err != nil {
		t.Skipf("this disk is full: %v", err)
	}
}
