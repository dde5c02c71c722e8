# frozen_string_literal: true

module Fairq
  # A connection with a time limit in the client for each statement.
  #
  # If a server stops answering behind a proxy that stays up, the socket looks healthy.  Neither
  # keepalives nor tcp_user_timeout detect that.  If a statement has no answer by its limit, the
  # connection counts as lost, and the statement's outcome is unknown.
  class Connection
    # The worker's statements wait for locks only briefly, and do not depend on the backlog.
    LIMIT = 20

    attr_reader :pg

    # limit: in seconds
    def initialize(limit = LIMIT)
      @limit = limit
      @pg = Database.connect
    end

    def exec_params(sql, values = [])
      @pg.send_query_params(sql, values)
      finish(now + @limit)
    end

    # Runs a statement that may sleep for the given number of seconds.  Cancels it when stop is set.
    def sleep_in(sql, values, seconds, stop)
      @pg.send_query_params(sql, values)
      over = now + seconds + @limit
      while busy?
        check(over)
        if stop.set?
          @pg.cancel # has no effect if the server has not started the statement yet
          @pg.socket_io.wait_readable(0.1)
        else
          IO.select([@pg.socket_io, stop.io], nil, nil, over - now)
        end
      end
      @pg.get_last_result
    end

    def transaction
      exec_params("BEGIN")
      result = yield
      exec_params("COMMIT")
      result
    rescue StandardError
      exec_params("ROLLBACK") unless @pg.finished? || @pg.transaction_status == PG::PQTRANS_IDLE
      raise
    end

    def close
      @pg.close unless @pg.finished?
    rescue PG::Error
      nil # the connection is closed
    end

    private

    def now
      Process.clock_gettime(Process::CLOCK_MONOTONIC)
    end

    def finish(over)
      while busy?
        check(over)
        @pg.socket_io.wait_readable(over - now)
      end
      @pg.get_last_result
    end

    def busy?
      @pg.consume_input
      @pg.is_busy
    end

    def check(over)
      return if now < over

      close
      raise PG::ConnectionBad, "the server has not answered for #{@limit} s"
    end
  end
end
