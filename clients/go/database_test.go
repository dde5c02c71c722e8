package fairq

import (
	"context"
	"net"
	"runtime"
	"syscall"
	"testing"
)

// The kernel must detect that a host has vanished, even while it waits for an
// acknowledgement.
func TestUserTimeout(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux has TCP_USER_TIMEOUT")
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	config, err := parseConfig("host=127.0.0.1", "me")
	if err != nil {
		t.Fatal(err)
	}
	conn, err := config.DialFunc(context.Background(), "tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	raw, err := conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	option := func(level, name int) (value int) {
		raw.Control(func(fd uintptr) { value, err = syscall.GetsockoptInt(int(fd), level, name) })
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
	if got := option(syscall.IPPROTO_TCP, 0x12); got != 20000 {
		t.Errorf("TCP_USER_TIMEOUT is %d ms", got)
	}
	if option(syscall.SOL_SOCKET, syscall.SO_KEEPALIVE) == 0 || option(syscall.IPPROTO_TCP, syscall.TCP_KEEPIDLE) != 10 {
		t.Error("an idle connection is not probed after 10 s")
	}
}
