package fairq

import (
	"context"
	"fmt"
	"log"
	"net"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const (
	// retryInterval is how long a database that is down is left alone.
	retryInterval = time.Second
	// heldInterval is the same for a task whose row another transaction holds.
	heldInterval = 500 * time.Millisecond
	// A call that takes longer is given up, with its connection: the server or the network
	// has vanished.  Some other limit may be lower, but none lower than minTimeout.
	callTimeout = 15 * time.Second
	minTimeout  = 5 * time.Second
	popTimeout  = 30 * time.Second
	waitMargin  = 10 * time.Second // beside what fairq.wait is told
	// patience is how long a handler may take to return when its time is over.
	patience = 5 * time.Second
	// keepAlive is how often an idle connection is probed, userTimeout how long the other
	// side may leave that, or what was sent, unanswered.
	keepAlive   = 10 * time.Second
	userTimeout = 20 * time.Second
)

// database is a connection for several goroutines, made anew when it is lost.
type database struct {
	config *pgx.ConnConfig
	log    *log.Logger
	// holding is for one at a time of those that try again what another transaction
	// holds, so that they keep no others from the connection
	holding sync.Mutex

	mu     sync.Mutex // for what follows
	conn   *pgx.Conn
	closed bool
	held   time.Time // when another transaction last was in the way
	pooled bool      // the server is behind a pooler: known once there is a connection
}

// parseConfig makes a connection's settings of a URI, of keywords and values, or of
// the environment.
func parseConfig(database, name string) (*pgx.ConnConfig, error) {
	config, err := pgx.ParseConfig(database)
	if err != nil {
		return nil, fmt.Errorf("fairq: %w", err)
	}
	if config.ConnectTimeout == 0 {
		config.ConnectTimeout = 10 * time.Second
	}
	// whatever the database's encoding is, strings of Go are UTF-8
	config.RuntimeParams["client_encoding"] = "UTF8"
	if config.RuntimeParams["application_name"] == "" {
		config.RuntimeParams["application_name"] = name
	}
	// What one statement has prepared, the next one may not find: a pooler in
	// transaction mode may give it another connection.
	config.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	config.DialFunc = (&net.Dialer{KeepAlive: keepAlive, Control: setUserTimeout}).DialContext
	return config, nil
}

// do calls f with a connection until that succeeds, or fails with what no retry
// mends, or ctx is done.  So f may be called although it was done before and only the
// answer was lost: the attempt, in all calls but pop, sees to it that this does no harm.
func (d *database) do(ctx context.Context, f func(context.Context, *pgx.Conn) error) error {
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
			return err // and the next one follows at once
		}
		sleep(ctx, heldInterval)
		d.holding.Unlock()
		if ctx.Err() != nil {
			return err
		}
		sleep(ctx, heldInterval/10) // it is another's turn
	}
}

// persist does the same, but for what another transaction holds.
func (d *database) persist(ctx context.Context, f func(context.Context, *pgx.Conn) error) error {
	for {
		err := d.try(ctx, func(conn *pgx.Conn) error {
			ctx, cancel := context.WithTimeout(ctx, callTimeout)
			defer cancel()
			err := f(ctx, conn)
			if isHeld(err) {
				if !d.heldLately() {
					d.log.Printf("fairq: another transaction is in the way: %v; trying again", err)
				}
				d.held = time.Now()
			}
			return err
		})
		if err == nil || ctx.Err() != nil || isHeld(err) || !isTransient(err) && !isRefusal(err) {
			return err
		}
		d.log.Printf("fairq: %v; trying again", err)
		if !sleep(ctx, retryInterval) {
			return err
		}
	}
}

// briefly ends a statement about a task, a SELECT without FROM, in a call of do: it waits
// for no lock for long.  Another transaction may have the task's row locked for as long as
// it is open, and the connection is there for the other tasks, too.
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

// try calls f with a connection, once; ctx is for making the connection alone.
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
		// a pooler makes up the process that its clients see
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

// connect tries each host by itself: one that is mute would use up the time of all.
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

// sleep returns false if ctx was done before.
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
