//go:build !linux

package fairq

import "syscall"

// setUserTimeout does nothing: probes and the limits of calls have to do.
func setUserTimeout(string, string, syscall.RawConn) error { return nil }
