package store

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// This file has the processes that use a Postgres as replicas, and what their rows in the table members
// say of them. A command that changes what all of them share asks here first.

// JoinLock and the id of the table members are the key of the advisory lock that a replica takes while
// it joins. It must not change, because processes of all versions take it.
const JoinLock = 0x6a756e6302 << 16

// MasterKeys is the name of the fact of a row that has Store.Prints, with commas. The name begins with ~,
// so that a process of a version without the fact accepts the row.
const MasterKeys = "~master_keys"

// member is a process that uses the database as a replica, and has a lease in the table members
// (package replicas) that has not ended.
type member struct {
	address string
	since   time.Time // when it joined, by the clock of the database
	schema  int       // that its program is made for; 0 if its row does not have it
	keys    []string  // Prints of its master keys; none if its row does not have them
}

// members returns the processes that use the database as replicas now.
func (s *Store) members(ctx context.Context) (all []member, err error) {
	err = s.all(ctx, func(scan func(places ...any) error) error {
		var m member
		var shared string
		var begun int64
		err := scan(&m.address, &shared, &begun)
		m.since, m.schema, m.keys = time.UnixMicro(begun).UTC(), SchemaOf(shared), Fact(shared, MasterKeys)
		all = append(all, m)
		return err
	}, `SELECT address, digest, begun_at FROM members
		WHERE expires_at > (extract(epoch FROM statement_timestamp()) * 1000000)::bigint ORDER BY address`)
	return all, err
}

// holdMembers is members, and keeps further processes from joining until the transaction ends.
func (s *Store) holdMembers(ctx context.Context) ([]member, error) {
	if _, err := s.exec(ctx, `SELECT pg_advisory_xact_lock($1 + 'members'::regclass::oid::bigint)`,
		int64(JoinLock)); err != nil {
		return nil, err
	}
	return s.members(ctx)
}

// Members returns the addresses of the processes that use the database as replicas now.
func (s *Store) Members(ctx context.Context) (addresses []string, err error) {
	all, err := s.members(ctx)
	for _, m := range all {
		addresses = append(addresses, m.address)
	}
	return addresses, err
}

// Fact returns the values of a fact in the description that a process has in its row of the table
// members, in the form "~schema=2 ~master_keys=a:1f2e,b:3d4c auth=1f2e3d4c …"; none if it lacks the fact.
func Fact(shared, name string) []string {
	for part := range strings.FieldsSeq(shared) {
		if text, found := strings.CutPrefix(part, name+"="); found {
			return strings.Split(text, ",")
		}
	}
	return nil
}

// SchemaOf returns the version of the schema in the description of a process; 0 if it has none.
func SchemaOf(shared string) (version int) {
	if values := Fact(shared, "~schema"); len(values) == 1 {
		version, _ = strconv.Atoi(values[0])
	}
	return version
}

// Prints returns the ids and the fingerprints of the master keys, in order.
func (s *Store) Prints() []string { return s.keys.Prints() }

// MayJoin returns an error if this process must not become a replica: ErrNewer if the schema has been
// migrated since Open to one that the program does not know, and ErrKeys if the store has been sealed
// anew since with a master key that the process lacks. The caller holds JoinLock.
func (s *Store) MayJoin(ctx context.Context) error {
	version, err := s.version(ctx)
	switch {
	case err != nil:
		return err
	case s.isNewer(version):
		return s.newer(version)
	}
	_, err = s.checkKeys(ctx)
	return err
}

// mayReencrypt returns an error if another process does not encrypt with the first master key: it could
// not read what is sealed with this key, or would go on to seal with another one. No process joins
// until the transaction ends.
func (s *Store) mayReencrypt(ctx context.Context) error {
	prints := s.Prints()
	if !s.postgres || len(prints) == 1 { // the check of the keys has shown that the only key is in use
		return nil
	}
	others, err := s.holdMembers(ctx)
	if err != nil {
		return err
	}
	var list []string
	for _, m := range others {
		has := "its version does not say which keys it has"
		switch {
		case len(m.keys) > 0 && m.keys[0] == prints[0]:
			continue
		case slices.Contains(m.keys, prints[0]):
			has = "it encrypts with " + id(m.keys[0])
		case len(m.keys) > 0:
			has = "it does not know the key"
		}
		list = append(list, fmt.Sprintf("%s (since %s; %s)", m.address, m.since.Format(time.RFC3339), has))
	}
	if len(list) == 0 {
		return nil
	}
	return fmt.Errorf("%w: the first master key is %s here, and these processes do not encrypt with it: %s; "+
		"nothing was changed; add the key as the last one for every process and restart all of them, then make it "+
		"the first one and restart all of them, then run this again; a process that was killed counts until its "+
		"lease has ended (15s)", ErrMembers, id(prints[0]), strings.Join(list, ", "))
}

// id returns the id of a key of Prints.
func id(print string) string {
	id, _, _ := strings.Cut(print, ":")
	return id
}
