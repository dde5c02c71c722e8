# frozen_string_literal: true

module Fairq
  class Error < StandardError; end

  # What no retry mends: there is no such queue, it may not be used, an argument is
  # out of range, the database has no fairq.  The message is one line.
  class ServerError < Error
    attr_reader :sqlstate

    def initialize(message, sqlstate)
      super(message)
      @sqlstate = sqlstate
    end
  end

  # The worker cannot run any job of this name.
  class NoHandler < Error; end

  # What a job raises to say how its attempt ends.  These are no StandardErrors, so
  # that neither a "rescue => error" on the way nor a retry_on StandardError takes
  # them for a failure of the work.
  class Ending < Exception; end

  # The task was cancelled, or its lease is lost: Task#check! raises it.
  class Stopped < Ending
    def initialize(message = "the task was cancelled, or its lease is lost")
      super
    end
  end

  # The task has run for longer than its timeout: the worker raises it in the job's
  # thread.
  class TimedOut < Ending; end

  # The task has failed for good.
  class Dead < Ending; end

  # The task is to be retried after so many seconds, or by the queue's backoff.
  class Retry < Ending
    attr_reader :wait

    def initialize(message = "the job asks to be retried", wait: nil)
      super(message)
      @wait = wait
    end
  end
end
