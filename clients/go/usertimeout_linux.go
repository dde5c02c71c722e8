package fairq

import (
	"strings"
	"syscall"
)

// setUserTimeout limits how long the other side may leave data without an answer before
// the kernel ends the connection.  Probes alone take minutes, and the kernel does not
// send them while data is unacknowledged.
func setUserTimeout(network, _ string, conn syscall.RawConn) error {
	if !strings.HasPrefix(network, "tcp") {
		return nil
	}
	const tcpUserTimeout = 0x12 // the package syscall has no name for it
	return conn.Control(func(fd uintptr) {
		// if this fails, the limits of the calls still apply
		_ = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpUserTimeout,
			int(userTimeout.Milliseconds()))
	})
}
