package fairq

import (
	"strings"
	"syscall"
)

// setUserTimeout limits how long the other side of a connection may be silent when it
// should answer, before the kernel ends the connection: probes alone take minutes, and
// are not sent at all while something else is not acknowledged.
func setUserTimeout(network, _ string, conn syscall.RawConn) error {
	if !strings.HasPrefix(network, "tcp") {
		return nil
	}
	const tcpUserTimeout = 0x12 // syscall has no name for it
	return conn.Control(func(fd uintptr) {
		// without it the limits of the calls are there still
		_ = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpUserTimeout,
			int(userTimeout.Milliseconds()))
	})
}
