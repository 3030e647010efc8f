package telemetry

import (
	"time"

	"go.opentelemetry.io/otel/metric"
)

// Replicas are the figures of several processes over one database. See replicas.Figures.
type Replicas struct {
	Members   int              // alive, with this process
	Forwarded map[string]int64 // requests to other members, by outcome
	Received  int64            // requests of other members
	Claimed   int64            // sessions whose owner this process became
	Lease     time.Duration    // until this process is no member; 0 if it is none
	Differing map[string]int64 // members with another value, by key of the configuration
}

// forwardOutcomes are the outcomes of Replicas.Forwarded.
var forwardOutcomes = []string{"ok", "gone", "lost", "cancelled", "failed"}

var replicaGauges = []instrument{
	{"junction.replicas", "", "Processes over one database, with this one."},
	{"junction.replicas.lease", "s", "Time until this process is no replica; 0 if it is none."},
	{"junction.replicas.differing", "", "Replicas whose configuration differs from that of this process."},
}

var replicaCounters = []instrument{
	{"junction.replicas.forwarded", "", "Requests that were forwarded to another replica."},
	{"junction.replicas.received", "", "Requests that another replica has forwarded."},
	{"junction.replicas.claimed", "", "Sessions of ended replicas that this process has taken over."},
}

// watchReplicas makes the instruments of several processes. There are none if there is one process, so that
// a lease of 0 is always a lost one.
func watchReplicas(m metric.Meter, read func() Replicas) error {
	if read == nil {
		return nil
	}
	return observe(m, replicaCounters, replicaGauges, func(set reading) {
		r := read()
		set("junction.replicas", int64(r.Members))
		set("junction.replicas.lease", int64(r.Lease/time.Second))
		set("junction.replicas.received", r.Received)
		set("junction.replicas.claimed", r.Claimed)
		for key, n := range r.Differing {
			set("junction.replicas.differing", n, attrConfigKey.String(key))
		}
		for _, outcome := range forwardOutcomes {
			set("junction.replicas.forwarded", r.Forwarded[outcome], attrForwarded.String(outcome))
		}
	})
}
