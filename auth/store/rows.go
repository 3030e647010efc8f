package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// record is a row in memory. Its fields are columns of the table, each with the place of its value.
type record interface {
	table() string
	fields() []field
}

// sealer is a record with sealed columns. They are read with a single row, never with a list.
type sealer interface{ secrets() []field }

// field is a column and the place of its value, for which stored and scan know the types.
type field struct {
	column string
	value  any
}

// into are the records of one row, which joins their tables.
type into []record

// columnsOf returns the fields of a record, its secrets and its code.
func columnsOf(r record) []field {
	all := append(r.fields(), secretsOf(r)...)
	if b, ok := r.(bound); ok {
		all = append(all, field{macColumn, &code{row: b}})
	}
	return all
}

func secretsOf(r record) []field {
	if with, ok := r.(sealer); ok {
		return with.secrets()
	}
	return nil
}

// columns returns the columns of the records for a SELECT or RETURNING, and the places to scan
// them into. Without whole, secrets and codes are left out: then nothing verifies the rows.
func (rs into) columns(whole bool) (columns string, places []any) {
	var list strings.Builder
	for _, r := range rs {
		all, table := r.fields(), r.table()
		if whole {
			all = columnsOf(r)
		}
		for _, f := range all {
			if list.Len() > 0 {
				list.WriteString(", ")
			}
			list.WriteString(table)
			list.WriteByte('.')
			list.WriteString(f.column)
			places = append(places, f.value)
		}
	}
	return list.String(), places
}

// find reads one row into the records; tail follows the name of the first table in the SELECT. It
// returns ErrNotFound if there is none, and ErrChanged if a row is not as Junction wrote it. The
// caller compares what it has asked for with what it got (sameRow).
func (s *Store) find(ctx context.Context, rs into, tail string, args ...any) error {
	columns, places := rs.columns(true)
	err := s.get(ctx, places, `SELECT `+columns+` FROM `+rs[0].table()+` `+tail, args...)
	if errors.Is(err, ErrChanged) {
		rs.clear()
	}
	return err
}

// change runs a statement that changes one row, and reads the row into the record. It returns
// ErrNotFound if there is none, and ErrChanged as find does, after the change.
func (s *Store) change(ctx context.Context, r record, statement string, args ...any) error {
	columns, places := into{r}.columns(true)
	err := s.changeValues(ctx, places, statement+` RETURNING `+columns, args...)
	if errors.Is(err, ErrChanged) {
		into{r}.clear()
	}
	return err
}

// list returns the rows of a table without their sealed columns, for people to read. Nothing
// verifies the rows, so that one changed row does not hide the others. tail follows the name of the
// table in the SELECT.
func list[T any, R interface {
	*T
	record
}](ctx context.Context, s *Store, tail string, args ...any) (all []T, err error) {
	columns, _ := into{R(new(T))}.columns(false)
	err = s.all(ctx, func(scan func(places ...any) error) error {
		var one T
		_, places := into{R(&one)}.columns(false)
		err := scan(places...)
		if errors.Is(err, ErrChanged) {
			err = nil
		}
		all = append(all, one)
		return err
	}, `SELECT `+columns+` FROM `+R(new(T)).table()+` `+tail, args...)
	return all, err
}

// texts returns the only column of a query.
func (s *Store) texts(ctx context.Context, query string, args ...any) (all []string, err error) {
	err = s.all(ctx, func(scan func(places ...any) error) error {
		text := ""
		err := scan(&text)
		all = append(all, text)
		return err
	}, query, args...)
	return all, err
}

// insertion returns the statement that adds a record, and its arguments. more are columns that the
// record does not have, with their values.
func (s *Store) insertion(r record, more ...field) (statement string, args []any) {
	all := append(columnsOf(r), more...)
	var names, numbers []string
	for i, f := range all {
		names, numbers = append(names, f.column), append(numbers, "$"+strconv.Itoa(i+1))
		args = append(args, s.stored(f.value))
	}
	return `INSERT INTO ` + r.table() + ` (` + strings.Join(names, ", ") + `) VALUES (` +
		strings.Join(numbers, ", ") + `)`, args
}

// insert adds a record; see insertion.
func (s *Store) insert(ctx context.Context, r record, more ...field) error {
	statement, args := s.insertion(r, more...)
	_, err := s.exec(ctx, statement, args...)
	return err
}

// stored returns the stored form of a value.
func (s *Store) stored(value any) any {
	switch v := value.(type) {
	case *string:
		return *v
	case *[]byte:
		return *v
	case *int64:
		return *v
	case *time.Time:
		return seconds(*v)
	case *secret:
		return s.seal(v)
	case *code:
		return s.sign(v.row)
	}
	return value
}

