package dev.fairq;

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.Socket;
import java.net.SocketAddress;
import java.net.SocketException;
import java.net.SocketImpl;
import java.net.SocketTimeoutException;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.ClosedSelectorException;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.SocketChannel;
import javax.net.SocketFactory;

/**
 * Connects the driver through a Unix-domain socket. The driver's property socketFactory is
 * the name of this class, and its property socketFactoryArg is the path, such as
 * /run/postgresql/.s.PGSQL.5432.
 */
public final class UnixSocketFactory extends SocketFactory {
    private final String path;

    public UnixSocketFactory(String path) {
        this.path = path;
    }

    @Override
    public Socket createSocket() throws IOException {
        return new UnixSocket(SocketChannel.open(UnixDomainSocketAddress.of(path)));
    }

    @Override
    public Socket createSocket(String host, int port) throws IOException {
        return createSocket();
    }

    @Override
    public Socket createSocket(String host, int port, InetAddress local, int localPort) throws IOException {
        return createSocket();
    }

    @Override
    public Socket createSocket(InetAddress host, int port) throws IOException {
        return createSocket();
    }

    @Override
    public Socket createSocket(InetAddress host, int port, InetAddress local, int localPort) throws IOException {
        return createSocket();
    }

    /** A connected socket, with the methods that the driver calls. */
    private static final class UnixSocket extends Socket {
        private final SocketChannel channel;
        private final Selector readable = Selector.open();
        private final Selector writable = Selector.open();
        private volatile int timeout;

        UnixSocket(SocketChannel channel) throws IOException {
            super((SocketImpl) null);
            this.channel = channel;
            channel.configureBlocking(false);
            channel.register(readable, SelectionKey.OP_READ);
            channel.register(writable, SelectionKey.OP_WRITE);
        }

        private int read(byte[] bytes, int offset, int length) throws IOException {
            ByteBuffer buffer = ByteBuffer.wrap(bytes, offset, length);
            long end = System.nanoTime() + timeout * 1_000_000L;
            while (true) {
                int count = channel.read(buffer);
                if (count != 0 || length == 0) {
                    return count;
                }
                long left = (end - System.nanoTime() + 999_999) / 1_000_000;
                if (timeout > 0 && left <= 0) {
                    throw new SocketTimeoutException("no answer for " + timeout + " ms");
                }
                await(readable, timeout == 0 ? 0 : left);
            }
        }

        private static void await(Selector selector, long millis) throws IOException {
            try {
                selector.select(millis);
                selector.selectedKeys().clear();
            } catch (ClosedSelectorException closed) {
                throw new SocketException("the socket is closed");
            }
        }

        private void write(byte[] bytes, int offset, int length) throws IOException {
            ByteBuffer buffer = ByteBuffer.wrap(bytes, offset, length);
            while (buffer.hasRemaining()) {
                if (channel.write(buffer) == 0) {
                    await(writable, 0);
                }
            }
        }

        @Override
        public InputStream getInputStream() {
            return new InputStream() {
                @Override
                public int read() throws IOException {
                    byte[] one = new byte[1];
                    return read(one, 0, 1) < 0 ? -1 : one[0] & 0xff;
                }

                @Override
                public int read(byte[] bytes, int offset, int length) throws IOException {
                    return UnixSocket.this.read(bytes, offset, length);
                }
            };
        }

        @Override
        public OutputStream getOutputStream() {
            return new OutputStream() {
                @Override
                public void write(int b) throws IOException {
                    write(new byte[] {(byte) b}, 0, 1);
                }

                @Override
                public void write(byte[] bytes, int offset, int length) throws IOException {
                    UnixSocket.this.write(bytes, offset, length);
                }
            };
        }

        @Override
        public void close() throws IOException {
            channel.close();
            readable.close();
            writable.close();
        }

        @Override
        public boolean isConnected() {
            return true;
        }

        @Override
        public boolean isClosed() {
            return !channel.isOpen();
        }

        @Override
        public void setSoTimeout(int timeout) {
            this.timeout = timeout;
        }

        @Override
        public int getSoTimeout() {
            return timeout;
        }

        @Override
        public void connect(SocketAddress address, int timeout) {
            // the socket is already connected
        }

        @Override
        public void setTcpNoDelay(boolean on) {
            // the socket has no such option, nor those of the following
            // methods
        }

        @Override
        public void setKeepAlive(boolean on) {
        }

        @Override
        public int getReceiveBufferSize() {
            return 8192;
        }

        @Override
        public int getSendBufferSize() {
            return 8192;
        }

        @Override
        public void setReceiveBufferSize(int size) {
        }

        @Override
        public void setSendBufferSize(int size) {
        }
    }
}
