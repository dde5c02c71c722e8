package fairq

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
)

// Intervals and time limits of the calls and writes that show a worker.
const (
	registerInterval = 10 * time.Second
	touchInterval    = time.Second
	partingTimeout   = time.Second // time for the server to answer when the worker ends
)

const (
	registerSQL = `SELECT fairq.register_worker($1::uuid, $2::text, $3::text[], host => $4::text,
		client => 'go', version => $5::text, concurrency => $6::int, running => $7::int)::text`
	unregisterSQL = `SELECT fairq.unregister_worker($1::uuid)::text`
)

// keepRegistered keeps the worker in the view fairq.workers until it ends.  If a
// call fails, the worker continues, and calls again at the next interval.  The log gets the
// first failure that is not temporary.
func (r *run) keepRegistered() {
	defer r.showing.Done()
	id, host := newUUID(), hostname()
	told := false
	for {
		r.mu.Lock()
		running := len(r.tasks)
		r.mu.Unlock()
		err := r.callOnce(r.keeping, callTimeout, registerSQL, id, r.Name, r.Queues, host, version, r.Concurrency, running)
		if err != nil && !told && !isTransient(err) && r.keeping.Err() == nil {
			r.Logger.Warn("the worker is not in fairq.workers", "error", explain(err).Error())
			told = true
		}
		if !sleep(r.keeping, registerInterval) {
			break
		}
	}
	_ = r.callOnce(context.Background(), partingTimeout, unregisterSQL, id)
}

// callOnce calls a function of fairq about the worker, and does not retry it.
func (r *run) callOnce(ctx context.Context, timeout time.Duration, sql string, args ...any) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return r.keeper.try(ctx, func(conn *pgx.Conn) error {
		var none string
		return conn.QueryRow(ctx, sql+r.keeper.briefly(), args...).Scan(&none)
	})
}

// keepAlive writes the file Alive every second until the worker ends.
func (r *run) keepAlive() {
	defer r.showing.Done()
	for {
		if err := os.WriteFile(r.Alive, []byte(r.Name+"\n"), 0o644); err != nil {
			r.Logger.Error("the file Alive cannot be written", "error", err.Error())
			return
		}
		if !sleep(r.keeping, touchInterval) {
			return
		}
	}
}

func hostname() string {
	host, _ := os.Hostname()
	return host
}

// newUUID returns a random UUID.
func newUUID() string {
	var b [16]byte
	if _, err := rand.Read(b[:]); err != nil {
		panic(err) // the system has no random numbers
	}
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
