package fairq

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const (
	// retryInterval is the time between two tries to reach a database that is down.
	retryInterval = time.Second
	// heldInterval is the time between two tries to end a task whose row
	// another transaction has locked.
	heldInterval = 500 * time.Millisecond
	// A call that takes longer than callTimeout fails, and its connection is closed,
	// since the server or the network may have vanished.  Other limits may be lower,
	// down to minTimeout.
	callTimeout = 15 * time.Second
	minTimeout  = 5 * time.Second
	popTimeout  = 30 * time.Second
	waitMargin  = 10 * time.Second // in addition to the time of fairq.wait
	// patience is how long a handler may take to return after its time is over.
	patience = 5 * time.Second
	// keepAlive is the interval between probes of an idle connection.
	// userTimeout is how long sent data may stay unacknowledged.
	keepAlive   = 10 * time.Second
	userTimeout = 20 * time.Second
)

// database is a connection that several goroutines share.  It reconnects after a loss.
type database struct {
	config *pgx.ConnConfig
	log    Logger
	// callers whose statement has failed on a lock wait their turn and retry
	// one at a time, so that others can use the connection
	holding sync.Mutex

	mu     sync.Mutex // protects the fields below
	conn   *pgx.Conn
	closed bool
	held   time.Time // when a statement last failed because of a lock
	pooled bool      // the server is behind a pooler: known once there is a connection
}

// parseConfig reads a connection's settings from a URI, keywords and values, or the
// environment.
func parseConfig(database, name string) (*pgx.ConnConfig, error) {
	config, err := pgx.ParseConfig(database)
	if err != nil {
		return nil, fmt.Errorf("fairq: %w", err)
	}
	if config.ConnectTimeout == 0 {
		config.ConnectTimeout = 10 * time.Second
	}
	// Go's strings are UTF-8, whatever the database's encoding is
	config.RuntimeParams["client_encoding"] = "UTF8"
	if config.RuntimeParams["application_name"] == "" {
		config.RuntimeParams["application_name"] = name
	}
	// A prepared statement may be missing in the next call, because a pooler in
	// transaction mode may use another connection.
	config.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	config.DialFunc = (&net.Dialer{KeepAlive: keepAlive, Control: setUserTimeout}).DialContext
	return config, nil
}

// do calls f with a connection until f succeeds, no retry can help, or ctx is done. If
// only an answer was lost, f runs twice.  That is harmless for all calls except pop,
// since they name the attempt.
func (d *database) do(ctx context.Context, f func(context.Context, DB) error) error {
	err := d.persist(ctx, f)
	if err == nil || !isHeld(err) {
		return err
	}
	sleep(ctx, heldInterval)
	for {
		d.holding.Lock()
		err = d.persist(ctx, f)
		if err == nil || !isHeld(err) {
			d.holding.Unlock()
			return err // after a success the next caller follows at once
		}
		sleep(ctx, heldInterval)
		d.holding.Unlock()
		if ctx.Err() != nil {
			return err
		}
		sleep(ctx, heldInterval/10) // so that another caller can retry
	}
}

// persist does the same as do, but returns if another transaction has a lock
// that f needs.
func (d *database) persist(ctx context.Context, f func(context.Context, DB) error) error {
	for {
		err := d.try(ctx, func(conn *pgx.Conn) error {
			ctx, cancel := context.WithTimeout(ctx, callTimeout)
			defer cancel()
			err := f(ctx, conn)
			if isHeld(err) {
				if !d.heldLately() {
					d.log.Warn("another transaction has locked the task; retrying", "error", err.Error())
				}
				d.held = time.Now()
			}
			return err
		})
		if err == nil || ctx.Err() != nil || isHeld(err) || !isTransient(err) && !isRefusal(err) {
			return err
		}
		d.log.Warn("retrying", "error", err.Error())
		if !sleep(ctx, retryInterval) {
			return err
		}
	}
}

// briefly returns an end for a SELECT without FROM about a task. With this end, the
// statement waits for a lock only briefly.  An open transaction may have locked the
// task's row, and other tasks need this connection too.
func (d *database) briefly() string {
	limit := 100
	if d.heldLately() {
		limit = 10
	}
	return fmt.Sprintf(" FROM set_config('lock_timeout', '%dms', true)", limit)
}

func (d *database) heldLately() bool {
	return time.Since(d.held) < 4*heldInterval
}

// try calls f once with a connection; ctx limits only the time to connect.
func (d *database) try(ctx context.Context, f func(*pgx.Conn) error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return ErrLost
	}
	if d.conn == nil || d.conn.IsClosed() {
		conn, err := connect(ctx, d.config)
		if err != nil {
			return err
		}
		d.conn = conn
		// a pooler sends its clients an invented process ID
		var pid uint32
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		if err := conn.QueryRow(ctx, "SELECT pg_backend_pid()").Scan(&pid); err != nil {
			d.disconnect()
			return err
		}
		d.pooled = pid != conn.PgConn().PID()
	}
	err := f(d.conn)
	if err != nil && isLost(err) {
		d.disconnect()
	}
	return err
}

// connect tries each host with a time limit of its own, since a host that does not
// answer would use up a common limit.
func connect(ctx context.Context, config *pgx.ConnConfig) (*pgx.Conn, error) {
	hosts := append([]*pgconn.FallbackConfig{{Host: config.Host, Port: config.Port,
		TLSConfig: config.TLSConfig}}, config.Fallbacks...)
	var problem error
	for _, host := range hosts {
		one := config.Copy()
		one.Host, one.Port, one.TLSConfig, one.Fallbacks = host.Host, host.Port, host.TLSConfig, nil
		conn, err := pgx.ConnectConfig(ctx, one)
		if err == nil {
			return conn, nil
		}
		if problem == nil || isTransient(problem) && !isTransient(err) {
			problem = err
		}
	}
	return nil, problem
}

// close ends the connection for good.
func (d *database) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	d.disconnect()
}

func (d *database) disconnect() {
	if d.conn != nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		d.conn.Close(ctx)
		d.conn = nil
	}
}

// sleep waits for d.  It returns false if ctx is done before that.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
