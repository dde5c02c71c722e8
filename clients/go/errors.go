package fairq

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgconn"
)

var (
	// ErrUnknownQueue is in the chain of an error about a queue that does not exist.
	ErrUnknownQueue = errors.New("fairq: no such queue")
	// ErrNoExtension is in the chain of an error about a database without fairq.
	ErrNoExtension = errors.New("fairq: the database has no extension fairq")
	// ErrLost says that a task was cancelled, or that its lease is lost, so that
	// another worker may have it: what is still done for it is in vain.
	ErrLost = errors.New("fairq: the task was cancelled, or its lease is lost")
)

// A DeadError makes a task fail for good, however many attempts it has left.
type DeadError struct {
	Err error
}

// Dead is for a handler to return when no retry will mend err, which is kept as the
// task's error.
func Dead(err error) error { return &DeadError{err} }

func (e *DeadError) Error() string { return text(e.Err, "dead") }
func (e *DeadError) Unwrap() error { return e.Err }

// A RetryError makes a task be retried after a time of the handler's choice.
type RetryError struct {
	Err error
	In  time.Duration
}

// Retry is for a handler to return when the task is to be retried after so long,
// instead of the queue's backoff.  The attempt counts; err is kept as the task's
// error, and may be nil.
func Retry(err error, in time.Duration) error { return &RetryError{err, in} }

func (e *RetryError) Error() string { return text(e.Err, fmt.Sprintf("retry in %v", e.In)) }
func (e *RetryError) Unwrap() error { return e.Err }

func text(err error, otherwise string) string {
	if err == nil {
		return otherwise
	}
	return err.Error()
}

// explained is an error of the server in a sentence: errors.Is finds what kind it is
// of, errors.As the *pgconn.PgError.
type explained struct {
	text  string
	kind  error
	cause error
}

func (e *explained) Error() string        { return e.text }
func (e *explained) Is(target error) bool { return e.kind != nil && target == e.kind }
func (e *explained) Unwrap() error        { return e.cause }

// explain puts an error of the server into words, and leaves others alone.
func explain(err error) error {
	var server *pgconn.PgError
	if !errors.As(err, &server) {
		return err
	}
	e := &explained{text: "fairq: " + server.Message, cause: err}
	if server.Hint != "" {
		e.text += " (" + server.Hint + ")"
	}
	switch server.Code {
	case "QF001":
		e.kind = ErrUnknownQueue
	case "3F000", "42883":
		e.kind = ErrNoExtension
		e.text = "fairq: the database has no extension fairq, or another version of it: " +
			server.Message
	}
	return e
}

// isTransient says whether what went wrong may be mended by time or a new connection:
// a server that is down, busy or read-only, as a former primary is.  Not: what is
// wrong about the call itself, the privileges or the database's name.
func isTransient(err error) bool {
	if errors.Is(err, ErrLost) {
		return false
	}
	var server *pgconn.PgError
	if !errors.As(err, &server) {
		return true
	}
	switch server.Code[:2] {
	case "QF", "0A", "22", "23", "28", "3D", "3F", "42":
		return false
	}
	return true
}

// isLost says whether a connection is of no use after the error.
func isLost(err error) bool {
	var server *pgconn.PgError
	if !errors.As(err, &server) {
		return true
	}
	return server.Code == "25006" || strings.HasPrefix(server.Code, "08") ||
		strings.HasPrefix(server.Code, "57P")
}

// isHeld says whether another transaction has what a statement needs; or somebody has
// cancelled it, as a statement_timeout may.
func isHeld(err error) bool {
	return hasCode(err, "55P03") || hasCode(err, "57014")
}

func hasCode(err error, code string) bool {
	var server *pgconn.PgError
	return errors.As(err, &server) && server.Code == code
}
