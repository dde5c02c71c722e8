# frozen_string_literal: true

module Fairq
  class Error < StandardError; end

  # An error that a retry cannot fix: the queue, the privilege or the extension is missing, or
  # an argument is out of range.  The message is one line.
  class ServerError < Error
    attr_reader :sqlstate

    def initialize(message, sqlstate)
      super(message)
      @sqlstate = sqlstate
    end
  end

  # The worker has no job class for this name.
  class NoHandler < Error; end

  # A job raises these to choose how its attempt ends.  They are not StandardErrors, so
  # neither "rescue => error" nor retry_on StandardError catches them.
  class Ending < Exception; end

  # The task was cancelled, or its lease is lost: Task#check! raises it.
  class Stopped < Ending
    def initialize(message = "the task was cancelled, or its lease is lost")
      super
    end
  end

  # The task has run for longer than its timeout.  The worker raises it in the job's thread.
  class TimedOut < Ending; end

  # The task fails for good.
  class Dead < Ending; end

  # The worker retries the task after a number of seconds, or with the queue's backoff.
  class Retry < Ending
    attr_reader :wait

    def initialize(message = "the job asks to be retried", wait: nil)
      super(message)
      @wait = wait
    end
  end
end
