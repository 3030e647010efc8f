package store

import (
	"fmt"
	"path/filepath"
	"testing"
)

func BenchmarkAccess(b *testing.B) {
	s := mustOpen(b, database{SQLite, filepath.Join(b.TempDir(), "junction.db"), mustRing(b, "a")}, nil)
	mustIssue(b, s, mustGrant(b, s, "ann"), "rt0")
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := s.Access(b.Context(), "sig-at-rt0"); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkRefresh(b *testing.B) {
	s := mustOpen(b, database{SQLite, filepath.Join(b.TempDir(), "junction.db"), mustRing(b, "a")}, nil)
	mustIssue(b, s, mustGrant(b, s, "ann"), "rt0")
	i := 0
	for b.Loop() {
		if _, err := exchange(b.Context(), s, "client", fmt.Sprintf("rt%d", i), fmt.Sprintf("rt%d", i+1)); err != nil {
			b.Fatal(err)
		}
		i++
	}
}
