package client

import "sync"

// A basis is how an era was found, which decides how long it is remembered.
type basis int

const (
	// provisional: the answer to server/discover proved nothing, and initialize succeeded. The next
	// attempt sends server/discover again.
	provisional basis = iota
	// assumed: the configuration says so, or the server was silent, or its process ended. The Dialer
	// remembers it.
	assumed
	// proven: the server said so. The next process of Junction may remember it, too.
	proven
)

// knowledge contains the era and the transport of an upstream, as earlier attempts have detected
// them. Its mutex guards the fields, and is held only while they are read or written.
type knowledge struct {
	sync.Mutex
	era       Era
	basis     basis     // of era
	transport Transport // the one that succeeded; TransportAuto if none is known
	against   int       // consecutive handshakes that contradicted era
	alone     bool      // the next attempt sends initialize alone
}

// denialsToForget is the number of consecutive handshakes that must contradict the known era until
// it is forgotten.
const denialsToForget = 2

// recall returns the last known era and transport of the server, and the basis of the era. The era
// is EraAuto if it is unknown.
func (k *knowledge) recall() (Era, Transport, basis) {
	k.Lock()
	defer k.Unlock()
	return k.era, k.transport, k.basis
}

// learn sets the era and the transport after a successful handshake, unless they are provisional.
func (k *knowledge) learn(era Era, remote Transport, found basis) {
	if found == provisional {
		return
	}
	k.Lock()
	defer k.Unlock()
	k.era, k.basis, k.transport, k.against, k.alone = era, found, remote, 0, false
}

// doubt counts a handshake that contradicted the known era. After the last one of denialsToForget,
// it forgets the era and returns true.
func (k *knowledge) doubt() bool {
	k.Lock()
	defer k.Unlock()
	if k.against++; k.against < denialsToForget {
		return false
	}
	k.era, k.basis, k.transport, k.against = EraAuto, provisional, TransportAuto, 0
	return true
}

// initializeAlone makes the next attempt send initialize without server/discover. It is for a
// command that was silent or ended after server/discover.
func (k *knowledge) initializeAlone() {
	k.Lock()
	defer k.Unlock()
	k.alone = true
}

// takeAlone reports whether this attempt sends initialize alone. The one after it does not.
func (k *knowledge) takeAlone() bool {
	k.Lock()
	defer k.Unlock()
	alone := k.alone
	k.alone = false
	return alone
}
