# frozen_string_literal: true

module Fairq
  # Ends jobs that exceed their time limits.
  #
  # At its deadline a job's thread gets TimedOut, which also ends Ruby's sleeps, locks and waits for
  # sockets.  A thread in a C extension, or a job that rescues Exception, may continue.  After
  # PATIENCE, another thread calls the block of new() with the task.
  class Timeouts
    PATIENCE = 5 # seconds

    def initialize(&abandon)
      @abandon = abandon
      @deadlines = {} # deadlines of tasks, on the monotonic clock
      @lock = Mutex.new
      @changed = ConditionVariable.new
    end

    # The calling thread runs the task, for at most the given number of seconds; nil: without limit.
    def limit(task, seconds)
      return yield unless seconds

      task.thread = Thread.current
      set(task, seconds)
      begin
        Thread.handle_interrupt(TimedOut => :immediate) { yield }
      ensure
        clear(task)
      end
    rescue TimedOut
      raise TimedOut, "timed out after #{format("%g", seconds)} s"
    end

    private

    def now
      Process.clock_gettime(Process::CLOCK_MONOTONIC)
    end

    def set(task, seconds)
      @lock.synchronize do
        @deadlines[task] = now + seconds
        @watching ||= Thread.new { watch }
        @changed.signal
      end
    end

    def clear(task)
      @lock.synchronize { @deadlines.delete(task) }
    end

    def watch
      @lock.synchronize do
        loop do
          first = @deadlines.values.min
          @changed.wait(@lock, first && [first - now, 0].max)
          @deadlines.select { |_, deadline| deadline <= now }.each_key { |task| pass(task) }
        end
      end
    end

    # Raises TimedOut in the thread; after PATIENCE, fails the task.
    def pass(task)
      if task.timed_out?
        @deadlines.delete(task)
        Thread.new { @abandon.call(task) }
      else
        task.time_out!
        @deadlines[task] = now + PATIENCE
      end
    end
  end
end
