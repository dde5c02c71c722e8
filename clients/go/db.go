package fairq

import (
	"context"
	"database/sql"

	"github.com/jackc/pgx/v5"
)

// DB is the connection to enqueue with: a *pgxpool.Pool, *pgxpool.Conn, *pgx.Conn or
// pgx.Tx, or the result of [SQL].
type DB interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Tx is a transaction: a pgx.Tx, or the result of [SQLTx].
type Tx interface {
	DB
	Commit(ctx context.Context) error
	Rollback(ctx context.Context) error
}

// SQLDB is a *sql.DB, *sql.Conn or *sql.Tx of database/sql, or a library's substitute
// for them.  The driver is pgx's or lib/pq.
type SQLDB interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// SQL wraps a connection or transaction of database/sql as a DB.
func SQL(db SQLDB) DB { return sqlDB{db} }

// SQLTx wraps a transaction of database/sql as a Tx, for [EnqueueTx] and
// [Task.CompleteTx].
func SQLTx(tx interface {
	SQLDB
	Commit() error
	Rollback() error
}) Tx {
	return sqlTx{sqlDB{tx}, tx.Commit, tx.Rollback}
}

type sqlDB struct{ db SQLDB }

func (d sqlDB) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	return d.db.QueryRowContext(ctx, sql, args...)
}

type sqlTx struct {
	sqlDB
	commit, rollback func() error
}

func (t sqlTx) Commit(context.Context) error   { return t.commit() }
func (t sqlTx) Rollback(context.Context) error { return t.rollback() }
