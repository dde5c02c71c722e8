# frozen_string_literal: true

require "active_support/fork_tracker"

module Fairq
  # That the worker is to end: seen by threads, and by those that wait for a socket.
  # May be set in a signal handler.
  class Stop
    attr_reader :io

    def initialize
      @io, @writer = IO.pipe
      @set = false
    end

    def set
      @set = true
      @writer.write_nonblock(".", exception: false)
    end

    def set?
      @set
    end

    # Sleeps until it is set, or for so many seconds.
    def wait(seconds = nil)
      @io.wait_readable(seconds) unless @set
    end
  end

  # A connection for several threads, which is made anew when it is lost.
  class Session
    def initialize(stop)
      @stop = stop
      @lock = Mutex.new
      ActiveSupport::ForkTracker.after_fork { discard }
    end

    # The statement's result; tried every second until there is one.  If only the
    # answer was lost, the attempt sees to it that a second complete does no harm, and
    # what a lost pop took comes back by its lease: for that, once.
    def query(sql, values = [], once: false)
      transaction(once: once) { |connection| connection.exec_params(sql, values) }
    end

    # Likewise all that the block does with the connection.
    def transaction(once: false)
      failures = 0
      begin
        @lock.synchronize do
          yield(@connection ||= connect)
        rescue PG::Error => error
          forget if Database.lost?(error)
          raise
        end
      rescue PG::Error => error
        raise Database.explained(error) unless Database.transient?(error)

        warn_of(error, failures)
        failures += 1
        raise if once || (@stop.set? && failures > 1)

        @stop.wait(1)
        retry
      end
    end

    # A statement that takes its time; cancelled when the worker is to end.
    def wait(sql, values)
      transaction(once: true) do |connection|
        connection.send_query_params(sql, values)
        while busy?(connection)
          if @stop.set?
            connection.cancel # too early, if the server has not begun it yet
            connection.socket_io.wait_readable(0.1)
          else
            IO.select([connection.socket_io, @stop.io])
          end
        end
        connection.get_last_result
      end
    end

    # Does the connection go through a pooler, of which a statement that takes its time
    # would occupy a connection?
    def pooled?
      @pooled
    end

    private

    def connect
      connection = Database.connect
      # a pooler invents the process that its clients see
      @pooled = connection.exec("SELECT pg_backend_pid()").getvalue(0, 0).to_i != connection.backend_pid
      connection
    end

    # Who holds a lock may do so for long: of that, once.
    def warn_of(error, failures)
      if !Database.held?(error)
        Fairq.logger.warn(Database.one_line(error))
      elsif failures.zero?
        Fairq.logger.warn("another transaction is in the way: #{Database.one_line(error)}")
      end
    end

    def busy?(connection)
      connection.consume_input
      connection.is_busy
    end

    # In a process that a job has forked: its end is not to close what is its parent's.
    def discard
      @connection&.socket_io&.reopen(IO::NULL)
      @connection = nil
    end

    def forget
      @connection&.close unless @connection&.finished?
    rescue PG::Error
      nil # it is closed
    ensure
      @connection = nil
    end
  end
end
