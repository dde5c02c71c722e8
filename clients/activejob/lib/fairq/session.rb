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
    HELD = 0.5 # seconds until what another transaction holds is tried again
    LATELY = 2 # seconds for which others are likely to be held, too

    # limit: of each statement, in seconds; give_up: for how long a server may refuse
    # the connection for a reason that lasts; nil: for ever.
    def initialize(stop, limit: Connection::LIMIT, give_up: nil)
      @stop = stop
      @limit = limit
      @give_up = give_up
      @lock = Mutex.new
      @holding = Mutex.new # for who tries again what is held
      ActiveSupport::ForkTracker.after_fork { discard }
    end

    # The statement's result; tried every second until there is one.  If only the
    # answer was lost, the attempt sees to it that a second complete does no harm, and
    # what a lost pop took comes back by its lease: for that, once.
    #
    # brief: the statement, a SELECT without FROM, waits for no lock for long.
    def query(sql, values = [], once: false, brief: false)
      transaction(once: once) do |connection|
        connection.exec_params(brief ? "#{sql} #{briefly}" : sql, values)
      end
    end

    # Ends a statement about a task: its row may be locked for as long as another
    # transaction is open, and the connection is there for the other tasks, too.
    def briefly
      "FROM set_config('lock_timeout', '#{held_lately? ? 10 : 100}ms', true)"
    end

    # Likewise all that the block does with the connection.
    def transaction(once: false, &block)
      persist(once, &block)
    rescue PG::LockNotAvailable, PG::QueryCanceled
      raise if once || @stop.set?

      @stop.wait(HELD)
      persist_in_turn(&block)
    end

    # A statement that may sleep for so many seconds; cancelled when the worker is to end.
    def wait(sql, values, seconds)
      transaction(once: true) do |connection|
        connection.sleep_in(sql, values, seconds, @stop)
      end
    end

    # Does the connection go through a pooler, of which a statement that takes its time
    # would occupy a connection?
    def pooled?
      @pooled
    end

    private

    def connect
      connection = Connection.new(@limit)
      @refused_since = nil
      # a pooler invents the process that its clients see
      pid = connection.exec_params("SELECT pg_backend_pid()").getvalue(0, 0).to_i
      @pooled = pid != connection.pg.backend_pid
      connection
    rescue PG::ConnectionBad => error
      connection&.close
      give_up(error) if Database.refused?(error)
      raise
    end

    # Ends the attempts to connect when the server has refused them for too long.
    def give_up(error)
      @refused_since ||= now
      return if @give_up.nil? || now - @refused_since < @give_up

      raise ServerError.new(Database.one_line(error), nil)
    end

    def now
      Process.clock_gettime(Process::CLOCK_MONOTONIC)
    end

    # One at a time, and seldom: so they keep no others from the connection.  When the one
    # is in the way no more they follow each other at once.
    def persist_in_turn(&block)
      loop do
        @holding.synchronize do
          return persist(false, &block)
        rescue PG::LockNotAvailable, PG::QueryCanceled
          raise if @stop.set?

          @stop.wait(HELD)
        end
        @stop.wait(HELD / 10) # it is another's turn
      end
    end

    def held_lately?
      @held && now - @held < LATELY
    end

    def note_held(error)
      unless held_lately?
        Fairq.logger.warn("another transaction is in the way: #{Database.one_line(error)}; trying again")
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

    # In a process that a job has forked: its end is not to close what is its parent's.
    def discard
      @connection&.discard
      @connection = nil
    end

    def forget
      @connection&.close
      @connection = nil
    end
  end
end
