# frozen_string_literal: true

require "active_support/fork_tracker"

module Fairq
  # A flag that the worker is stopping.  Threads can read the flag, and it ends
  # their waits for sockets.  A signal handler may set it.
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

    # Sleeps until the flag is set, or for the given number of seconds.
    def wait(seconds = nil)
      @io.wait_readable(seconds) unless @set
    end
  end

  # A connection that several threads share.  It reconnects after a loss.
  class Session
    HELD = 0.5 # seconds until a retry after a lock of another transaction
    LATELY = 2 # seconds after a lock during which threads retry one at a time

    # limit: seconds for each statement.  give_up: seconds for which to retry if the server
    # refuses the connection for a lasting reason; nil: forever.
    def initialize(stop, limit: Connection::LIMIT, give_up: nil)
      @stop = stop
      @limit = limit
      @give_up = give_up
      @lock = Mutex.new
      @holding = Mutex.new # held by the thread that retries after a lock
      ActiveSupport::ForkTracker.after_fork { @connection = nil }
    end

    # The statement's result.  Retries every second until there is a result.  If only the
    # answer was lost, a second complete of the same attempt is harmless.  A pop is not
    # retried, because its tasks are ready again when their leases expire.
    #
    # brief: the statement, a SELECT without FROM, waits for a lock only briefly.
    def query(sql, values = [], once: false, brief: false)
      transaction(once: once) do |connection|
        connection.exec_params(brief ? "#{sql} #{briefly}" : sql, values)
      end
    end

    # The FROM clause that limits how long a statement waits for a task's row lock.  An
    # open transaction may have locked the task's row, and other tasks need this
    # connection too.
    def briefly
      "FROM set_config('lock_timeout', '#{held_lately? ? 10 : 100}ms', true)"
    end

    # Calls the block with the connection, and retries it as query does.
    def transaction(once: false, &block)
      persist(once, &block)
    rescue PG::LockNotAvailable, PG::QueryCanceled
      raise if once || @stop.set?

      @stop.wait(HELD)
      persist_in_turn(&block)
    end

    # Runs a statement that may sleep for the given number of seconds.  Cancels it when the worker
    # stops.
    def wait(sql, values, seconds)
      transaction(once: true) do |connection|
        connection.sleep_in(sql, values, seconds, @stop)
      end
    end

    # Whether the connection goes through a pooler.  A long statement would occupy one of
    # the pooler's connections.
    def pooled?
      @pooled
    end

    private

    def connect
      connection = Connection.new(@limit)
      @refused_since = nil
      # a pooler sends its clients an invented process ID
      pid = connection.exec_params("SELECT pg_backend_pid()").getvalue(0, 0).to_i
      @pooled = pid != connection.pg.backend_pid
      connection
    rescue PG::ConnectionBad => error
      connection&.close
      give_up(error) if Database.refused?(error)
      raise
    end

    # Raises the error if the server has refused connections for too long.
    def give_up(error)
      @refused_since ||= now
      return if @give_up.nil? || now - @refused_since < @give_up

      raise ServerError.new(Database.one_line(error), nil)
    end

    def now
      Process.clock_gettime(Process::CLOCK_MONOTONIC)
    end

    # One thread retries at a time, with pauses, so others can use the connection.  Once it
    # succeeds, the others follow at once.
    def persist_in_turn(&block)
      loop do
        @holding.synchronize do
          return persist(false, &block)
        rescue PG::LockNotAvailable, PG::QueryCanceled
          raise if @stop.set?

          @stop.wait(HELD)
        end
        @stop.wait(HELD / 10) # so that another thread can retry
      end
    end

    def held_lately?
      @held && now - @held < LATELY
    end

    def note_held(error)
      unless held_lately?
        Fairq.logger.warn("another transaction has locked the task: #{Database.one_line(error)}; retrying")
      end
      @held = now
    end

    def persist(once)
      failures = 0
      begin
        @lock.synchronize do
          yield(@connection ||= connect)
        rescue PG::Error => error
          forget if Database.lost?(error)
          note_held(error) if Database.held?(error) && !once
          raise
        end
      rescue PG::Error => error
        raise if Database.held?(error)
        raise Database.explained(error) unless Database.lost?(error)

        Fairq.logger.warn(Database.one_line(error))
        failures += 1
        raise if once || (@stop.set? && failures > 1)

        @stop.wait(1)
        retry
      end
    end

    def forget
      @connection&.close
      @connection = nil
    end
  end
end
