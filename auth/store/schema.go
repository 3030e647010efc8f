package store

import (
	"context"
	"database/sql"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// This file compares the schema of a database with the schema that the migrations make. A trigger, a
// rule, a view or a default of another program could change or redirect what Junction stores.
//
// SQLite: the whole catalog of the file must be equal, each text of SQL included. So the comparison
// covers tables, virtual tables, generated columns, defaults, checks, indexes, triggers and views.
//
// Postgres: the tables of Junction must be equal, with columns, indexes and references, and must
// have no triggers, rules, policies, checks, parents or children. Other tables, views and functions
// of the schema are not compared: no statement of Junction names them.

// The table schema_migrations as SQLite keeps it.
const migrationsTable = `CREATE TABLE schema_migrations (version BIGINT PRIMARY KEY, at BIGINT NOT NULL)`

// difference is how a schema differs from that of the migrations.
type difference struct {
	text  string
	added bool // the schema has more than the migrations make, and lacks nothing for it
}

// checkSchema returns ErrSchema if no version of this program has made the schema.
func (s *Store) checkSchema(ctx context.Context, version int) error {
	all, err := s.differences(ctx, version)
	if err != nil || len(all) == 0 {
		return err
	}
	more := ""
	if len(all) > 1 {
		more = fmt.Sprintf(" (and %d more)", len(all)-1)
	}
	remedy := "remove what another program has added, or restore a backup"
	if i := slices.IndexFunc(all, func(d difference) bool { return !d.added }); i >= 0 {
		all[0] = all[i] // what is missing says more than what was added
		remedy = "another program has changed the schema, or a version from before 0.1.0 has made it: restore a " +
			"backup, or begin with an empty database"
	}
	return fmt.Errorf("%w: %s%s; %s", ErrSchema, all[0].text, more, remedy)
}

// differences returns what the schema has and a version of this program has not, and the reverse. A
// schema of the next version may have more.
func (s *Store) differences(ctx context.Context, version int) ([]difference, error) {
	more := version > len(s.steps)
	made, err := inMemory(ctx, s.steps[:min(version, len(s.steps))])
	if err != nil {
		return nil, fmt.Errorf("make the schema %d: %w", version, err)
	}
	defer made.Close()
	if s.postgres {
		return s.differencesPostgres(ctx, made, more)
	}
	wanted, err := made.catalog(ctx)
	if err != nil {
		return nil, err
	}
	found, err := s.catalog(ctx)
	if err != nil {
		return nil, err
	}
	if more {
		found = slices.DeleteFunc(found, func(o object) bool { return o.ofNext(wanted) })
		for i := range found {
			found[i].text = found[i].before(wanted)
		}
	}
	return compare(wanted, found), nil
}

// inMemory returns a SQLite store in memory with the schema that the steps make.
func inMemory(ctx context.Context, steps []step) (*Store, error) {
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1) // each connection is a database of its own
	s := &Store{write: db, read: db, now: time.Now}
	for i, m := range steps {
		if err := s.apply(ctx, m, i+1); err != nil {
			_ = db.Close()
			return nil, err
		}
	}
	return s, nil
}

// columnsAfter returns the columns of the schema that the steps make, as table.column.
func columnsAfter(ctx context.Context, steps []step) (map[string]bool, error) {
	made, err := inMemory(ctx, steps)
	if err != nil {
		return nil, err
	}
	defer made.Close()
	names, err := made.texts(ctx, `SELECT m.name || '.' || c.name FROM sqlite_schema m
		JOIN pragma_table_info(m.name) c WHERE m.type = 'table'`)
	all := map[string]bool{}
	for _, name := range names {
		all[name] = true
	}
	return all, err
}

// hasColumn reports whether the schema of the store has a column of this program.
func (s *Store) hasColumn(table, column string) bool { return s.has == nil || s.has[table+"."+column] }

// object is an object of a schema.
type object struct{ name, text string }

// catalog returns the objects of a SQLite file. SQLite's own tables of statistics do not count.
func (s *Store) catalog(ctx context.Context) (all []object, err error) {
	err = s.all(ctx, func(scan func(places ...any) error) error {
		var kind, name, table string
		var text sql.NullString
		err := scan(&kind, &name, &table, &text)
		if text.String == "CREATE TABLE sqlite_stat1(tbl,idx,stat)" && kind == "table" && name == "sqlite_stat1" ||
			text.String == "CREATE TABLE sqlite_stat4(tbl,idx,neq,nlt,ndlt,sample)" && kind == "table" &&
				name == "sqlite_stat4" {
			return err
		}
		o := object{kind + " " + name, text.String}
		if table != name {
			o.name += " on " + table
		}
		all = append(all, o)
		return err
	}, `SELECT type, name, tbl_name, sql FROM sqlite_schema`)
	return all, err
}

