//go:build !linux

package fairq

import "syscall"

// setUserTimeout does nothing, so probes and the limits of calls must suffice.
func setUserTimeout(string, string, syscall.RawConn) error { return nil }
