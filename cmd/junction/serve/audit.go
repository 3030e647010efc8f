package serve

import (
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"junction/auth"
	"junction/cmd/build"
	"junction/cmd/junction/base/config"
	"junction/cmd/junction/base/record"
	"junction/cmd/junction/base/telemetry"
	"junction/cmd/junction/base/telemetry/otlp"
	"junction/proxy"
	"junction/upstream/prose"
)

// recording is the audit, and its second receiver.
type recording struct {
	*common
	audit   record.Trail
	export  *otlp.Lines // nil if the environment names no receiver
	beside  beside
	revoked *revoked
}

// beside is where an inner program writes its audit: given is the file of the configuration, which
// another process writes, and own is its own file.
type beside struct{ given, own string }

// Open opens the audit.
func (r *recording) Open(c *config.Config) error {
	r.audit.Log = r.log
	if err := r.openExport(c.Audit.OTLP); err != nil {
		return err
	}
	next, err := r.Prepare(c)
	if err == nil {
		next.commit()
	}
	return err
}

// Prepare opens the audit of a configuration.
func (r *recording) Prepare(next *config.Config) (prepared, error) {
	a, place, err := r.next(next.Audit)
	if err != nil {
		return prepared{}, err
	}
	return prepared{
		use: func() {
			if place != r.beside {
				r.beside = place
				r.log.Warn("another process writes the audit; this one writes a file of its own", "file", place.own)
			}
			r.audit.Use(a)
		},
		release: func() { r.audit.Drop(a) },
	}, nil
}

// Close writes what is left of the audit.
func (r *recording) Close() {
	r.audit.Use(nil)
	if r.export != nil {
		r.sendLast(r.export.Close, "the last lines of the audit were not sent; its file has them")
	}
}

// next returns the audit for a configuration, as (*record.Trail).Next does. Several clients may
// start junction stdio with one configuration: the second one of these processes writes a file of
// its own beside the file of the first.
func (r *recording) next(c config.Audit) (*record.Audit, beside, error) {
	if r.inner && c.File == r.beside.given {
		c.File = r.beside.own
	}
	a, err := r.audit.Next(c, r.stderr, r.log)
	given, taken := c.File, errors.Is(err, record.ErrShared)
	for n := 2; r.inner && errors.Is(err, record.ErrShared) && n <= maxInner; n++ {
		end := filepath.Ext(given)
		c.File = strings.TrimSuffix(given, end) + "." + strconv.Itoa(n) + end
		a, err = r.audit.Next(c, r.stderr, r.log)
	}
	if taken && err == nil {
		return a, beside{given, c.File}, nil
	}
	return a, r.beside, err
}

// maxInner is the most processes of junction stdio that have a file for the audit of one
// configuration.
const maxInner = 64

// openExport prepares the second receiver of the audit, if the environment names one. A reload may
// begin to use it. Without use, a wrong variable is no error: the other signals have reported it.
func (r *recording) openExport(use bool) (err error) {
	if r.export, err = telemetry.NewLines(r.telemetryOptions(false), "junction.audit"); r.export != nil {
		r.audit.Second = r.export
	}
	if err != nil && use {
		return fmt.Errorf("audit.otlp: %w", err)
	}
	return nil
}

// event writes an event of the program itself.
func (r *recording) event(name, detail string, outcome proxy.Outcome) {
	r.audit.Event(record.Event{Name: name, Detail: detail, Outcome: outcome})
}

// fingerprint returns the detail that identifies a configuration file.
func fingerprint(file string, hash [32]byte) string {
	if file == "" {
		return "version " + build.Read().Version + ", without a file"
	}
	return "version " + build.Read().Version + ", " + file + ", sha256 " + hex.EncodeToString(hash[:])
}

// maxKeyLines limits the lines about the keys that one reload adds or revokes.
const maxKeyLines = 50

// changedKeys writes a line for each key that a reload has added or revoked to the log and to the
// audit.
func (r *recording) changedKeys(event, how string, keys []auth.Key) {
	shown := keys[:min(len(keys), maxKeyLines)]
	for _, k := range shown {
		r.log.Info("key "+how+" by a reload", "principal", "key:"+k.Name, "key_id", k.Hash.ID())
		e := record.Event{Name: event, Principal: "key:" + k.Name, KeyID: k.Hash.ID()}
		if at, was := r.revoked.back[k.Hash]; was {
			e.Detail = "the key was revoked at " + at.Format(time.RFC3339)
		}
		r.audit.Event(e)
	}
	if more := len(keys) - len(shown); more > 0 {
		r.log.Info("more keys "+how+" by a reload", "more", more)
		r.event(event, prose.Count(more, "more key"), proxy.OK)
	}
}

// maxPolicyLines limits the lines about the policies that one reload changes.
const maxPolicyLines = 50

// changedPolicies writes a line for each policy that a reload has added, changed or removed to the audit.
func (r *recording) changedPolicies(changes []config.PolicyChange) {
	shown := changes[:min(len(changes), maxPolicyLines)]
	for _, c := range shown {
		r.event("policy_"+c.How, strings.TrimSpace(c.Name+" "+c.What), proxy.OK)
	}
	if more := len(changes) - len(shown); more > 0 {
		r.event("policy_changed", prose.Count(more, "more policy change"), proxy.OK)
	}
}
