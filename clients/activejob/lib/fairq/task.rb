# frozen_string_literal: true

module Fairq
  # An attempt of a task, for its job: Fairq.current_task.
  class Task
    COLUMNS = "id, attempt, group_key, queue, attempts_left, priority, lapses, " \
              "extract(epoch FROM enqueued_at) AS enqueued_at"
    TEXTS = "payload::text, headers::text"

    # Ruby's parser recurses, on the stack of a thread.
    MOST_NESTED = 5000

    attr_reader :id, :attempt, :group, :queue, :attempts_left, :priority, :lapses, :enqueued_at

    def initialize(worker, row)
      @worker = worker
      @id, @attempt, @attempts_left, @priority, @lapses =
        row.values_at("id", "attempt", "attempts_left", "priority", "lapses").map(&:to_i)
      @group = row["group_key"]
      @queue = row["queue"]
      @payload = row["payload"]
      @headers_text = row["headers"]
      @unread = row["unread"]
      @enqueued_at = Time.at(row["enqueued_at"].to_r)
      @replacements = []
      @stopped = @completed = @timed_out = @end_claimed = false
      @end_lock = Mutex.new
    end

    def payload
      decode("payload", @payload)
    end

    def headers
      @headers ||= @headers_text || @unread ? decode("headers", @headers_text) : {}
    end

    # The name by which a handler is found.
    def name
      headers["task"]
    end

    # ---- for jobs

    # Raises Stopped if the task was cancelled or its lease is lost.  Long work calls it
    # from time to time.
    def check!
      raise Stopped if @stopped
    end

    # Whether the task was cancelled, or its lease is lost.
    def stopped?
      @stopped
    end

    # Whether the worker stops.  It releases the tasks that have not ended after the grace.
    def stopping?
      @worker.stopping?
    end

    # Sets the column progress of fairq.tasks.
    def progress(value)
      @stopped = true unless @worker.call(self, "set_progress", JSON.generate(value), cast: "jsonb")
      check!
    end

    # The task's result, which fairq keeps if the queue has retain.
    def result=(value)
      @result = JSON.generate(value, max_nesting: 0)
    end

    # Completes the task in the job's open transaction, on the connection for enqueueing.
    # So the work in that transaction is done exactly once.
    def complete!
      @completed = true
      raise Stopped unless Producer.complete(@id, @attempt, @result)
    end

    # ---- for the worker and the adapter

    attr_accessor :job, :begun, :ended, :thread
    attr_reader :replacements

    def stop!
      @stopped = true
    end

    def timed_out?
      @timed_out
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

    def job?(job)
      @job&.job_id == job.job_id
    end

    # The job is to be enqueued again when this task has ended well.
    def replace_by(job, values)
      @replacements << [job, values]
    end

    def result_json
      @result
    end

    # How long the work took, for time-fair queues.
    def took
      Database.interval(@ended - @begun)
    end

    # Whether the lease of an earlier attempt expired, for example since its process died.
    def suspect?
      @lapses.positive?
    end

    # The first caller ends the attempt: the thread that runs the job, or the worker that
    # has waited for it too long.
    def claim_end
      @end_lock.synchronize { !@end_claimed && (@end_claimed = true) }
    end

    def to_s
      "task #{@id} of queue #{@queue}, group #{@group}, attempt #{@attempt}"
    end

    private

    # JSON that Ruby cannot read is an error of this task alone.
    def decode(what, text)
      raise Error, "the payload or the headers cannot be read: #{@unread}" if @unread

      JSON.parse(text, max_nesting: MOST_NESTED)
    rescue JSON::ParserError, SystemStackError => error
      raise Error, "the #{what} of the task cannot be decoded: #{error.message[0, 200]}"
    end
  end
end