// compare returns the differences of two schemas.
func compare(wanted, found []object) (all []difference) {
	texts := map[string]string{}
	for _, o := range wanted {
		texts[o.name] = o.text
	}
	seen := map[string]bool{}
	for _, o := range found {
		switch text, known := texts[o.name]; {
		case !known || seen[o.name]:
			all = append(all, difference{"it has the " + o.name + ", which Junction has not made", true})
		case text != o.text:
			all = append(all, difference{text: "the " + o.name + " is not as Junction has made it"})
		}
		seen[o.name] = true
	}
	for _, o := range wanted {
		if !seen[o.name] {
			all = append(all, difference{text: "the " + o.name + " is missing"})
		}
	}
	slices.SortFunc(all, func(a, b difference) int { return strings.Compare(a.text, b.text) })
	return slices.Compact(all)
}

// acceptsColumns matches columns that the next version has added to a table: they are empty in the
// rows of this program. acceptsIndex matches an index that it has added. acceptsMore is the same for
// Postgres.
var (
	acceptsColumns = regexp.MustCompile(`^(, \w+ (TEXT|BIGINT|BLOB)( NOT NULL DEFAULT (0|''))?)+$`)
	acceptsIndex   = regexp.MustCompile(`^CREATE INDEX \w+ ON \w+ \([\w, ]+\)$`)
)

// ofNext reports whether an object of a SQLite file is one that the next version may have added: a
// table, what belongs to such a table, or an index. None of them runs for a statement of this program.
func (o object) ofNext(wanted []object) bool {
	known := func(name string) bool {
		return slices.ContainsFunc(wanted, func(w object) bool { return w.name == name })
	}
	kind, name, _ := strings.Cut(o.name, " ")
	switch kind {
	case "table":
		return !known(o.name) && strings.HasPrefix(o.text, "CREATE TABLE ") &&
			!strings.Contains(strings.ToUpper(o.text), "REFERENCES")
	case "index":
		_, table, _ := strings.Cut(name, " on ")
		return !known("table "+table) || !known(o.name) && acceptsIndex.MatchString(o.text)
	}
	return false
}

// before returns the text of a table of a SQLite file without the columns that the next version may
// have added. SQLite inserts them behind the last column.
func (o object) before(wanted []object) string {
	i := slices.IndexFunc(wanted, func(w object) bool { return w.name == o.name })
	if i < 0 || len(o.text) <= len(wanted[i].text) {
		return o.text
	}
	was, n := wanted[i].text, len(o.text)-len(wanted[i].text)
	for at := 0; at <= len(was) && strings.HasPrefix(o.text, was[:at]); at++ {
		if o.text[at+n:] == was[at:] && acceptsColumns.MatchString(o.text[at:at+n]) {
			return was
		}
	}
	return o.text
}

// differencesPostgres is differences for Postgres. Both databases have the same migrations, so the tables
// in Postgres must have what the tables in SQLite have.
func (s *Store) differencesPostgres(ctx context.Context, made *Store, more bool) ([]difference, error) {
	tables, err := made.texts(ctx, `SELECT name FROM sqlite_schema WHERE type = 'table'`)
	if err != nil || len(tables) == 0 {
		return nil, err
	}
	wanted, err := made.objects(ctx, wantedObjects)
	if err != nil {
		return nil, err
	}
	found, err := s.objects(ctx, strings.ReplaceAll(foundObjects, "TABLES", `'`+strings.Join(tables, `', '`)+`'`))
	if err != nil {
		return nil, err
	}
	if more {
		found = slices.DeleteFunc(found, func(o object) bool {
			same := func(w object) bool { return w.name == o.name }
			return acceptsMore.MatchString(o.name+": "+o.text) && !slices.ContainsFunc(wanted, same)
		})
	}
	return compare(wanted, found), nil
}

// acceptsMore matches what the next version of the schema may add to a table that this program knows:
// a column that is empty in the rows of this program, and an index. Both run no code of others.
var acceptsMore = regexp.MustCompile(
	`^(column \w+ of table \w+: (text|bigint|bytea)( NOT NULL DEFAULT 0?)?|index on \w+ \([\w, ]+\): )$`)

// objects returns the rows of a query with two columns.
func (s *Store) objects(ctx context.Context, query string) (all []object, err error) {
	err = s.all(ctx, func(scan func(places ...any) error) error {
		var o object
		err := scan(&o.name, &o.text)
		all = append(all, o)
		return err
	}, query)
	return all, err
}

// wantedObjects asks SQLite for the objects that Postgres must have.
const wantedObjects = `
WITH t AS (SELECT name FROM sqlite_schema WHERE type = 'table')
SELECT 'table ' || t.name, 'plain' FROM t
UNION ALL
SELECT 'column ' || c.name || ' of table ' || t.name,
	CASE c.type WHEN 'BLOB' THEN 'bytea' ELSE lower(c.type) END ||
	CASE WHEN c."notnull" OR c.pk > 0 THEN ' NOT NULL' ELSE '' END ||
	coalesce(' DEFAULT ' || trim(c.dflt_value, ''''), '')
FROM t JOIN pragma_table_xinfo(t.name) AS c
UNION ALL
SELECT CASE WHEN x."unique" THEN 'unique ' ELSE '' END || 'index on ' || t.name || ' (' ||
	(SELECT group_concat(name, ', ') FROM (
		SELECT i.name FROM pragma_index_info(x.name) AS i ORDER BY i.seqno)) || ')' ||
	CASE WHEN x.partial THEN (
		SELECT substr(sql, instr(sql, ' WHERE ')) FROM sqlite_schema WHERE name = x.name) ELSE '' END,
	''
FROM t JOIN pragma_index_list(t.name) AS x
UNION ALL
SELECT 'unique index on ' || t.name || ' (' || c.name || ')', ''
FROM t JOIN pragma_table_info(t.name) AS c
WHERE c.pk = 1 AND NOT EXISTS (SELECT 1 FROM pragma_index_list(t.name) AS x WHERE x.origin = 'pk')
UNION ALL
SELECT 'reference ' || f."from" || ' of table ' || t.name, f."table" || '(' || f."to" || ')'
FROM t JOIN pragma_foreign_key_list(t.name) AS f`

