package telemetry

import (
	"context"
	"errors"
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
}

// forwardOutcomes are those of Replicas.Forwarded.
var forwardOutcomes = []string{"ok", "gone", "lost", "cancelled", "failed"}

// watchReplicas makes the instruments of several processes. All values are 0 if there is one.
func watchReplicas(m metric.Meter, read func() Replicas) error {
	if read == nil {
		read = func() Replicas { return Replicas{} }
	}
	alive, err1 := m.Int64ObservableGauge("junction.replicas",
		metric.WithDescription("Processes over one database, with this one; 0 without replicas."))
	lease, err2 := m.Int64ObservableGauge("junction.replicas.lease", metric.WithUnit("s"),
		metric.WithDescription("Time until this process is no replica; 0 if it is none."))
	forwarded, err3 := m.Int64ObservableCounter("junction.replicas.forwarded",
		metric.WithDescription("Requests that were forwarded to another replica."))
	received, err4 := m.Int64ObservableCounter("junction.replicas.received",
		metric.WithDescription("Requests that another replica has forwarded."))
	claimed, err5 := m.Int64ObservableCounter("junction.replicas.claimed",
		metric.WithDescription("Sessions of ended replicas that this process has taken over."))
	if err := errors.Join(err1, err2, err3, err4, err5); err != nil {
		return err
	}
	_, err := m.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		r := read()
		o.ObserveInt64(alive, int64(r.Members))
		o.ObserveInt64(lease, int64(r.Lease/time.Second))
		o.ObserveInt64(received, r.Received)
		o.ObserveInt64(claimed, r.Claimed)
		for _, outcome := range forwardOutcomes {
			o.ObserveInt64(forwarded, r.Forwarded[outcome], metric.WithAttributes(attrForwarded.String(outcome)))
		}
		return nil
	}, alive, lease, forwarded, received, claimed)
	return err
}