// scan reads the columns of a row into their places. If the error is ErrChanged, it has read all of
// them.
func (s *Store) scan(row interface{ Scan(dest ...any) error }, places []any) error {
	targets, odd := make([]any, len(places)), error(nil)
	for i, place := range places {
		switch p := place.(type) {
		case *time.Time:
			targets[i] = moment{p, &odd}
		case *int64:
			targets[i] = number{p, &odd}
		case *secret:
			targets[i] = &p.sealed
		case *code:
			targets[i] = &p.stored
		default:
			targets[i] = place
		}
	}
	err := row.Scan(targets...)
	if err == nil {
		err = odd
	}
	var secrets []*secret
	for _, place := range places {
		switch p := place.(type) {
		case *secret:
			secrets = append(secrets, p)
		case *code: // it follows the secrets of its row
			if err == nil {
				err = s.settle(secrets, p)
			}
			secrets = nil
		}
	}
	return err
}

// querier is a database or a transaction.
type querier interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

func (s *Store) in(ctx context.Context, db *sql.DB) querier {
	if tx := txOf(ctx, s); tx != nil {
		return tx
	}
	return db
}

// exec runs a statement, and returns how many rows it changed.
func (s *Store) exec(ctx context.Context, query string, args ...any) (n int64, err error) {
	if err := storable(args); err != nil {
		return 0, err
	}
	defer s.took(Write, time.Now(), &err)
	ctx, cancel := s.within(ctx)
	defer cancel()
	result, err := s.in(ctx, s.write).ExecContext(ctx, query, args...)
	if err != nil {
		return 0, fmt.Errorf("store: %w", err)
	}
	return result.RowsAffected()
}

// only runs a statement that changes one row, and returns ErrNotFound if it changed none.
func (s *Store) only(ctx context.Context, query string, args ...any) error {
	n, err := s.exec(ctx, query, args...)
	if err == nil && n == 0 {
		return ErrNotFound
	}
	return err
}

// get reads the values of one row; it returns ErrNotFound if there is none.
func (s *Store) get(ctx context.Context, places []any, query string, args ...any) (err error) {
	defer s.took(Read, time.Now(), &err)
	return s.one(ctx, s.read, places, query, args)
}

// changeValues is get for a statement that changes the row and returns its values.
func (s *Store) changeValues(ctx context.Context, places []any, query string, args ...any) (err error) {
	defer s.took(Write, time.Now(), &err)
	return s.one(ctx, s.write, places, query, args)
}

func (s *Store) one(ctx context.Context, db *sql.DB, places []any, query string, args []any) error {
	if err := storable(args); err != nil {
		return err
	}
	ctx, cancel := s.within(ctx)
	defer cancel()
	switch err := s.scan(s.in(ctx, db).QueryRowContext(ctx, query, args...), places); {
	case errors.Is(err, sql.ErrNoRows):
		return ErrNotFound
	case err != nil:
		return fmt.Errorf("store: %w", err)
	}
	return nil
}

// all calls read for each row. scan reads the values of the row.
func (s *Store) all(ctx context.Context, read func(scan func(places ...any) error) error, query string,
	args ...any) (err error) {
	if err := storable(args); err != nil {
		return err
	}
	var broken error // of the database, not of read
	defer s.took(Read, time.Now(), &broken)
	ctx, cancel := s.within(ctx)
	defer cancel()
	rows, broken := s.in(ctx, s.read).QueryContext(ctx, query, args...)
	if broken != nil {
		return fmt.Errorf("store: %w", broken)
	}
	defer rows.Close()
	for err == nil && rows.Next() {
		err = read(func(places ...any) error { return s.scan(rows, places) })
	}
	broken = rows.Err()
	if err = errors.Join(err, broken); err != nil {
		return fmt.Errorf("store: %w", err)
	}
	return nil
}

// storable rejects texts that one of the two databases cannot store.
func storable(args []any) error {
	for _, arg := range args {
		if text, ok := arg.(string); ok && (!utf8.ValidString(text) || strings.IndexByte(text, 0) >= 0) {
			return ErrText
		}
	}
	return nil
}

// patience limits each statement and each transaction of a database that is reached over a network:
// one that does not answer must hold up no caller for longer.
const patience = 5 * time.Second

// within returns a context for a statement or a transaction, and what releases it.
func (s *Store) within(ctx context.Context) (context.Context, context.CancelFunc) {
	if s.patience == 0 {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, s.patience)
}
