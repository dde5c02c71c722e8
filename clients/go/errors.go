package fairq

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

var (
	// ErrUnknownQueue is in an error's chain if the queue does not exist.
	ErrUnknownQueue = errors.New("fairq: no such queue")
	// ErrNoExtension is in an error's chain if the database does not have fairq.
	ErrNoExtension = errors.New("fairq: the database has no extension fairq")
	// ErrLost reports that a task was cancelled, or its lease is lost.  Another
	// worker may have the task, and further work is wasted.
	ErrLost = errors.New("fairq: the task was cancelled, or its lease is lost")
)

// A DeadError makes a task fail for good, even if it has attempts left.
type DeadError struct {
	Err error
}

// A handler returns Dead if no retry can help.  err is stored as the
// task's error.
func Dead(err error) error { return &DeadError{err} }

func (e *DeadError) Error() string { return text(e.Err, "dead") }
func (e *DeadError) Unwrap() error { return e.Err }

// A RetryError retries a task after a time that the handler chooses.
type RetryError struct {
	Err error
	In  time.Duration
}

// A handler returns Retry for a retry after the given time, instead of after the
// queue's backoff.  The attempt counts.  err is stored as the task's error, and may
// be nil.
func Retry(err error, in time.Duration) error { return &RetryError{err, in} }

func (e *RetryError) Error() string { return text(e.Err, fmt.Sprintf("retry in %v", e.In)) }
func (e *RetryError) Unwrap() error { return e.Err }

// panicked is the error of a handler that panicked.
type panicked struct {
	error
	stack string
}

func (p *panicked) Unwrap() error { return p.error }

// framesOf returns the handler's frames of a stack that [debug.Stack] made after a panic.
func framesOf(stack string) string {
	lines := strings.Split(stack, "\n")
	from, to := 0, len(lines)
	for i, line := range lines {
		if strings.HasPrefix(line, "panic(") {
			from = i + 2 // a frame has two lines
		} else if strings.HasPrefix(line, "github.com/fairq/fairq/clients/go.(*run).handle(") {
			to = i
		}
	}
	if from > to {
		from = 0
	}
	return strings.Join(lines[from:to], "\n")
}

// archived returns what describe returns, and the stack of a panic, in a form that the
// server stores.
func archived(err error) string {
	text := describe(err)
	var panic *panicked
	if errors.As(err, &panic) {
		text += "\n" + panic.stack
	}
	return strings.ToValidUTF8(strings.ReplaceAll(text, "\x00", ""), "\uFFFD")
}

// describe returns the error's text, and the texts of its causes, except those
// that the error's text contains.
func describe(err error) string {
	text := err.Error()
	left := 50 // limits the causes, which may be many or form a circle
	var add func(error)
	add = func(err error) {
		var causes []error
		switch err := err.(type) {
		case *explained: // its text contains that of its cause
		case interface{ Unwrap() error }:
			causes = []error{err.Unwrap()}
		case interface{ Unwrap() []error }:
			causes = err.Unwrap()
		}
		for _, cause := range causes {
			if left--; cause == nil || left < 0 {
				continue
			}
			if said := cause.Error(); !strings.Contains(text, said) {
				text += "; caused by " + said
			}
			add(cause)
		}
	}
	add(err)
	return text
}

func text(err error, otherwise string) string {
	if err == nil {
		return otherwise
	}
	return err.Error()
}

// explained is an error of the server in one sentence.  errors.Is finds its kind, and
// errors.As finds the driver's error, such as *pgconn.PgError.
type explained struct {
	text  string
	kind  error
	cause error
}

func (e *explained) Error() string        { return e.text }
func (e *explained) Is(target error) bool { return e.kind != nil && target == e.kind }
func (e *explained) Unwrap() error        { return e.cause }

// explain turns an error of the server into a sentence, and returns other errors
// unchanged.
func explain(err error) error {
	state := sqlState(err)
	if state == "" {
		return err
	}
	text := strings.TrimPrefix(err.Error(), "pq: ")
	var server *pgconn.PgError
	if errors.As(err, &server) {
		text = server.Message
		if server.Hint != "" {
			text += " (" + server.Hint + ")"
		}
	}
	e := &explained{text: "fairq: " + text, cause: err}
	switch state {
	case "QF001":
		e.kind = ErrUnknownQueue
	case "3F000", "42883":
		e.kind = ErrNoExtension
		e.text = "fairq: the database has no extension fairq, or another version of it: " + text
	}
	return e
}

// sqlState returns the SQLSTATE of the server's error in the chain, for pgx and lib/pq;
// "" if there is none.
func sqlState(err error) string {
	var server interface{ SQLState() string }
	if !errors.As(err, &server) {
		return ""
	}
	return server.SQLState()
}

// isTransient returns whether time or a new connection may fix the error: the server is
// down, busy, or read-only like a former primary.  It returns false if the call itself,
// the privileges or the database's name are wrong.
func isTransient(err error) bool {
	if errors.Is(err, ErrLost) {
		return false
	}
	state := sqlState(err)
	if len(state) < 2 {
		return true
	}
	switch state[:2] {
	case "QF", "0A", "22", "23", "28", "3D", "3F", "42", "54":
		return false
	}
	return true
}

// isRefusal returns whether the server refuses the connection because the database
// or role does not exist or the password is wrong.  The refusal may be temporary.
func isRefusal(err error) bool {
	state := sqlState(err)
	return strings.HasPrefix(state, "28") || strings.HasPrefix(state, "3D")
}

// isTooLarge returns whether something exceeds a limit or the memory of the server, for
// example a text that the server cannot print.
func isTooLarge(err error) bool {
	state := sqlState(err)
	return strings.HasPrefix(state, "54") || state == "53200"
}

// isLost returns whether a connection is unusable after the error.
func isLost(err error) bool {
	state := sqlState(err)
	return state == "" || state == "25006" || strings.HasPrefix(state, "08") ||
		strings.HasPrefix(state, "57P")
}

// isHeld returns whether another transaction has a lock that the statement needs, or
// the statement was cancelled, for example by a statement_timeout.
func isHeld(err error) bool {
	state := sqlState(err)
	return state == "55P03" || state == "57014"
}