// foundObjects asks Postgres for the objects of the same tables. An object that no table of Junction
// has gets a name that wantedObjects never makes.
const foundObjects = `
WITH t AS (
	SELECT c.* FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
	WHERE n.nspname = current_schema() AND c.relname IN (TABLES) AND c.relkind NOT IN ('i', 'I')
)
SELECT 'table ' || t.relname, CASE
	WHEN t.relkind = 'r' AND t.relpersistence = 'p' AND NOT t.relrowsecurity THEN 'plain' ELSE 'other' END FROM t
UNION ALL
SELECT 'column ' || a.attname || ' of table ' || t.relname,
	format_type(a.atttypid, a.atttypmod) || CASE WHEN a.attnotnull THEN ' NOT NULL' ELSE '' END ||
	coalesce(' DEFAULT ' || trim(both '''' from regexp_replace(pg_get_expr(d.adbin, d.adrelid), '::\w+$', '')), '') ||
	CASE WHEN a.attgenerated <> '' OR a.attidentity <> '' THEN ' GENERATED' ELSE '' END ||
	CASE WHEN a.attcollation <> y.typcollation THEN ' COLLATE' ELSE '' END
FROM t JOIN pg_attribute a ON a.attrelid = t.oid AND a.attnum > 0 AND NOT a.attisdropped
JOIN pg_type y ON y.oid = a.atttypid LEFT JOIN pg_attrdef d ON d.adrelid = t.oid AND d.adnum = a.attnum
UNION ALL
SELECT CASE WHEN x.indexprs IS NOT NULL OR NOT x.indisvalid THEN 'other ' ELSE '' END ||
	CASE WHEN x.indisunique THEN 'unique ' ELSE '' END || 'index on ' || t.relname || ' (' ||
	coalesce((SELECT string_agg(a.attname, ', ' ORDER BY k.place)
		FROM unnest(x.indkey::int[]) WITH ORDINALITY AS k (number, place)
		JOIN pg_attribute a ON a.attrelid = t.oid AND a.attnum = k.number), '') || ')' ||
	coalesce(' WHERE ' || trim(both '()' from pg_get_expr(x.indpred, x.indrelid)), ''), ''
FROM t JOIN pg_index x ON x.indrelid = t.oid
UNION ALL
SELECT 'reference ' || coalesce((SELECT string_agg(a.attname, ', ') FROM pg_attribute a
		WHERE a.attrelid = t.oid AND a.attnum = ANY (k.conkey)), '') || ' of table ' || t.relname,
	r.relname || '(' || coalesce((SELECT string_agg(a.attname, ', ') FROM pg_attribute a
		WHERE a.attrelid = r.oid AND a.attnum = ANY (k.confkey)), '') || ')' ||
	CASE WHEN k.confupdtype <> 'a' OR k.confdeltype <> 'a' THEN ' with an action' ELSE '' END ||
	CASE WHEN r.relnamespace <> t.relnamespace THEN ' of another schema' ELSE '' END
FROM t JOIN pg_constraint k ON k.conrelid = t.oid AND k.contype = 'f' JOIN pg_class r ON r.oid = k.confrelid
UNION ALL
SELECT 'constraint ' || k.conname || ' on table ' || t.relname, '' FROM t JOIN pg_constraint k ON k.conrelid = t.oid
WHERE k.contype IN ('c', 't', 'x')
UNION ALL
SELECT 'reference from another table to table ' || t.relname, '' FROM t JOIN pg_constraint k ON k.confrelid = t.oid
WHERE k.contype = 'f' AND k.conrelid NOT IN (SELECT oid FROM t)
UNION ALL
SELECT 'trigger ' || g.tgname || ' on table ' || t.relname, '' FROM t JOIN pg_trigger g ON g.tgrelid = t.oid
WHERE NOT g.tgisinternal
UNION ALL
SELECT 'rule ' || w.rulename || ' on table ' || t.relname, '' FROM t JOIN pg_rewrite w ON w.ev_class = t.oid
UNION ALL
SELECT 'policy ' || p.polname || ' on table ' || t.relname, '' FROM t JOIN pg_policy p ON p.polrelid = t.oid
UNION ALL
SELECT 'parent or child of table ' || t.relname, '' FROM t
JOIN pg_inherits h ON h.inhrelid = t.oid OR h.inhparent = t.oid`
