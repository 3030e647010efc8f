package store

import (
	"context"
	"database/sql/driver"
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// ErrChanged means that another program has changed a row. Nothing is decided by such a row.
var ErrChanged = errors.New("another program has changed the row, or its master key is missing; " +
	"junction storage check lists such rows")

// bound is a record whose row is bound to the master keys: see the tables in sealed.go.
type bound interface {
	record
	// free returns the columns of fields() that are not bound, because no decision depends on them.
	free() []string
	// ended reports whether the row permits nothing any more. Such a row needs no code.
	ended() bool
}

// boundRows are the bound records with the keys of their tables.
var boundRows = []struct {
	key   string
	blank func() bound
}{
	{"id", func() bound { return &User{} }},
	{"id", func() bound { return &IDPSession{} }},
	{"id_hash", func() bound { return &WebSession{} }},
	{"id_hash", func() bound { return &AuthRequest{} }},
	{"id", func() bound { return &Grant{} }},
	{"signature", func() bound { return &Code{} }},
	{"signature", func() bound { return &pkce{} }},
	{"signature", func() bound { return &Token{} }},
	{"url", func() bound { return &Document{} }},
	{"id", func() bound { return &UpstreamClient{} }},
	{"id", func() bound { return &Connection{} }},
}

// macColumn has the code of a row.
const macColumn = "mac"

// code is the place of a row's code, in memory.
type code struct {
	row    bound
	stored []byte // set by scan
}

// binding returns the text that a row's sealed values and its code are bound to: the name of the
// table, and each bound column that is not empty, sorted by name. A later version can add a column
// whose default is empty, and the codes of older rows stay valid.
func binding(r bound) []byte {
	free, all := r.free(), r.fields()
	slices.SortFunc(all, func(a, b field) int { return strings.Compare(a.column, b.column) })
	text := appendPart(nil, []byte(r.table()))
	for _, f := range all {
		if value := plain(f.value); len(value) > 0 && !slices.Contains(free, f.column) {
			text = appendPart(appendPart(text, []byte(f.column)), value)
		}
	}
	return text
}

// appendPart appends a value after its length, so that no two lists of values have the same text.
func appendPart(text, value []byte) []byte {
	return append(binary.AppendUvarint(text, uint64(len(value))), value...)
}

// plain returns the text of a field's value; "" for the zero value, which is stored as NULL, ” or 0.
func plain(value any) []byte {
	number := int64(0)
	switch v := value.(type) {
	case *string:
		return []byte(*v)
	case *[]byte:
		return *v
	case *int64:
		number = *v
	case *time.Time:
		number = seconds(*v)
	case driver.Valuer:
		if text, err := v.Value(); err == nil && text != nil {
			return fmt.Append(nil, text)
		}
	default:
		panic(fmt.Sprintf("store: a field is a %T", value)) // a mistake in fields()
	}
	if number == 0 {
		return nil
	}
	return strconv.AppendInt(nil, number, 10)
}

// sign returns the code of a row. It covers the bound columns, and which secrets the row has.
func (s *Store) sign(r bound) []byte { return s.codes.Sum(signed(r)) }

func signed(r bound) []byte {
	text := binding(r)
	for _, f := range secretsOf(r) {
		if *f.value.(*secret).text != "" {
			text = appendPart(text, []byte(f.column))
		}
	}
	return text
}

// verify returns an error that wraps ErrChanged unless the code of a row is right. The secrets of
// the row must be open.
func (s *Store) verify(c *code) error {
	if err := s.codes.Verify(c.stored, signed(c.row)); err != nil {
		return fmt.Errorf("table %s: %w: %w", c.row.table(), ErrChanged, err)
	}
	return nil
}

// sameRow returns ErrChanged unless each value is the one that the query has asked for, which the
// values of pairs are. The database alone must not decide which row answers a query.
func sameRow(table string, pairs ...string) error {
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i] != pairs[i+1] {
			return fmt.Errorf("table %s: %w: the database has answered with another row", table, ErrChanged)
		}
	}
	return nil
}

// clear removes what was read from rows that must not be used.
func (rs into) clear() {
	for _, r := range rs {
		reflect.ValueOf(r).Elem().SetZero()
	}
}

// put stores all columns of a record that it has, its secrets and its code, in the row with a key.
func (s *Store) put(ctx context.Context, r record, key, value string) error {
	var set []string
	args := []any{value}
	for _, f := range columnsOf(r) {
		args = append(args, s.stored(f.value))
		set = append(set, f.column+" = $"+strconv.Itoa(len(args)))
	}
	return s.only(ctx, `UPDATE `+r.table()+` SET `+strings.Join(set, ", ")+` WHERE `+key+` = $1`, args...)
}

// boundRow is a row as eachBound reads it.
type boundRow struct {
	bound
	key     string
	code    *code
	secrets []*secret
	err     error // wraps ErrChanged if the row must not be used
}

const boundBatch = 500 // rows of one query of eachBound

// eachBound reads all rows of a table with bound rows, and calls use for each. Rows that are added
// or change meanwhile may be left out.
func (s *Store) eachBound(ctx context.Context, key string, blank func() bound,
	use func(boundRow) error) error {
	after := ""
	for {
		rows, err := s.boundAfter(ctx, key, after, blank)
		if err != nil {
			return err
		}
		for _, row := range rows {
			if err := use(row); err != nil {
				return err
			}
		}
		if len(rows) < boundBatch {
			return nil
		}
		after = rows[len(rows)-1].key
	}
}

// expression returns what reads a column of a row: if an older schema lacks the column, the empty
// value, which a migration gives to existing rows.
func (s *Store) expression(table string, f field) string {
	if s.hasColumn(table, f.column) {
		return f.column
	}
	switch f.value.(type) {
	case *string:
		return "''"
	case *int64, *time.Time:
		return "0"
	}
	return "NULL"
}

// boundAfter reads the next rows after a key.
func (s *Store) boundAfter(ctx context.Context, key, after string, blank func() bound) (rows []boundRow, err error) {
	table := blank().table()
	var names []string
	for _, f := range columnsOf(blank()) {
		names = append(names, s.expression(table, f))
	}
	err = s.all(ctx, func(scan func(places ...any) error) error {
		row := boundRow{bound: blank()}
		_, places := into{row.bound}.columns(true)
		for i, place := range places { // read as they are, since a row that cannot be used must not end the loop
			switch p := place.(type) {
			case *secret:
				row.secrets = append(row.secrets, p)
				places[i] = &p.sealed
			case *code:
				row.code = p
				places[i] = &p.stored
			}
		}
		switch err := scan(append([]any{&row.key}, places...)...); {
		case err == nil:
			row.err = s.settle(row.secrets, row.code)
		case errors.Is(err, ErrChanged):
			row.err = fmt.Errorf("table %s: %w", table, err)
		default:
			return err
		}
		rows = append(rows, row)
		return nil
	}, `SELECT `+key+`, `+strings.Join(names, ", ")+` FROM `+table+` WHERE `+key+` > $1 ORDER BY `+key+` LIMIT $2`,
		after, boundBatch)
	return rows, err
}

// settle opens the secrets of a row, and verifies its code.
func (s *Store) settle(secrets []*secret, c *code) error {
	for _, p := range secrets {
		plain, err := s.open(p)
		if err != nil {
			return err
		}
		*p.text = string(plain)
	}
	if c == nil || c.row.ended() {
		return nil
	}
	return s.verify(c)
}
