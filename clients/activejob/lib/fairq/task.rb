# frozen_string_literal: true

module Fairq
  # An attempt to run a task.  A job gets it from Fairq.current_task.
  class Task
    COLUMNS = "id, attempt, group_key, queue, attempts_left, priority, lapses, batch, " \
              "extract(epoch FROM enqueued_at) AS enqueued_at"
    TEXTS = "payload::text, headers::text, progress::text"

    # The name of the step that saves the state of a retry by the same task.
    RETRIES = "Active Job's retries"

    # Ruby's parser recurses, so deeper JSON would overflow a thread's small
    # stack.
    MOST_NESTED = 5000

    attr_reader :id, :attempt, :group, :queue, :attempts_left, :priority, :lapses, :enqueued_at

    # The Batch of the task; nil: none.
    attr_reader :batch

    def initialize(worker, row)
      @worker = worker
      @id, @attempt, @attempts_left, @priority, @lapses =
        row.values_at("id", "attempt", "attempts_left", "priority", "lapses").map(&:to_i)
      @group = row["group_key"]
      @queue = row["queue"]
      @batch = row["batch"] && Batch.new(row["batch"])
      @payload = row["payload"]
      @headers_text = row["headers"]
      @progress_text = row["progress"]
      @unread = row["unread"]
      @enqueued_at = Time.at(row["enqueued_at"].to_r)
      @replacements = []
      @stopped = @completed = @timed_out = @end_claimed = @end_reported = false
      @end_lock = Mutex.new
    end

    def payload
      decode("payload", @payload)
    end

    def headers
      @headers ||= @headers_text || @unread ? decode("headers", @headers_text) : {}
    end

    # The name by which the worker finds the handler.
    def name
      headers["task"]
    end

    # ---- for jobs

    # Raises Stopped if the task was cancelled or its lease is lost.  Long work should call it from
    # time to time.
    def check!
      raise Stopped if @stopped
    end

    # Whether the task was cancelled, or its lease is lost.
    def stopped?
      @stopped
    end

    # Whether the worker is stopping.  After the grace period the worker releases the
    # tasks that have not ended.
    def stopping?
      @worker.stopping?
    end

    # The progress that this or an earlier attempt set last; nil: none.  If there are steps or
    # a cursor, it is a hash whose element "fairq" has them.
    def progress
      kept.value
    end

    # Sets the progress, for fairq.tasks and later attempts.  Keeps the steps and the cursor.
    def progress=(value)
      kept.set(value)
    end

    # Runs the block and saves its value as JSON.  Returns the value as decoded
    # from that JSON.  If an earlier attempt has saved a value of that name,
    # returns that value and does not run the block.
    def step(name, &block)
      check!
      kept.step(name, &block)
    end

    # The last value of checkpoint! in this or an earlier attempt; nil: there is none.
    def cursor
      kept.cursor
    end

    # Records how far the work has got, for the cursor of a later attempt.  Saves the cursor
    # once per heartbeat, so call it often.  If the attempt fails or is released, the worker
    # saves the last cursor.  Raises Stopped like check!.
    def checkpoint!(cursor)
      check!
      kept.checkpoint(cursor)
    end

    # The task's result, which fairq keeps if the queue has retain.
    def result=(value)
      @result = JSON.generate(value, max_nesting: 0)
    end

    # Completes the task in the job's open transaction, on the connection for enqueueing.
    # So the transaction's work is done exactly once.
    def complete!
      @completed = true
      raise Stopped unless Producer.complete(@id, @attempt, @result)
    end

    # ---- for the worker and the adapter

    attr_accessor :begun, :ended, :thread
    attr_reader :job, :replacements, :retry_error

    def stop!
      @stopped = true
    end

    def timed_out?
      @timed_out
    end

    # Saves a checkpoint of a job with Active Job's continuations.  After a
    # crash, the next attempt continues at the checkpoint.
    def checkpoint_continuation!
      checkpoint!("continuation" => @job.continuation.to_h) if @job.respond_to?(:continuation)
    end

    # The continuation at the last checkpoint of an earlier attempt; nil: none.
    def continuation
      cursor["continuation"] if cursor.is_a?(Hash)
    end

    # Saves the cursor before the attempt fails or is released.
    def save_rest
      save { @kept&.save_cursor }
    end

    # Stops the job, also during a sleep or a wait for a socket.
    def time_out!
      @timed_out = true
      stop!
      @thread.raise(TimedOut)
    end

    # Whether the job has called complete!.  Its transaction may have been rolled back.
    def completed?
      @completed
    end

    # Makes the task's job, or the attempt of its handler, without running it.
    def load_job
      handler = Handler.all[name]
      return @job = handler.attempt(self) if handler

      job_class = Envelope.job_class(name)
      @job = job_class.deserialize(Envelope.unpack(self, job_class))
    end

    def job?(job)
      @job&.job_id == job.job_id
    end

    # Records that the job must be enqueued again when this task succeeds.
    def replace_by(job, values)
      @retry_error = $ERROR_INFO # the error that retry_on handles
      @replacements << [job, values]
    end

    # For each retry_on of the job, the number of its retries within this task; nil: none.
    def retries
      kept.steps[RETRIES]
    end

    # Saves the numbers of retries for the next attempt.
    def save_retries(job)
      save { kept.keep(RETRIES, job.exception_executions) }
    end

    def result_json
      @result
    end

    # How long the work took, for time-fair queues.
    def took
      Database.interval(seconds)
    end

    # The duration of the work; 0: it has not begun.
    def seconds
      @begun ? (@ended || Process.clock_gettime(Process::CLOCK_MONOTONIC)) - @begun : 0
    end

    # Whether the lease of an earlier attempt expired, for example because its process
    # died.
    def suspect?
      @lapses.positive?
    end

    # Returns true for the first caller, which ends the attempt.  The first caller is the
    # job's thread, or the worker that has waited too long for this thread.
    def claim_end
      @end_lock.synchronize { !@end_claimed && (@end_claimed = true) }
    end

    # A description with the task's name, unless the name cannot be decoded.
    def label
      named = begin
        name
      rescue Error
        nil
      end
      named ? to_s.sub(/\Atask \d+/) { |id| "#{id} (#{named})" } : to_s
    end

    # Returns true for the first caller, which calls the hook for the end of the attempt.
    def first_end?
      @end_lock.synchronize { !@end_reported && (@end_reported = true) }
    end

    # Whether the job is a continuation that the worker's end has interrupted.
    def interrupted?
      !@retry_error.nil? && !@retry_error.is_a?(StandardError)
    end

    def to_s
      "task #{@id} of queue #{@queue}, group #{@group}, attempt #{@attempt}"
    end

    private

    def save
      yield
    rescue Stopped
      nil
    rescue PG::Error, Error, JSON::GeneratorError, TypeError => error
      Fairq.logger.warn("#{self}: its progress cannot be saved: #{Database.one_line(error)}")
    end

    def kept
      @kept ||= Progress.new(@progress_text && decode("progress", @progress_text),
                             @worker.lease / 3.0) do |json|
        @stopped = true unless @worker.call(self, "set_progress", json, cast: "jsonb")
        check!
      end
    end

    # If Ruby cannot read the JSON, only this task fails.
    def decode(what, text)
      raise Error, "the payload or the headers cannot be read: #{@unread}" if @unread

      JSON.parse(text, max_nesting: MOST_NESTED)
    rescue JSON::ParserError, SystemStackError => error
      raise Error, "the #{what} of the task cannot be decoded: #{error.message[0, 200]}"
    end
  end
end
