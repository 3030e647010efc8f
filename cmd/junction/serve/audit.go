package serve

import (
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"junction/auth"
	"junction/cmd/build"
	"junction/cmd/junction/base/config"
	"junction/cmd/junction/base/record"
	"junction/cmd/junction/base/telemetry"
	"junction/proxy"
	"junction/upstream/prose"
)

// nextAudit returns the audit for a configuration, as (*record.Trail).Next does. Several clients may start
// junction stdio with one configuration: the second one of these processes writes a file of its own beside
// the file of the first.
func (p *program) nextAudit(c config.Audit) (*record.Audit, error) {
	if p.inner && c.File == p.auditOf {
		c.File = p.auditInstead
	}
	a, err := p.audit.Next(c, p.stderr, p.log)
	given, taken := c.File, errors.Is(err, record.ErrShared)
	for n := 2; p.inner && errors.Is(err, record.ErrShared) && n <= maxInner; n++ {
		end := filepath.Ext(given)
		c.File = strings.TrimSuffix(given, end) + "." + strconv.Itoa(n) + end
		a, err = p.audit.Next(c, p.stderr, p.log)
	}
	if taken && err == nil {
		p.auditOf, p.auditInstead = given, c.File
		p.log.Warn("another process writes the audit; this one writes a file of its own", "file", c.File)
	}
	return a, err
}

// maxInner is the most processes of junction stdio that have a file for the audit of one configuration.
const maxInner = 64

// openAuditExport prepares the second receiver of the audit, if the environment names one. A reload may
// begin to use it. Without use, a wrong variable is no error: the other signals have reported it.
func (p *program) openAuditExport(use bool) (err error) {
	if p.auditExport, err = telemetry.NewLines(p.telemetryOptions(false), "junction.audit"); p.auditExport != nil {
		p.audit.Second = p.auditExport
	}
	if err != nil && use {
		return fmt.Errorf("audit.otlp: %w", err)
	}
	return nil
}

func (p *program) closeAuditExport() {
	if p.auditExport != nil {
		p.closeExport(p.auditExport.Close, "the last lines of the audit were not sent; its file has them")
	}
}

// record writes an event of the program itself.
func (p *program) record(name, detail string, outcome proxy.Outcome) {
	p.audit.Event(record.Event{Name: name, Detail: detail, Outcome: outcome})
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

// changedKeys writes a line for each key that a reload has added or revoked to the log and to the audit.
func (p *program) changedKeys(event, how string, keys []auth.Key) {
	shown := keys[:min(len(keys), maxKeyLines)]
	for _, k := range shown {
		p.log.Info("key "+how+" by a reload", "principal", "key:"+k.Name, "key_id", k.Hash.ID())
		p.audit.Event(record.Event{Name: event, Principal: "key:" + k.Name, KeyID: k.Hash.ID()})
	}
	if more := len(keys) - len(shown); more > 0 {
		p.log.Info("more keys "+how+" by a reload", "more", more)
		p.record(event, prose.Count(more, "more key"), proxy.OK)
	}
}
